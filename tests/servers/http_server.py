"""A scripted MCP server over HTTP, in this process: both eras, the transport of 2024-11-05, and every way to fail.

What it does with a message is a function of `Exchange`, by the name of the method (``GET`` and ``DELETE`` included);
what a test does not say is done properly.
"""

import contextlib
import json
import queue
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.waiting import PATIENCE

Json = dict[str, Any]

ENDLESS = 100 * 1024 * 1024
"""Bytes: more than any client should read."""

TOOLS = [
    {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}},
    {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]
LEGACY, MODERN = "2025-11-25", "2026-07-28"


@dataclass
class Seen:
    """One HTTP request. Header names are in lower case."""

    verb: str
    path: str
    headers: Mapping[str, str]
    body: Json

    @property
    def method(self) -> str:
        return str(self.body.get("method", self.verb))


class Exchange:
    """One request, and the ways to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, seen: Seen, server: "ScriptedServer") -> None:
        self._handler = handler
        self.seen = seen
        self.server = server

    @property
    def id(self) -> Any:
        return self.seen.body.get("id")

    @property
    def arguments(self) -> Json:
        return dict(self.seen.body["params"].get("arguments") or {})

    def answer(self, result: Json) -> Json:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def error(self, code: int, message: str, data: Any = None) -> Json:
        return {"jsonrpc": "2.0", "id": self.id, "error": {"code": code, "message": message, "data": data}}

    def json(self, message: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.body(json.dumps(message).encode(), "application/json", status, headers)

    def body(
        self, data: bytes, kind: str | None = None, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        handler = self._handler
        handler.send_response(status)
        if kind is not None:
            handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    def endless(
        self,
        status: int = 200,
        kind: str = "application/json",
        *,
        piece: bytes = b" " * 64 * 1024,
        pause: float = 0.0,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """A body of `piece` again and again, every `pause` seconds, until the client leaves or `ENDLESS` is written.

        Returns how many bytes of it were written.
        """
        written = 0
        self._handler.close_connection = True
        with contextlib.suppress(OSError):
            self.begin_stream(headers, status, kind)
            while written < ENDLESS and not self.server.stopping.wait(pause):
                self.chunk(piece)
                written += len(piece)
        return written

    def begin_stream(
        self, headers: Mapping[str, str] | None = None, status: int = 200, kind: str = "text/event-stream"
    ) -> None:
        handler = self._handler
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Transfer-Encoding", "chunked")
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()

    def event(self, message: Any = None, **fields: Any) -> None:
        """One event; `message` is its data."""
        lines = [f"{name}: {value}" for name, value in fields.items()]
        if message is not None:
            lines.append(f"data: {message if isinstance(message, str) else json.dumps(message)}")
        self.chunk("\n".join(lines).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self._handler.wfile.write(b"0\r\n\r\n")

    def stream(self, *messages: Any) -> None:
        """A whole stream with these messages."""
        self.begin_stream()
        for message in messages:
            self.event(message)
        self.end_stream()

    def drop(self) -> None:
        """Cut the connection."""
        self._handler.close_connection = True
        with contextlib.suppress(OSError):
            self._handler.connection.shutdown(socket.SHUT_RDWR)

    def has_client_left(self) -> bool:
        """Whether the client has closed its side by now."""
        connection = self._handler.connection
        try:
            return bool(select.select([connection], [], [], 0)[0]) and connection.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True

    def wait_for_client_to_leave(self) -> bool:
        """Whether the client closes its side before `PATIENCE` is over."""
        self._handler.connection.settimeout(PATIENCE)
        try:
            left = self._handler.connection.recv(1) == b""
        except TimeoutError:
            left = False
        except OSError:
            left = True
        self._handler.close_connection = True
        return left


Action = Callable[[Exchange], None]


@dataclass
class ScriptedServer:
    """Runs from `serving` to the end of its context. `on` may be changed at any time."""

    era: str = LEGACY
    """`LEGACY`, `MODERN`, or "2024-11-05" for the transport with two addresses."""
    answer_in_streams: bool = False
    sessions: bool = True
    changes: Json = field(default_factory=dict)
    """The capability `tools` of a stateless server."""
    tools: list[Json] = field(default_factory=lambda: [dict(tool) for tool in TOOLS])
    on: dict[str, Action] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    arrived: queue.SimpleQueue[Seen] = field(default_factory=queue.SimpleQueue)
    """Everything in `seen`, to be waited for."""
    open_sessions: set[str] = field(default_factory=set)
    outbox: queue.SimpleQueue[Json | None] = field(default_factory=queue.SimpleQueue)
    """What is written on the stream of a GET; None ends it."""
    url: str = ""
    _listener: "_Server" = field(init=False)
    _thread: threading.Thread = field(init=False)
    tls: ssl.SSLContext | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set at the end of `serving`."""
    stop_reading: threading.Event | None = None
    """Until it is set, nothing of the bodies of requests is read."""

    def methods(self) -> list[str]:
        """Of all requests so far, in order."""
        return [seen.method for seen in self.seen]

    def of(self, method: str) -> list[Seen]:
        """The requests of this method."""
        return [seen for seen in list(self.seen) if seen.method == method]

    def wait_for(self, method: str) -> Seen:
        """The next request of this method that nobody has waited for."""
        while True:
            seen = self.arrived.get(timeout=PATIENCE)
            if seen.method == method:
                return seen

    # What a proper server does.

    def handle(self, exchange: Exchange) -> None:
        method = exchange.seen.method
        if method in self.on:
            self.on[method](exchange)
        elif exchange.seen.verb == "GET":
            self._listen(exchange)
        elif exchange.seen.verb == "DELETE":
            self.open_sessions.discard(exchange.seen.headers.get("mcp-session-id", ""))
            exchange.body(b"")
        elif not self._knows_session(exchange):
            exchange.json(exchange.error(-32600, "Session not found") | {"id": "server-error"}, status=404)
        elif exchange.id is None or "method" not in exchange.seen.body:
            exchange.body(b"", status=202)
        else:
            self._answer(exchange)

    def respond(self, exchange: Exchange, message: Json, headers: Mapping[str, str] | None = None) -> None:
        if self.era == "2024-11-05":
            self.outbox.put(message)
            exchange.body(b"Accepted", status=202)
        elif self.answer_in_streams:
            exchange.begin_stream(headers)
            exchange.event(message)
            exchange.end_stream()
        else:
            exchange.json(message, headers=headers)

    def _knows_session(self, exchange: Exchange) -> bool:
        if not self.sessions or self.era != LEGACY or exchange.seen.method == "initialize":
            return True
        session = exchange.seen.headers.get("mcp-session-id")
        return session is None or session in self.open_sessions

    def _answer(self, exchange: Exchange) -> None:
        headers: Json = {}
        match self.era, exchange.seen.method:
            case "2026-07-28", "server/discover":
                result: Json = {"supportedVersions": [MODERN], "capabilities": {"tools": self.changes}}
            case "2026-07-28", "initialize":
                exchange.json(exchange.error(-32022, "unsupported", {"supported": [MODERN]}), status=400)
                return
            case (("2025-11-25" | "2024-11-05"), "initialize"):
                result = {"protocolVersion": self.era, "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
                if self.sessions and self.era == LEGACY:
                    session = f"session-{len(self.of('initialize'))}"
                    self.open_sessions.add(session)
                    headers["Mcp-Session-Id"] = session
            case _, "tools/list":
                result = {"tools": self.tools}
            case _, "tools/call":
                result = {"content": [{"type": "text", "text": str(exchange.arguments.get("text"))}]}
            case (("2025-11-25" | "2024-11-05"), "ping"):
                result = {}
            case _:
                refused = exchange.error(-32601, "no such method")
                if self.era == "2024-11-05":
                    self.respond(exchange, refused)
                else:
                    exchange.json(refused, status=404 if self.era == MODERN else 400)
                return
        self.respond(exchange, exchange.answer(result), headers)

    def _listen(self, exchange: Exchange) -> None:
        if self.era == MODERN:
            exchange.body(b"", status=405)
            return
        exchange.begin_stream()
        if self.era == "2024-11-05":
            exchange.event("/messages?id=1", event="endpoint")
        while (message := self.outbox.get()) is not None:
            exchange.event(message)
        exchange.end_stream()

    # Running.

    @contextlib.contextmanager
    def serving(self, port: int = 0) -> Iterator["ScriptedServer"]:
        handler = type("Handler", (_Handler,), {"scripted": self})
        with _Server(("127.0.0.1", port), handler) as server:
            self.url = f"http{'' if self.tls is None else 's'}://127.0.0.1:{server.server_port}/mcp"
            server.tls = self.tls
            self._listener = server
            self._accept()
            try:
                yield self
            finally:
                self.stopping.set()
                self._stop_accepting()
                # Streams that wait for something to say.
                for _ in range(20):
                    self.outbox.put(None)
                # First of all nobody gets in any more: who is cut off may come back at once.
                server.server_close()
                server.cut_all()
        while not self.outbox.empty():
            self.outbox.get()

    @contextlib.contextmanager
    def refusing_connections(self) -> Iterator[None]:
        """In this context no connection can be made. Those that there are go on."""
        address = self._listener.server_address
        self._stop_accepting()
        self._listener.socket.close()
        try:
            yield
        finally:
            self._listener.socket = socket.socket()
            self._listener.allow_reuse_address = True
            self._listener.server_address = address
            self._listener.server_bind()
            self._listener.server_activate()
            self._accept()

    def _accept(self) -> None:
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.01,), name="scripted-http")
        self._thread.start()

    def _stop_accepting(self) -> None:
        self._listener.shutdown()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 100
    tls: ssl.SSLContext | None = None

    def __init__(self, *arguments: Any) -> None:
        self._handling: dict[threading.Thread, socket.socket] = {}
        super().__init__(*arguments)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        if self.tls is not None:
            try:
                request = self.tls.wrap_socket(request, server_side=True)
            except OSError:
                # A client that does not like the certificate.
                return
        self._handling[threading.current_thread()] = request
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._handling[threading.current_thread()]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what many tests are about."""

    def cut_all(self) -> None:
        handling = list(self._handling.items())
        for _, connection in handling:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread, _ in handling:
            thread.join(PATIENCE)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    scripted: ScriptedServer

    def log_message(self, *_arguments: Any) -> None:
        """Tests are quiet."""

    def _handle(self) -> None:
        if self.scripted.stop_reading is not None:
            self.scripted.stop_reading.wait(PATIENCE)
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        body = json.loads(content) if "json" in self.headers.get("Content-Type", "") else {}
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, self.path, headers, body)
        self.scripted.seen.append(seen)
        self.scripted.arrived.put(seen)
        self.scripted.handle(Exchange(self, seen, self.scripted))

    do_POST = do_GET = do_DELETE = _handle  # noqa: N815 - the names that the base class looks for
