"""`HttpProtocol`: the connections of all HTTP servers of gaia, with bounds on what a client may take and how long.

uvicorn's own protocol reads the requests. With a `RequestHandler`, those that it takes go there as soon as they are
complete, and are answered by callbacks. All others take the usual way, through ASGI: a task and its messages, which
take three times as long as all the rest of a call through a gateway.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gaia.runtime.log import exception_text, get_logger
from gaia.serving.connections import FULL, STALLED_SECONDS, TIMED_OUT, Connections, Waiting
from gaia.serving.guards import HEALTH, ClientAddress, Cors, Guard, Headers, Refused
from gaia.serving.options import HttpOptions
from gaia.serving.responses import JSON, UNCHECKED_BYTES, HttpRequest, HttpResponder, RequestHandler, release

logger = get_logger(__name__)

_MAX_WAITING = 16
"""Requests of one connection that wait for the answers to earlier ones; more are not read."""

_MAX_AT_ONCE = 4
"""Requests of one connection that are answered in one turn of the loop. Thousands may come in one piece."""

_PIECE = 4096
"""Bytes that are parsed before it is looked at whether the requests in them have to wait. The loop reads far more at
once, in which there may be thousands of requests."""

_LARGE = 64 * 1024
"""Bytes of the body of a request that waits; after such a one, no more are read."""

_MAX_UNFINISHED = 64 * 1024
"""Bytes that belong to no complete head, and to no part of a body either."""

_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Complete(NamedTuple):
    """One complete request."""

    request: HttpRequest
    keeps_alive: bool
    held: list[Callable[[], None]]
    """To be called once it is over."""


class HttpProtocol(HttpToolsProtocol):
    """One connection. Drops a client that is too slow with a request, or with reading the response."""

    def __init__(
        self,
        *arguments: Any,
        handler: RequestHandler | None,
        guard: Guard,
        connections: Connections,
        cors: Cors,
        proxies: ClientAddress,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        self._cors = cors
        self._proxies = proxies
        self._address: str | None = None
        """The IP address of the client whose request is being read."""
        self._proxy: str | None = None
        """The address of the other end, if that is a proxy whose word counts."""
        self.waiting = Waiting.NOTHING
        self.since = 0.0
        """When what the connection waits for began; a reading of the loop's clock."""
        self._handler = handler
        self._guard = guard
        self._others = connections
        self.group: Hashable = None
        self._is_reserve = False
        """There are too many connections, and this one may only ask how the server is."""
        self._held: list[Callable[[], None]] = []
        """Of the request that is being read."""
        self._stalled_since: float | None = None
        """Since when the client has taken nothing of a response that does not fit the buffers."""
        self._written = 0
        """Bytes of responses in all."""
        self._taken = 0
        """Of these, what the client had taken when that was last looked at."""
        self._reads_no_more = False
        """The connection ends with the answers to the requests that are there."""
        self._is_direct = False
        """The request that is being read goes to the handler."""
        self._path = ""
        self._head: list[tuple[bytes, bytes]] = []
        """Its headers."""
        self._body: bytes | bytearray = b""
        self._unfinished = 0
        """Bytes since the head has begun, or since the last part of the body."""
        self._is_refused = False
        self._keeps_alive = True
        self._passed: tuple[str, str, list[tuple[bytes, bytes]]] | None = None
        """Method, path and headers of the last request that the guard let pass. Many clients repeat all of them."""
        self.responder: HttpResponder | None = None
        """Of the request that is being answered."""
        self._queue: deque[_Complete] = deque()
        """Complete requests that came before the answer to an earlier one, or while there is no room for theirs."""
        self._rest = memoryview(b"")
        """What has come and is not parsed: too many requests wait."""
        self._has_paused = False
        """Whether nothing is read because of them."""
        self._is_answering = False
        self._answered_at_once = 0
        """Requests that were handed over since `go_on` ran. The last that may be handed over asks for a turn."""

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        super().connection_made(transport)
        self.since = self.loop.time()
        self._address = None if self.client is None else self.client[0]
        self._proxy = self._address if self._proxies.trusts(self._address) else None
        if self._handler is not None and self._proxy is None and self._address is not None:
            # Without a handler, clients are not told apart.
            self.group = (self._address,)
        self._is_reserve = not self._others.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.remove(self)
        for request in self._queue:
            release(request.held)
        self._queue.clear()
        self._rest = memoryview(b"")
        release(self._held)
        responder, self.responder = self.responder, None
        if responder is not None:
            responder.lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._take(memoryview(bytes(self._rest) + data) if self._rest else memoryview(data))

    def _take(self, data: memoryview) -> None:
        """Parse what has come, until too many requests wait."""
        self._rest = data[:0]
        while data and not (self._reads_no_more or self.transport.is_closing()):
            if self._is_full():
                self._rest = data
                return
            size = self._piece()
            self._take_piece(data[:size])
            data = data[size:]

    def _piece(self) -> int:
        """How many bytes are parsed next: all that a body has yet to get, in which there is no further request."""
        declared = dict(self._head).get(b"content-length", b"") if self.waiting is Waiting.BODY else b""
        return max(_PIECE, int(declared) - len(self._body)) if declared.isdigit() else _PIECE

    def _take_piece(self, data: memoryview) -> None:
        if self.waiting is Waiting.NOTHING:
            self.waiting, self.since, self._unfinished = Waiting.HEAD, self.loop.time(), 0
        self._unfinished += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._unfinished > _MAX_UNFINISHED and self.waiting in (Waiting.HEAD, Waiting.BODY):
            # The parser has no bound of its own.
            self._end_with(_TOO_LONG)

    def _parse(self, rest: memoryview) -> None:
        while rest and not self.transport.is_closing():
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                # The client offers another protocol, such as Java's clients HTTP/2. The parser would take the body for
                # the first bytes of that.
                if self.parser.get_method() == b"CONNECT":
                    raise httptools.HttpParserError from None
                rest = rest[upgrade.args[0] :]
                self.parser.feed_data(self._without_offer())
            else:
                return

    def _without_offer(self) -> bytes:
        """The head of the request that was just read, without the offer of another protocol."""
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        version = self.parser.get_http_version().encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self.parser.get_method(), self.url, version, b"".join(lines))

    def send_400_response(self, msg: str) -> None:
        if self._is_free():
            super().send_400_response(msg)
        else:
            self._read_no_more()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_since = self.loop.time()
        self._others.stalled[self] = None

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_since = None
        self._others.stalled.pop(self, None)
        self._next()

    def shutdown(self) -> None:
        """The server stops: what is under way is finished."""
        if self.responder is not None:
            self.responder.keeps_alive = False
        else:
            super().shutdown()

    def look(self, now: float, seconds: float | None) -> None:
        """Close the connection if the client has been too slow. `seconds` is what it may take; None: for ever."""
        if self._stalled_since is not None:
            taken = self._written - self.transport.get_write_buffer_size()
            if taken != self._taken:
                self._taken, self._stalled_since = taken, now
            elif now - self._stalled_since > STALLED_SECONDS:
                self.drop()
                return
        if self._has_paused:
            # The client may have sent more.
            self.since = now
        elif seconds is not None and now - self.since > seconds:
            if self._is_free():
                self._others.remove(self)
            self._end_with(TIMED_OUT if self.waiting is not Waiting.NOTHING else b"")

    def _end_with(self, response: bytes) -> None:
        """Close the connection, with this response, or after those to earlier requests."""
        if not self._is_free():
            self._read_no_more()
            return
        self.transport.write(response)
        self.transport.close()

    def _read_no_more(self) -> None:
        """Close the connection after the answers to earlier requests. The client sends the others on another one."""
        self._is_direct = self._is_refused = self._reads_no_more = True
        self.flow.pause_reading()
        self.waiting = Waiting.APPLICATION
        if self._queue:
            self._queue.append(self._queue.pop()._replace(keeps_alive=False))
        elif self.responder is not None:
            self.responder.keeps_alive = False
        elif self._is_on_usual_way() and not self.cycle.more_body:
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    def write(self, data: bytes) -> None:
        """Send a part of a response."""
        self._written += len(data)
        self.transport.write(data)

    @property
    def unread(self) -> int:
        """Bytes of responses that the client has not taken."""
        return self.transport.get_write_buffer_size()

    @property
    def default_headers(self) -> Headers:
        return self.server_state.default_headers

    def identify(self, client: Hashable, most: int | None) -> int | None:
        """See `Responder`."""
        return self._others.identify(self, client, most)

    def unread_of_client(self) -> int:
        """The same, on all connections of this client."""
        return self._others.unread_of(self.group)

    def drop(self) -> None:
        """Close the connection without waiting for what is still to be written."""
        self._others.remove(self)
        self.transport.abort()

    # One request. The parser calls these.

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._is_refused = False
        self.waiting, self.since, self._unfinished = Waiting.HEAD, self.loop.time(), 0

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            # It is read again, see `_parse`.
            return
        if self._reads_no_more or self.transport.is_closing():
            # It came together with a request that ends the connection.
            self._is_direct = self._is_refused = True
            return
        method = self.parser.get_method()
        path = self.url.partition(b"?")[0].decode("latin-1")
        if "%" in path:
            path = unquote(path)
        handler = self._handler
        if self._is_reserve and not (path == HEALTH if handler is None else handler.is_probe(path)):
            self._is_direct = self._is_refused = True
            self._end_with(FULL)
            return
        # Without chunks, as in HTTP/1.0, no response can be a stream. OPTIONS is for CORS alone.
        takes = handler is not None and method != b"OPTIONS" and handler.takes(path)
        self._is_direct = takes and self.parser.get_http_version() == "1.1"
        # Trailers come behind the body, when the headers have been checked: they go into a list that is not looked at.
        self._head, self.headers = self.headers, []
        if self._proxy is not None:
            self._address = self._proxies.behind(self._proxy, self._head)
            # For the usual way.
            self.client = (self._address, 0)
        if not self._is_direct:
            self._take_usual_way()
            return
        self.waiting, self._path, self._body = Waiting.BODY, path, b""
        self._keeps_alive = self.parser.should_keep_alive() and not self._is_reserve
        refused = self._refusal(method.decode("ascii"), path)
        if refused is not None:
            self._refuse(refused)
        elif self.expect_100_continue and self._is_free():
            self.transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        if not self._is_direct:
            super().on_body(body)
        elif not self._is_refused:
            if not self._body:
                self._body = body
            else:
                if isinstance(self._body, bytes):
                    # Bodies may come in many small parts, each of which would have all copied.
                    self._body = bytearray(self._body)
                self._body += body
            size = len(self._body)
            refused = self._guard.too_large(size)
            if refused is None and size - len(body) <= UNCHECKED_BYTES < size:
                refused = self._taken_by().refusal(self._request(b""), self._held)
            if refused is not None:
                self._refuse(refused)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self.waiting = Waiting.APPLICATION
        if not self._is_direct:
            super().on_message_complete()
        elif not self._is_refused:
            complete = _Complete(self._request(bytes(self._body)), self._keeps_alive, self._held)
            self._body, self._held = b"", []
            if self._may_answer():
                self._handle(complete)
            else:
                self._queue.append(complete)
                if self._is_full():
                    self._has_paused = True
                    self.flow.pause_reading()

    def _request(self, body: bytes) -> HttpRequest:
        """The request that is being read."""
        method = self.parser.get_method().decode("ascii")
        return HttpRequest(method, self._path, dict(self._head), body, self._address)

    def _taken_by(self) -> RequestHandler:
        assert self._handler is not None, "it has taken the request"
        return self._handler

    def on_response_complete(self) -> None:
        """The usual way has come to its end."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        self._wait_for_request()
        self._next()

    def _may_answer(self) -> bool:
        """Whether the next request may be answered: there is room for its response, and none that comes before it.

        Not if so many were answered in this turn of the loop; then `go_on` comes.
        """
        if self._answered_at_once >= _MAX_AT_ONCE:
            return False
        return self.responder is None and self._stalled_since is None and not self._is_on_usual_way()

    def _is_full(self) -> bool:
        """Whether so much waits that nothing more is read."""
        return len(self._queue) >= _MAX_WAITING or (bool(self._queue) and len(self._queue[-1].request.body) > _LARGE)

    def _is_free(self) -> bool:
        """Whether what is written now is the response to the request that is being read."""
        if self.responder is not None or self._queue:
            return False
        # An application has not answered yet if it has not got the whole body.
        return not self._is_on_usual_way() or (self.cycle.more_body and not self.cycle.response_started)

    def _is_on_usual_way(self) -> bool:
        """Whether the usual way has not come to its end yet."""
        # Before the first request there is no cycle, which the base class does not say.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _take_usual_way(self) -> None:
        if self.responder is not None or self._queue:
            # Answers have to come in the order of the requests, which only one of the two ways can see to.
            self._read_no_more()
            return
        url, expects = self.url, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(self._head)
        self.waiting = Waiting.BODY
        super().on_headers_complete()
        self.headers = []

    def _refusal(self, method: str, path: str) -> Refused | None:
        """What the guard says. It is not asked again about the head that it let pass on this connection just before."""
        head = (method, path, self._head)
        if head == self._passed:
            return None
        refused = self._guard.refusal(method, path, self._head)
        if refused is None:
            self._passed = head
        return refused

    def _refuse(self, refused: Refused) -> None:
        """Answer before the request is complete; what is still to come of it is not looked at."""
        self._is_refused, self._body = True, b""
        release(self._held)
        if self._is_free():
            responder = HttpResponder(self, keeps_alive=False)
            headers = [*JSON, *refused.headers, *self._cors.headers(dict(self._head))]
            responder.finish(refused.status, headers, orjson.dumps(refused.body))
        else:
            self._read_no_more()

    def _handle(self, complete: _Complete) -> None:
        request = complete.request
        self.responder = responder = HttpResponder(self, keeps_alive=complete.keeps_alive)
        responder.held = complete.held
        self._answered_at_once += 1
        if self._answered_at_once == _MAX_AT_ONCE:
            self._others.go_on_later(self)
        responder.has_body = request.method != "HEAD"
        if self._cors.is_on:
            responder.added = self._cors.headers(request.headers)
        try:
            self._taken_by().handle(request, responder)
        except Exception as error:  # noqa: BLE001 - it may be in the middle of the end of another request
            text = exception_text(error)
            logger.error("direct_request_failed", method=request.method, path=request.path, error=text)
            responder.finish(500, JSON, b'{"error":{"message":"internal error"}}')

    def answered(self, *, keeps_alive: bool) -> None:
        """The response is complete."""
        self.responder = None
        self.server_state.total_requests += 1
        if not keeps_alive:
            self.transport.close()
            return
        self._wait_for_request()
        self._next()

    def _wait_for_request(self) -> None:
        """A response is complete. If no further request has begun, the connection waits for one."""
        if self.waiting is Waiting.APPLICATION:
            self.waiting, self.since = Waiting.NOTHING, self.loop.time()

    def go_on(self) -> None:
        """Answer some more requests: another turn of the loop has begun."""
        self._answered_at_once = 0
        self._next()

    def _next(self) -> None:
        """Answer what waits, as far as that may be."""
        if self._is_answering:
            # A response that is there at once comes back here, and many in a row would be too deep.
            return
        self._is_answering = True
        try:
            while not self.transport.is_closing():
                if self._queue and self._may_answer():
                    self.waiting = Waiting.APPLICATION
                    self._handle(self._queue.popleft())
                elif self._rest and not self._is_full() and self._answered_at_once < _MAX_AT_ONCE:
                    self._take(self._rest)
                else:
                    break
            if self._has_paused and not (self._rest or self._reads_no_more or self._is_full()):
                self._has_paused = False
                self.flow.resume_reading()
        finally:
            self._is_answering = False


def http_protocol(options: HttpOptions, guard: Guard, handler: RequestHandler | None = None) -> type[asyncio.Protocol]:
    """What uvicorn makes its connections with: it calls it like a class, and makes no other use of it."""
    made: Callable[..., HttpProtocol] = functools.partial(
        HttpProtocol,
        handler=handler,
        guard=guard,
        connections=Connections(options),
        cors=Cors(options.allow_origins),
        proxies=ClientAddress(options.trusted_proxies),
    )
    return cast("type[asyncio.Protocol]", made)
