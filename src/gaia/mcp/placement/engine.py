"""`Engine`: starts the host of one server on some machine, watches it and ends it.

A host is a gateway with one server, see `gaia.mcp.gateway.host`. An engine decides where it runs, and knows whether it
still runs. It carries no calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import msgspec

from gaia import __version__
from gaia.runtime.redaction import repr_of_shown


class Launch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a host is told at its start, as one line of JSON on its standard input: it holds secrets."""

    version: str = __version__
    """Of the program's gaia-mcp. A host of another version refuses to start."""
    name: str
    """Of the server, as the program calls it. Programs find a shared host by this name."""
    entry: dict[str, Any]
    """The server's entry, expanded: what the host itself needs of it."""
    secrets: list[str] = []
    """Values that the host must not show."""
    token: str
    """Each request to the host must have it. Each start has its own."""
    lease: float
    """Seconds without a word of any owner, after which the host ends the server."""
    is_shared: bool = False
    """Whether the host outlives the program that has started it."""
    started_by: str = ""
    """The program that starts it, see `PlacedServer`."""
    listen: str = "127.0.0.1"
    """The address to listen at. The port is the host's choice. An engine replaces it if its machines need another."""
    certificate: str | None = None
    """A certificate and its private key as PEM, for TLS; None for plain HTTP. An engine whose hosts are reached over a
    network makes one for each start."""

    __repr__ = repr_of_shown

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name), ("started_by", self.started_by)]

    @property
    def limits(self) -> dict[str, Any]:
        """What the transports at both ends take as arguments."""
        names = {"max_message_bytes": "maxMessageBytes", "max_pending": "maxPending"}
        return {name: self.entry[key] for name, key in names.items() if key in self.entry}

    def line(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The one line of JSON that a host writes to its standard output: its server is ready, or could not be started."""

    port: int
    pid: int
    """The host's process."""
    node: str
    """The name of the host's machine."""
    problem: str | None = None
    """Why the server could not be started; the host has ended then."""

    def address(self, launch: Launch) -> Address:
        """Where a program on the same machine reaches the host."""
        url = f"http://{launch.listen}:{self.port}"
        return Address(url=url, node=self.node, id=str(self.pid), pid=self.pid, token=launch.token)


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

    __repr__ = repr_of_shown

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("url", self.url), ("node", self.node), ("id", self.id)]


class Placed(ABC):
    """A host that was started, until its end. Thread-safe."""

    def __init__(self, on_ended: Callable[[str], None]) -> None:
        """`on_ended` is as for `Engine.start`."""
        self._on_ended = on_ended
        self._why_ended: str | None = None
        self._is_stopping = False
        """Whether the program has wanted its end."""

    @abstractmethod
    def wait(self, timeout: float) -> Address:
        """Wait at most `timeout` seconds until the server is ready. Another thread may call `stop` meanwhile.

        Raises StartFailed with the reason, which names the machine; nothing is left of the host then.
        """

    def why_ended(self) -> str | None:
        """Why the host has certainly ended, as the end of a sentence; None if it may still run. Returns at once."""
        return self._why_ended

    @abstractmethod
    def stop(self, grace: float) -> bool:
        """End the host, which has `grace` seconds to end by itself: the server exits, or is killed, within 2 s.

        A shared host ends by itself when its last owner leaves: it is only waited for, unless it was not ready yet.
        True if nothing of it runs any more; False if that is unknown, as when its machine is silent. Waits a bounded
        time. May be called again, and by several threads.
        """

    def after_fork(self) -> None:  # noqa: B027 - most have none
        """In a forked child: close the child's copies of descriptors. The host belongs to the parent."""

    def _tell(self, why: str) -> None:
        """The host is lost for this program, unless the program has wanted that."""
        if not self._is_stopping:
            self._on_ended(why)


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


class Engine(ABC):
    """Thread-safe. Methods may wait, at most as long as they say."""

    @abstractmethod
    def start(self, launch: Launch, on_ended: Callable[[str], None]) -> Placed:
        """Begin to start a host; `Placed.wait` waits for it.

        With `Launch.is_shared`, the host of `Launch.name` is used if it runs. `on_ended` is called at most once,
        on any thread, as soon as the engine knows that the host has ended without `stop`; its argument is as for
        `Placed.why_ended`. Raises StartFailed, and ConfigError if the engine cannot be used at all.
        """

    @abstractmethod
    def list(self) -> list[PlacedServer]:
        """The hosts that this engine knows, of all programs that it can see. Raises StartFailed if it cannot tell."""

    @abstractmethod
    def look(self) -> str:
        """What this program finds there, in words. Raises StartFailed with the reason why no server has a place now."""

    @abstractmethod
    def end(self, host: str) -> bool:
        """End a host by the id that `list` has shown, whatever programs use it. Returns whether it is gone."""

    def close(self) -> None:  # noqa: B027 - most keep nothing
        """Release what is kept between hosts. The next call gets it again."""
