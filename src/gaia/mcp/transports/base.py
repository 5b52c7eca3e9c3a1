"""The transport interface that users implement, and the wider one that a supervisor can supervise."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from typing import Any, Protocol, runtime_checkable

from gaia.mcp.rpc.channel import Channel, ChannelListener
from gaia.runtime.locks import WeakObjects


class MCPTransport(ABC):
    """How requests reach a server. A subclass with these four methods works with `MCPClient`.

    Calls then run in the caller's thread, one `send_request` each; what happens when several threads call at once is
    for the subclass to say.
    """

    @abstractmethod
    def connect(self) -> bool:
        """Establish the connection. True if it is up, False if it could not be established."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection; harmless when there is none."""

    @abstractmethod
    def send_request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one JSON-RPC request and return the whole response: a dict with ``"result"`` or ``"error"``.

        Raises RuntimeError when there is no connection, TimeoutError when no answer comes in time, ValueError when the
        answer is not a JSON-RPC response.
        """

    @abstractmethod
    def is_connected(self) -> bool:
        """True while the connection is up."""


@runtime_checkable
class Authorization(Protocol):
    """The login at one server. The transport puts it on requests, in a way of its own. Thread-safe."""

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked to log in."""

    @property
    def secrets(self) -> Iterable[str]:
        """The tokens that must not be shown."""

    def changed(self) -> bool:
        """Whether there is a login that the server has not refused yet. Quick enough for each call."""

    def log_in(self) -> None:
        """Have a person log in. Raises MCPError; may take minutes."""

    def abort(self) -> None:
        """End `log_in`, and refuse it from now on."""

    def reopen(self) -> None:
        """After `abort`: allow it again."""


@runtime_checkable
class RequestAuthorization(Protocol):
    """What a login means for each request over HTTP. Thread-safe."""

    def ready_login(self) -> tuple[bool, str | None]:
        """Whether a request can be sent without waiting, and the header ``Authorization`` that it needs."""

    def login_flow(self, revision: str | None) -> Generator[str | None, tuple[int, str | None], None]:
        """Yields the header ``Authorization`` to send the request with, if it needs one, as often as it is to be sent.

        It is sent the status and the header ``WWW-Authenticate`` of each response. It may wait, for a person too, and
        raises MCPError. `revision` is that of the protocol of the request.
        """


class ChannelTransport(MCPTransport):
    """A transport that can open one channel after another: supervision needs one for each start of the server."""

    network_transport: str
    """What OpenTelemetry calls it: "pipe" or "tcp"."""

    @property
    def network(self) -> dict[str, str | int]:
        """The attributes `network.*` and `server.*` of the OpenTelemetry conventions that hold for all requests."""
        return {"network.transport": self.network_transport}

    authorization: Authorization | None = None
    """The login at the server; None if there is no way to log in."""

    timeout: float
    """Seconds that a request may take, and that a server has to get ready."""

    def prepare(self, owner: object) -> None:
        """Keep what a start needs besides the server, so that the next `open` is fast, until `release(owner)`.

        A supervisor, which is the owner, does so for as long as it may start the server.
        """

    def release(self, owner: object) -> None:
        """`owner` needs it no more. May be called again, and without `prepare`: an exception may have come between."""

    @abstractmethod
    def open(self, listener: ChannelListener, name: str) -> Channel:
        """Start the server and a channel to it. Everything that comes from the server goes to `listener`.

        `name` is the server's name, for threads and log lines. Raises `StartFailed` or `ConfigError`; then it leaves
        nothing behind.
        """

    def present(self, channel: Channel) -> None:
        """Of the channels that are open, this is the one that calls go to."""


open_channels: WeakObjects[Channel] = WeakObjects()
"""Each channel adds itself, and removes itself when it is closed."""


def _after_fork() -> None:
    for channel in open_channels.present():
        channel.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
