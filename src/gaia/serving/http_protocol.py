"""`HttpProtocol`: the connections of all HTTP servers of gaia, with bounds on a client's time and memory.

uvicorn's own protocol parses the requests. A `RequestHandler` receives its requests when they are complete, and answers
by callbacks. All other requests go through ASGI, whose task and messages take three times as long as the rest of a call
through a gateway.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Hashable
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gaia.runtime.log import exception_text, get_logger
from gaia.runtime.loop_work import running_loop_work
from gaia.serving.connections import FULL, STALLED_SECONDS, TIMED_OUT, Connections, Phase
from gaia.serving.guards import HEALTH, ClientAddress, Cors, Guard, Headers, Refused
from gaia.serving.options import HttpOptions
from gaia.serving.responses import JSON, UNCHECKED_BYTES, HttpRequest, RequestHandler, ignore, refuse, release

logger = get_logger(__name__)

_MAX_WAITING = 16
"""Requests of one connection that wait for earlier answers. Further requests are not read."""

_MAX_AT_ONCE = 4
"""Requests of one connection that are answered in one turn of the loop. Thousands may arrive in one piece."""

_PIECE = 4096
"""Bytes parsed before the next check for waiting requests. The loop may read thousands of requests at once."""

_DEADLINE = b"gaia-deadline"
"""See `gaia.mcp.protocol.remote_deadlines`."""

_LARGE = 64 * 1024
"""Bytes. After a waiting request with a larger body, no further requests are read."""

_MAX_UNFINISHED = 64 * 1024
"""Bytes that belong neither to a complete head nor to a body."""

_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}


class HttpProtocol(HttpToolsProtocol):
    """One connection. It closes if the client sends a request or reads the response too slowly."""

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
        self._proxy: str | None = None
        self.phase = Phase.IDLE
        self.since = 0.0
        self._handler = handler
        self._guard = guard
        self.others = connections
        self.group: Hashable = None
        self._is_reserve = False
        self._held: list[Callable[[], None]] = []
        self._stalled_since: float | None = None
        """Since when the client has read nothing of a response that does not fit the buffers; None if it fits."""
        self._written = 0
        self._taken = 0
        self._reads_no_more = False
        """Whether the connection ends after the answers to the requests read so far."""
        self._is_direct = False
        self._path = ""
        self._head: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self._size = 0
        self._unfinished = 0
        """Bytes since the start of the head, or since the last part of the body."""
        self._is_refused = False
        self._keeps_alive = True
        self._passed: tuple[str, str, list[tuple[bytes, bytes | int]]] | None = None
        """Method, path and headers of the last request that passed the guard. Many clients repeat them."""
        self.responder: HttpResponder | None = None
        self._queue: deque[tuple[HttpRequest, HttpResponder]] = deque()
        """Complete requests that wait for an earlier answer, or for room for their own answer."""
        self._rest = memoryview(b"")
        """Received bytes that are not parsed yet, because too many requests wait."""
        self._has_paused = False
        self._is_answering = False
        self._answered_at_once = 0
        """Requests handled since `go_on` ran. The last permitted one schedules the next turn."""

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        super().connection_made(transport)
        self.since = self.loop.time()
        self._address = None if self.client is None else self.client[0]
        self._proxy = self._address if self._proxies.trusts(self._address) else None
        if self._handler is not None and self._proxy is None and self._address is not None:
            # Without a handler, clients are not distinguished.
            self.group = (self._address,)
        self._is_reserve = not self.others.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.others.remove(self)
        for _, waiting in self._queue:
            release(waiting.held)
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
        self._rest = data[:0]
        while data and not (self._reads_no_more or self.transport.is_closing()):
            if self._is_full():
                self._rest = data
                return
            size = self._piece()
            self._take_piece(data[:size])
            data = data[size:]

    def _piece(self) -> int:
        """Number of bytes to parse next: the rest of a body, or a piece that may contain requests."""
        declared = dict(self._head).get(b"content-length", b"") if self.phase is Phase.BODY else b""
        return max(_PIECE, int(declared) - self._size) if declared.isdigit() else _PIECE

    def _take_piece(self, data: memoryview) -> None:
        if self.phase is Phase.IDLE:
            self.phase, self.since, self._unfinished = Phase.HEAD, self.loop.time(), 0
        self._unfinished += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._unfinished > _MAX_UNFINISHED and self.phase in (Phase.HEAD, Phase.BODY):
            # The parser has no bound of its own.
            self._end_with(_TOO_LONG)

    def _parse(self, rest: memoryview) -> None:
        while rest and not self.transport.is_closing():
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                # The client offers another protocol, as Java's clients offer HTTP/2. The parser would take the body for
                # the first bytes of that protocol.
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
        self.others.stalled[self] = None

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_since = None
        self.others.stalled.pop(self, None)
        self._next()

    def shutdown(self) -> None:
        if self.responder is not None:
            self.responder.keeps_alive = False
        else:
            super().shutdown()

    def look(self, now: float, seconds: float | None) -> None:
        """Close the connection if the client is too slow. It may take `seconds`; None: no limit."""
        if self._stalled_since is not None:
            taken = self._written - self.transport.get_write_buffer_size()
            if taken != self._taken:
                self._taken, self._stalled_since = taken, now
            elif now - self._stalled_since > STALLED_SECONDS:
                self.drop()
                return
        if self._has_paused:
            # The client may have sent more, which the server has not read.
            self.since = now
        elif seconds is not None and now - self.since > seconds:
            if self._is_free():
                self.others.remove(self)
            self._end_with(TIMED_OUT if self.phase is not Phase.IDLE else b"")

    def _end_with(self, response: bytes) -> None:
        if not self._is_free():
            self._read_no_more()
            return
        self.transport.write(response)
        self.transport.close()

    def _read_no_more(self) -> None:
        """Close the connection after the answers to earlier requests. The client repeats other requests elsewhere."""
        self._is_refused = self._reads_no_more = True
        self.flow.pause_reading()
        self.phase = Phase.ANSWER
        if self._queue:
            self._queue[-1][1].keeps_alive = False
        elif self.responder is not None:
            self.responder.keeps_alive = False
        elif self._has_open_cycle() and not self.cycle.more_body:
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    def write(self, data: bytes) -> None:
        self._written += len(data)
        self.transport.write(data)

    @property
    def unread(self) -> int:
        return self.transport.get_write_buffer_size()

    def drop(self) -> None:
        self.others.remove(self)
        self.transport.abort()

    # One request. The parser calls these methods.

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._is_refused = False
        self.phase, self.since, self._unfinished = Phase.HEAD, self.loop.time(), 0

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            # `_parse` parses the request again.
            return
        if self._reads_no_more or self.transport.is_closing():
            # The request arrived together with one that ends the connection.
            self._is_refused = True
            return
        method = self.parser.get_method()
        path = self.url.partition(b"?")[0].decode("latin-1")
        if "%" in path:
            path = unquote(path)
        handler = self._handler
        if self._is_reserve and not (path == HEALTH if handler is None else handler.is_probe(path)):
            self._is_refused = True
            self._end_with(FULL)
            return
        # Without chunks, as in HTTP/1.0, a response cannot be a stream. OPTIONS is for CORS only.
        takes = handler is not None and method != b"OPTIONS" and handler.takes(path)
        self._is_direct = takes and self.parser.get_http_version() == "1.1"
        # Trailers follow the body, when the headers were already checked. They go into a list that is not read.
        self._head, self.headers = self.headers, []
        if self._proxy is not None:
            self._address = self._proxies.behind(self._proxy, self._head)
            # For requests that go through ASGI.
            self.client = (self._address, 0)
        self.phase, self._path, self._body, self._size = Phase.BODY, path, b"", 0
        self._keeps_alive = self.parser.should_keep_alive() and not self._is_reserve
        refused = self._refusal(method.decode("ascii"), path)
        if refused is not None:
            self._refuse(refused)
        elif not self._is_direct:
            self._start_application()
        elif self.expect_100_continue and self._is_free():
            self.transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        if self._is_refused:
            return
        before, self._size = self._size, self._size + len(body)
        refused = self._guard.too_large(self._size)
        if refused is None and self._is_direct and before <= UNCHECKED_BYTES < self._size:
            refused = self._taken_by().refusal(self._request(b""), self._held)
        if refused is not None and not self._is_direct and self.cycle.response_complete:
            # The application has answered before the end of the body.
            self.transport.close()
        elif refused is not None:
            self._refuse(refused)
        elif not self._is_direct:
            super().on_body(body)
        elif not self._body:
            self._body = body
        else:
            if isinstance(self._body, bytes):
                # A body may come in many small parts, and `bytes` would be copied for each of them.
                self._body = bytearray(self._body)
            self._body += body

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self.phase = Phase.ANSWER
        if self._is_refused:
            return
        if not self._is_direct:
            super().on_message_complete()
        else:
            request = self._request(bytes(self._body))
            responder = HttpResponder(
                self,
                keeps_alive=self._keeps_alive,
                has_body=request.method != "HEAD",
                added=self._cors.headers(request.headers),
                held=self._held,
            )
            self._body, self._held = b"", []
            if self._may_answer():
                self._handle(request, responder)
            else:
                self._queue.append((request, responder))
                if self._is_full():
                    self._has_paused = True
                    self.flow.pause_reading()

    def _request(self, body: bytes) -> HttpRequest:
        method = self.parser.get_method().decode("ascii")
        return HttpRequest(method, self._path, dict(self._head), body, self._address)

    def _taken_by(self) -> RequestHandler:
        assert self._handler is not None, "it has taken the request"
        return self._handler

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()
        self._wait_for_request()
        self._next()

    def _may_answer(self) -> bool:
        """Whether the next request may be answered now.

        It may not while an earlier response is open, while its own response has no room, or after `_MAX_AT_ONCE`
        requests in this turn of the loop, after which `go_on` continues.
        """
        if self._answered_at_once >= _MAX_AT_ONCE:
            return False
        return self.responder is None and self._stalled_since is None and not self._has_open_cycle()

    def _is_full(self) -> bool:
        return len(self._queue) >= _MAX_WAITING or (bool(self._queue) and len(self._queue[-1][0].body) > _LARGE)

    def _is_free(self) -> bool:
        """Whether bytes written now belong to the response to the request that is being read."""
        if self.responder is not None or self._queue or self.pipeline:
            return False
        # An application that has neither the whole body nor a begun response has not answered.
        return not self._has_open_cycle() or (self.cycle.more_body and not self.cycle.response_started)

    def _has_open_cycle(self) -> bool:
        # Before the first request there is no cycle, contrary to the base class's type.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _start_application(self) -> None:
        if self.responder is not None or self._queue:
            # Answers must keep the order of the requests, and an application would not wait for the handler.
            self._read_no_more()
            return
        url, expects = self.url, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(self._head)
        super().on_headers_complete()
        self.headers = []

    def _refusal(self, method: str, path: str) -> Refused | None:
        """Ask the guard about the request, unless the previous request on this connection had the same head."""
        # A deadline differs from request to request, and the guard looks only at its length.
        head = (method, path, [(name, len(value) if name == _DEADLINE else value) for name, value in self._head])
        if head == self._passed:
            return None
        refused = self._guard.refusal(method, path, self._head)
        if refused is None:
            self._passed = head
        return refused

    def _refuse(self, refused: Refused) -> None:
        self._is_refused, self._body = True, b""
        release(self._held)
        if not self._is_free():
            self._read_no_more()
            return
        if self._has_open_cycle():
            self.cycle.disconnected = True
        refuse(HttpResponder(self, keeps_alive=False, added=self._cors.headers(dict(self._head))), refused)

    def _handle(self, request: HttpRequest, responder: HttpResponder) -> None:
        self.responder = responder
        self._answered_at_once += 1
        if self._answered_at_once == _MAX_AT_ONCE:
            running_loop_work().add_slice(self.go_on)
        try:
            self._taken_by().handle(request, responder)
        except Exception as error:  # noqa: BLE001 - it may be in the middle of the end of another request
            text = exception_text(error)
            logger.error("direct_request_failed", method=request.method, path=request.path, error=text)
            responder.finish(500, JSON, b'{"error":{"message":"internal error"}}')

    def answered(self, *, keeps_alive: bool) -> None:
        self.responder = None
        self.server_state.total_requests += 1
        if not keeps_alive:
            self.transport.close()
            return
        self._wait_for_request()
        self._next()

    def _wait_for_request(self) -> None:
        if self.phase is Phase.ANSWER:
            self.phase, self.since = Phase.IDLE, self.loop.time()

    def go_on(self) -> None:
        self._answered_at_once = 0
        self._next()

    def _next(self) -> None:
        if self._is_answering:
            # An immediate response leads back here. Without this check, many in a row would recurse too deeply.
            return
        self._is_answering = True
        try:
            while not self.transport.is_closing():
                if self._queue and self._may_answer():
                    self.phase = Phase.ANSWER
                    self._handle(*self._queue.popleft())
                elif self._rest and not self._is_full() and self._answered_at_once < _MAX_AT_ONCE:
                    self._take(self._rest)
                else:
                    break
            if self._has_paused and not (self._rest or self._reads_no_more or self._is_full()):
                self._has_paused = False
                self.flow.resume_reading()
        finally:
            self._is_answering = False


class HttpResponder:
    """Writes one response to its connection; see `Responder`."""

    __slots__ = ("_connection", "_has_body", "added", "held", "is_over", "keeps_alive", "on_gone")

    def __init__(
        self,
        connection: HttpProtocol,
        *,
        keeps_alive: bool,
        has_body: bool = True,
        added: Headers = (),
        held: list[Callable[[], None]] | None = None,
    ) -> None:
        """`added` are headers besides the handler's. The functions in `held` are called at the end."""
        self._connection = connection
        self._has_body = has_body
        self.is_over = False
        self.on_gone = ignore
        self.keeps_alive = keeps_alive
        self.added = added
        self.held = held or []

    def finish(self, status: int, headers: Headers, body: bytes) -> None:
        if not self.is_over:
            head = self._head(status, headers)
            sent = body if self._has_body else b""
            if len(sent) < _LARGE:
                self._connection.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), sent))
            else:
                # Not joined, because that would copy the body.
                self._connection.write(b"%bcontent-length: %d\r\n\r\n" % (head, len(body)))
                self._connection.write(sent)
            self._end()

    def open_stream(self, headers: Headers) -> None:
        if not self.is_over:
            self._connection.write(self._head(200, headers) + b"transfer-encoding: chunked\r\n\r\n")

    def send(self, event: bytes) -> None:
        if event and not self.is_over:
            self._connection.write(b"%x\r\n%b\r\n" % (len(event), event))

    def end(self) -> None:
        if not self.is_over:
            self._connection.write(b"0\r\n\r\n")
            self._end()

    @property
    def unsent(self) -> int:
        return 0 if self.is_over else self._connection.unread

    def identify(self, client: Hashable, most: int | None) -> int | None:
        return self._connection.others.identify(self._connection, client, most)

    @property
    def unread(self) -> int:
        return self._connection.others.unread_of(self._connection.group)

    def lost(self) -> None:
        if not self.is_over:
            self.is_over = True
            release(self.held)
            self.on_gone()

    def _end(self) -> None:
        self.is_over = True
        # Break the reference cycle: `on_gone` refers to the request, which refers to this response.
        self.on_gone = ignore
        release(self.held)
        self._connection.answered(keeps_alive=self.keeps_alive)

    def _head(self, status: int, headers: Headers) -> bytes:
        lines = [_STATUS_LINES[status]]
        for name, value in (*self._connection.server_state.default_headers, *headers, *self.added):
            lines += (name, b": ", value, b"\r\n")
        if not self.keeps_alive:
            lines.append(b"connection: close\r\n")
        return b"".join(lines)


def http_protocol(options: HttpOptions, guard: Guard, handler: RequestHandler | None = None) -> type[asyncio.Protocol]:
    """A factory of connections for uvicorn, which only calls it."""
    made: Callable[..., HttpProtocol] = functools.partial(
        HttpProtocol,
        handler=handler,
        guard=guard,
        connections=Connections(options),
        cors=Cors(options.allow_origins),
        proxies=ClientAddress(options.trusted_proxies),
    )
    return cast("type[asyncio.Protocol]", made)
