"""The ways to a server: one `FakeServer`, which is reached in memory, through a process, or over HTTP.

So a test scripts and watches the same server whatever lies between it and the client.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gaia.mcp.errors import StartFailed
from gaia.mcp.rpc.channel import ChannelListener, Frame
from gaia.mcp.transports.base import InProcessServer, MCPTransport
from gaia.testing import FakeServer
from tests.contract import relay
from tests.servers.http_server import Exchange, ScriptedServer
from tests.servers.processes import program
from tests.waiting import PATIENCE

Json = dict[str, Any]
Entry = Mapping[str, Any]

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
ERAS = {"handshake": HANDSHAKE, "stateless": STATELESS}

_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class _Connection(ChannelListener):
    """One start of the fake server, for a client that is reached by bytes."""

    def __init__(self, server: FakeServer, write: Callable[[bytes], None], end: Callable[[], None]) -> None:
        self._write, self._end = write, end
        # The server knows its transports weakly.
        self._transport = server.transport(PATIENCE)
        self._channel = self._transport.open(self, "contract")

    def receive(self, line: bytes) -> None:
        """The client sends a message."""
        self._channel.send(Frame(line))

    def close(self) -> None:
        self._channel.close(0)

    # What the server does.

    def message_received(self, line: Any, call_id: int | None = None) -> None:
        self._write(line)

    def request_failed(self, call_id: int, error: Exception) -> None:
        raise AssertionError("a fake server fails as a whole")

    def channel_ended(self) -> None:
        self._end()

    def awaits_answers(self) -> bool:
        return True


# In memory ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def in_memory(server: FakeServer) -> Iterator[Entry]:
    yield server


@contextlib.contextmanager
def replicated(server: FakeServer) -> Iterator[Entry]:
    yield {**server, "replicas": 2, "stateless": True}


class FourMethods(MCPTransport):
    """A transport as an application writes it: a client can connect, send a request and disconnect, and no more."""

    def __init__(self, server: FakeServer, timeout: float) -> None:
        self._inner = server.transport(timeout)

    def connect(self) -> bool:
        return self._inner.connect()

    def disconnect(self) -> None:
        self._inner.disconnect()

    def send_request(self, method: str, params: Json | None = None) -> Json:
        return self._inner.send_request(method, params)

    def is_connected(self) -> bool:
        return self._inner.is_connected()


class _Direct(InProcessServer):
    def __init__(self, server: FakeServer) -> None:
        self._server = server

    def transport(self, timeout: float) -> Any:
        return FourMethods(self._server, timeout)


@contextlib.contextmanager
def direct(server: FakeServer) -> Iterator[Entry]:
    yield _Direct(server)


# A process ------------------------------------------------------------------------------------------------------------


def process_of(listener: socket.socket) -> Entry:
    """A server that connects to the listener, and leaves everything to what is there."""
    return {"command": sys.executable, "args": ["-I", "-S", program(relay), str(listener.getsockname()[1])]}


@contextlib.contextmanager
def over_stdio(server: FakeServer) -> Iterator[Entry]:
    threads: list[threading.Thread] = []

    def serve(client: socket.socket) -> None:
        def end() -> None:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

        def write(line: bytes) -> None:
            with contextlib.suppress(OSError):
                client.sendall(line + b"\n")

        # A start that is to fail is a process that ends at once.
        with client, client.makefile("rb") as lines, contextlib.suppress(OSError, StartFailed):
            connection = _Connection(server, write, end)
            try:
                for line in lines:
                    connection.receive(line)
            finally:
                connection.close()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(client,), name="contract-connection"))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, name="contract-accept")
        accepting.start()
        try:
            yield process_of(listener)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join(PATIENCE)
            for thread in threads:
                thread.join(PATIENCE)


@contextlib.contextmanager
def placed(server: FakeServer) -> Iterator[Entry]:
    """A process that another process of this machine has started, the host: a gateway with one server."""
    with over_stdio(server) as entry:
        yield {**entry, "placement": {"engine": "process"}}


# HTTP -----------------------------------------------------------------------------------------------------------------


class _Session:
    """One start of the fake server, and the streams on which its messages go to the client."""

    def __init__(self, server: FakeServer) -> None:
        self._lock = threading.Lock()
        """Owns the three below."""
        self._streams: dict[Any, queue.SimpleQueue[Json | None]] = {}
        """Of the requests that are not answered yet, by their ids; None is the end."""
        self._tokens: dict[Any, Any] = {}
        """The ids of requests by their progress tokens."""
        self.has_ended = False
        self.listening: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        """What belongs to no request."""
        self.connection = _Connection(server, self._send, self._end)

    def begin(self, message: Json) -> queue.SimpleQueue[Json | None]:
        stream: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        token = message.get("params", {}).get("_meta", {}).get("progressToken")
        with self._lock:
            self._streams[message["id"]] = stream
            self._tokens[token] = message["id"]
            if self.has_ended:
                stream.put(None)
        return stream

    def _send(self, line: bytes) -> None:
        message = json.loads(line)
        params = message.get("params") or {}
        with self._lock:
            if "method" not in message:
                stream = self._streams.pop(message["id"], None)
            else:
                subscription = params.get("_meta", {}).get(_SUBSCRIPTION)
                request = (
                    subscription if subscription is not None else self._tokens.get(params.get("progressToken", ""))
                )
                stream = self._streams.get(request)
        (stream or self.listening).put(message)

    def _end(self) -> None:
        with self._lock:
            self.has_ended = True
            streams = list(self._streams.values())
        for stream in [*streams, self.listening]:
            stream.put(None)


class HttpFront(ScriptedServer):
    """The fake server behind a URL."""

    def __init__(self, server: FakeServer, era: str, *, streams: bool) -> None:
        """With `streams` each answer is a stream of events, otherwise only those that need to be."""
        super().__init__(era=era, answer_in_streams=streams)
        self._server = server
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._all: list[_Session] = []

    def handle(self, exchange: Exchange) -> None:
        name = exchange.seen.headers.get("mcp-session-id", "")
        headers: dict[str, str] = {}
        if exchange.seen.method == "initialize" and self.era == HANDSHAKE:
            name = headers["Mcp-Session-Id"] = f"session-{len(self.seen)}"
        with self._lock:
            session = self._sessions.get(name)
            if (session is None or session.has_ended) and (headers or self.era == STATELESS):
                session = self._sessions[name] = _Session(self._server)
                self._all.append(session)
        if exchange.seen.verb == "GET" and self.era == STATELESS:
            exchange.body(b"", status=405)
        elif session is None or session.has_ended:
            exchange.json(exchange.error(-32600, "Session not found") | {"id": "server-error"}, status=404)
        elif exchange.seen.verb == "DELETE":
            exchange.body(b"")
            session.connection.close()
        elif exchange.seen.verb == "GET":
            exchange.begin_stream()
            self._pass_on(exchange, session.listening)
        else:
            self._post(exchange, session, headers)

    def _post(self, exchange: Exchange, session: _Session, headers: dict[str, str]) -> None:
        message = exchange.seen.body
        line = json.dumps(message).encode()
        if "id" not in message or "method" not in message:
            session.connection.receive(line)
            exchange.body(b"", status=202)
            return
        stream = session.begin(message)
        session.connection.receive(line)
        params = message.get("params", {})
        needs_stream = "progressToken" in params.get("_meta", {}) or message["method"] == "subscriptions/listen"
        if self.answer_in_streams or needs_stream:
            exchange.begin_stream(headers)
            self._pass_on(exchange, stream, session)
        elif (answer := self._next(exchange, stream, session)) is not None:
            is_refused = "error" in answer and self.era == STATELESS
            exchange.json(answer, status=400 if is_refused else 200, headers=headers)

    def _pass_on(
        self, exchange: Exchange, stream: queue.SimpleQueue[Json | None], session: _Session | None = None
    ) -> None:
        """Send messages as events up to the answer of a request, or to the end."""
        with contextlib.suppress(OSError):
            while (message := self._next(exchange, stream, session)) is not None:
                exchange.event(message)
                if session is not None and "method" not in message:
                    exchange.end_stream()
                    return

    def _next(
        self, exchange: Exchange, stream: queue.SimpleQueue[Json | None], session: _Session | None
    ) -> Json | None:
        """The next message of a stream; None if the connection is over, which it is then for the client, too."""
        message = None
        while not self.stopping.is_set():
            with contextlib.suppress(queue.Empty):
                message = stream.get(timeout=0.02)
                break
            if exchange.has_client_left():
                if session is not None and self.era == STATELESS:
                    cancel = {"method": "notifications/cancelled", "params": {"requestId": exchange.id}}
                    session.connection.receive(json.dumps(cancel).encode())
                break
        if message is None:
            exchange.drop()
        return message

    def close_sessions(self) -> None:
        for session in self._all:
            session.connection.close()


@contextlib.contextmanager
def over_http(server: FakeServer, revision: str, *, streams: bool) -> Iterator[Entry]:
    front = HttpFront(server, revision, streams=streams)
    with front.serving():
        yield {"url": front.url}
    front.close_sessions()
