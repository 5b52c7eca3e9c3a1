"""`Engine`: starts the host of one server on some machine, watches it and ends it.

A host is a gateway with one server, see `gaia.mcp.gateway.host`. An engine decides where it runs, and knows whether it
still runs. It carries no calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec


class Launch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a host is told at its start, as one line of JSON on its standard input: it holds secrets."""

    name: str
    """Of the server, as the program calls it."""
    entry: dict[str, Any]
    """The server's entry, expanded: what the host itself needs of it."""
    token: str
    """Each request to the host must have it. Each start has its own."""
    lease: float
    """Seconds without a word of any owner, after which the host ends the server."""
    is_shared: bool = False
    """Whether the host outlives the program that has started it."""
    listen: str = "127.0.0.1"
    """The address to listen at. The port is the host's choice."""
    certificate: str | None = None
    """A certificate and its private key as PEM, for TLS; None for plain HTTP on the loopback interface."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a host listens."""

    url: str
    """Such as ``http://127.0.0.1:40123``, without a path."""
    node: str
    """The name of the machine."""
    node_id: str | None = None
    """The engine's name for the machine."""
    id: str
    """The engine's name for the host: a process id, an actor's id, a pod's name."""
    pid: int
    """The host's process on that machine."""
    token: str
    certificate: str | None = None
    """The certificate that the host must show, as PEM; None for plain HTTP."""


class Placed(Protocol):
    """A host that was started, until its end. Thread-safe."""

    @property
    def address(self) -> Address: ...

    def why_ended(self) -> str | None:
        """Why the host has certainly ended, as the end of a sentence; None if it may still run. Returns at once."""

    def stop(self) -> bool:
        """End the host. True if nothing of it runs any more; False if that is unknown, as when its machine is silent.

        Waits a bounded time. May be called again.
        """


class PlacedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A host, as `Engine.list` shows it. It has no secret."""

    name: str
    node: str
    id: str
    is_shared: bool
    started_by: str = ""
    """The program that started it, such as ``agent.py on head, pid 71``."""
    age: float | None = None
    """Seconds since its start."""


class Engine(Protocol):
    """Thread-safe. Methods may wait, at most as long as they say."""

    def start(self, launch: Launch, timeout: float, on_ended: Callable[[str], None]) -> Placed:
        """Start a host, and wait at most `timeout` seconds until its server is ready.

        With `Launch.is_shared`, the host of that name is used if it runs. `on_ended` is called once, on any thread, as
        soon as the engine knows that the host has ended without `stop`; its argument is as for `Placed.why_ended`.
        Raises `StartFailed` with the reason, and ConfigError if the engine cannot be used at all; nothing is left then.
        """

    def list(self) -> list[PlacedServer]:
        """The hosts that this engine knows, of all programs that it can see. Raises StartFailed if it cannot tell."""
