"""`HttpSession`: the state of one server over HTTP. `Exchanges`: the channel, as its requests and streams use it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from gaia.http.connection import HttpConnection
from gaia.http.io_thread import IoThread, Task
from gaia.http.response import Response
from gaia.http.url import Url
from gaia.http.waits import Exchange
from gaia.mcp.errors import InvalidResponse, MCPError
from gaia.mcp.protocol.exchange import NOT_NEGOTIATED, NegotiatedProtocol
from gaia.mcp.protocol.remote_deadlines import RemoteClock
from gaia.mcp.protocol.request_headers import RequestHeaders
from gaia.mcp.rpc.channel import Ending, Outgoing
from gaia.runtime.threads import DaemonPool

SESSION_ID = "Mcp-Session-Id"
_REVISION = "MCP-Protocol-Version"

_MAX_SESSION_ID = 4096

_NO_HEADERS: Mapping[str, str] = {}
_POST_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@dataclasses.dataclass(eq=False)
class HttpSession:
    """The state that all requests to one server share. Any thread reads it; each attribute is replaced as a whole."""

    name: str
    url: Url = dataclasses.field(repr=False)
    """Its path and its query may be secret."""
    redact: Callable[[str], str]
    max_message_bytes: int
    request_headers: RequestHeaders
    send: Callable[..., Awaitable[Response]] = HttpConnection.request
    """Called like that method, with the connection. With an authorization it may wait, and send the request twice."""
    login_threads: DaemonPool | None = None
    negotiated: NegotiatedProtocol = NOT_NEGOTIATED
    id: str | None = dataclasses.field(default=None, repr=False)
    endpoint: Callable[[], Awaitable[Url]] | None = None
    """Waits for the URL for messages of a server of 2024-11-05, which answers on its own stream."""

    clock: RemoteClock = dataclasses.field(default_factory=RemoteClock, init=False, repr=False)
    """The server's clock, if the server is a gateway."""
    _post_headers: tuple[NegotiatedProtocol | None, str | None, Mapping[str, str], dict[str, str]] = dataclasses.field(
        default=(None, None, {}, {}), init=False, repr=False
    )

    def begin(self, identifier: str | None) -> None:
        """Note the id of the session. Raises `InvalidResponse` if it cannot be sent back ("Session Management")."""
        if identifier is not None:
            visible = identifier.isascii() and identifier.isprintable() and " " not in identifier
            if not visible or not 0 < len(identifier) <= _MAX_SESSION_ID:
                raise InvalidResponse(
                    f"the server gives a session id that cannot be used: it has {len(identifier)} characters"
                    + ("" if visible else ", and not only visible ones of ASCII")
                )
        self.id = identifier

    def reason(self, error: Exception) -> str:
        return self.redact(" ".join(str(error).split())) or type(error).__name__

    def post_headers(self, item: Outgoing, negotiated: NegotiatedProtocol) -> Mapping[str, str]:
        stateless = is_stateless(negotiated)
        identifier = None if stateless or item.method == "initialize" else self.id
        named = self.request_headers.of(item.method, item.params) if stateless else _NO_HEADERS
        known, known_id, known_named, headers = self._post_headers
        if known is not negotiated or known_id != identifier or known_named is not named:
            headers = _given({**_POST_HEADERS, _REVISION: negotiated.revision, SESSION_ID: identifier, **named})
            self._post_headers = (negotiated, identifier, named, headers)
        return headers

    def stream_headers(self, last_event_id: str | None) -> dict[str, str]:
        known = {_REVISION: self.negotiated.revision, SESSION_ID: self.id, "Last-Event-ID": last_event_id}
        return _given({"Accept": "text/event-stream", **known})


def _given(headers: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if value is not None}


class Exchanges(Protocol):
    """The part of a channel that requests and streams use, on the I/O thread or on a caller's."""

    session: HttpSession
    lock: AbstractContextManager[object]
    io: IoThread

    def new_connection(self) -> HttpConnection: ...

    def spawn(self, exchange: Exchange[object]) -> Task:
        """Have the I/O thread drive an exchange."""

    def message_received(
        self,
        data: bytes,
        method: str | None = None,
        params: Mapping[str, Any] | None = None,
        call_id: int | None = None,
    ) -> None:
        """The server sent a message, in answer to the request `call_id` of `method` if these are given."""

    def answered(self) -> None:
        """A request has its answer, and only reads on to the end of the stream of that answer."""

    def request_failed(self, call_id: int, error: MCPError) -> None:
        """One request has failed, and the channel goes on."""

    def unreachable(self, error: Exception, post: object | None = None) -> bool:
        """There is no connection. False if the channel stays, because the server answers other requests: try again."""

    def host_ended(self) -> None:
        """The host of a placed server takes no message any more."""

    def session_forgotten(self) -> None:
        """The server has refused the session as unknown."""

    def login_required(self, error: MCPError) -> bool:
        """Whether `error` says that the server lets no request in without a login; if so, the channel ends soon."""

    def ended(self, ending: Ending) -> None:
        """The channel is over; the first report says why."""

    async def fall_back(self, item: Outgoing) -> bool:
        """Try the transport of 2024-11-05. True if the server speaks it: `item` and all later messages use it."""


def is_stateless(negotiated: NegotiatedProtocol) -> bool:
    """Whether there are no sessions, and closing a stream cancels its request (2026-07-28)."""
    return not negotiated.server_may_ask
