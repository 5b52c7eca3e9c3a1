"""`FakeHttp`: a fake server behind a URL of this machine, for faults on the way to a server."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, TypeAlias

from gaia.mcp.protocol.eras import STATELESS_REVISIONS, SUBSCRIPTION_ID
from gaia.mcp.rpc.channel import Ending
from gaia.runtime.clock import require_seconds
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.threads import DaemonPool
from gaia.testing.fake_session import FakeSession
from gaia.testing.fake_state import FakeServerState
from gaia.testing.fake_tool import Json

_THREADS = 32
_JOIN_SECONDS = 2.0
_SESSION = "Mcp-Session-Id"

_Act: TypeAlias = Callable[["_Handler"], bool]
"""What a fault does with a request; True if that was the answer."""


@dataclass
class _Planned:
    act: _Act
    method: str
    tool: str | None
    before: int
    times: int


class FakeHttp:
    """A `FakeServer` behind a URL, which `FakeServer.over_http` makes. A context manager; thread-safe.

    ``with server.over_http() as endpoint, MCPClientManager({"time": {"url": endpoint.url}}) as manager: …``

    The methods for faults have the keywords of those of `FakeServer`, and `method`: the fault happens at the `nth`
    request of this method from now on (default 1) and at the following ones, `times` in all. The faults of the server
    itself work too; with `crash` its sessions end, and the connections break.
    """

    def __init__(self, state: FakeServerState) -> None:
        self._state = state
        self._lock = reentrant_lock()
        """Guards the attributes below."""
        self._planned: list[_Planned] = []
        self._sessions: dict[str, _HttpSession] = {}
        self._generation = 0
        self._stopping = threading.Event()
        self._listener = _Listener(("127.0.0.1", 0), type("Handler", (_Handler,), {"endpoint": self}))
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.01,), name=f"mcp-{state.name}-fake-http", daemon=True
        )

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self._listener.server_port}/mcp"

    def __enter__(self) -> FakeHttp:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()
        for session in self._take_sessions():
            session.close()
        self._listener.cut_all()

    # Faults.

    def status(self, status: int, *, headers: Mapping[str, str] | None = None, body: str = "", **when: Any) -> None:
        """Answer with an HTTP status such as 503, and the server is not asked."""
        self._plan(lambda handler: handler.answer(status, body.encode(), "text/plain", headers), **when)

    def redirect(self, location: str, *, status: int = 307, **when: Any) -> None:
        """Answer with a redirect, and the server is not asked."""
        self.status(status, headers={"Location": location}, **when)

    def slow_head(self, seconds: float, **when: Any) -> None:
        """Let `seconds` of the real time pass before the head of the answer."""
        require_seconds("seconds", seconds)
        self._plan(lambda _: self._stopping.wait(seconds) and False, **when)

    def drop(self, **when: Any) -> None:
        """Break the connection when the request has come, and the server is not asked."""
        self._plan(lambda handler: handler.drop(), **when)

    def break_stream(self, **when: Any) -> None:
        """Break the connection within the answer: the server has answered, and half of that comes."""

        def break_answer(handler: _Handler) -> bool:
            handler.breaks = True
            return False

        self._plan(break_answer, **when)

    def clear_faults(self) -> None:
        """Forget all pending faults of this endpoint."""
        with self._lock:
            self._planned.clear()

    def _plan(
        self, act: _Act, *, method: str = "tools/call", tool: str | None = None, nth: int = 1, times: int = 1
    ) -> None:
        if nth < 1 or times < 1:
            raise ValueError(f"nth, times: must be 1 or more, got {nth!r}, {times!r}")
        with self._lock:
            self._planned.append(_Planned(act, method, tool, nth - 1, times))

    # For the handler.

    def _due(self, message: Json) -> list[_Act]:
        tool = (message.get("params") or {}).get("name")
        due = []
        with self._lock:
            for planned in self._planned:
                if planned.method == message.get("method") and planned.tool in (None, tool):
                    if planned.before:
                        planned.before -= 1
                    else:
                        planned.times -= 1
                        due.append(planned.act)
            self._planned = [planned for planned in self._planned if planned.times]
        return due

    def _session(self, identity: str | None, message: Json) -> _HttpSession | None:
        """The session of a request; None if it has ended or never began."""
        with self._lock:
            if self._state.revision in STATELESS_REVISIONS:
                identity = ""
            elif message.get("method") == "initialize":
                identity = uuid.uuid4().hex
            elif identity is None or identity not in self._sessions:
                return None
            if identity not in self._sessions:
                self._generation += 1
                self._sessions[identity] = _HttpSession(self._state, self._generation, identity, self._crashed)
            return self._sessions[identity]

    def _end_session(self, identity: str | None) -> None:
        with self._lock:
            session = self._sessions.pop(identity or "", None)
        if session is not None:
            session.close()

    def _crashed(self, _: Ending) -> None:
        sessions = self._take_sessions()
        # Before the streams end: what the client asks after that belongs to the next session.
        self._listener.cut_all(wait=False)
        for session in sessions:
            session.end_streams()
            # This is a thread of a session, which ends with it.
            threading.Thread(target=session.close, daemon=True).start()

    def _take_sessions(self) -> list[_HttpSession]:
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        return sessions


class _HttpSession:
    """One session, and the streams on which its answers are awaited. Thread-safe."""

    def __init__(self, state: FakeServerState, generation: int, identity: str, end: Callable[[Ending], None]) -> None:
        self.identity = identity
        self._threads = DaemonPool(f"mcp-{state.name}-fake", _THREADS)
        self._fake = FakeSession(state, generation, self._threads, self._write, end)
        self._lock = reentrant_lock()
        self._streams: dict[Any, queue.SimpleQueue[bytes | None]] = {}
        """By id of the request, its messages; None is the end without an answer."""
        self._tokens: dict[Any, Any] = {}
        """By progress token, the id of its request."""

    def tell(self, message: Json) -> None:
        """Take a message that has no answer."""
        if message.get("method") == "notifications/cancelled":
            self._end_stream((message.get("params") or {}).get("requestId"))
        self._fake.received(message)

    def ask(self, message: Json) -> queue.SimpleQueue[bytes | None]:
        """Take a request. Its messages come in the queue; the last one is the answer, or None."""
        stream: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        meta = (message.get("params") or {}).get("_meta") or {}
        with self._lock:
            self._streams[message["id"]] = stream
            self._tokens[meta.get("progressToken")] = message["id"]
        self._fake.received(message)
        return stream

    def close(self) -> None:
        self._fake.close()
        self.end_streams()
        self._threads.close(_JOIN_SECONDS)

    def end_streams(self) -> None:
        with self._lock:
            identities = list(self._streams)
        for identity in identities:
            self._end_stream(identity)

    def _end_stream(self, identity: Any) -> None:
        with self._lock:
            stream = self._streams.pop(identity, None)
        if stream is not None:
            stream.put(None)

    def _write(self, line: bytes) -> None:
        message = json.loads(line)
        params = message.get("params") or {}
        with self._lock:
            if "method" not in message:
                stream = self._streams.pop(message.get("id"), None)
            else:
                identity = (params.get("_meta") or {}).get(SUBSCRIPTION_ID)
                identity = self._tokens.get(params.get("progressToken")) if identity is None else identity
                # A question or a log message belongs to a request under way; without one nobody listens.
                stream = self._streams.get(identity) or next(reversed(self._streams.values()), None)
        if stream is not None:
            stream.put(line)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any) -> None:
        self._handling: dict[threading.Thread, socket.socket] = {}
        super().__init__(*arguments)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self._handling[threading.current_thread()] = request
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._handling[threading.current_thread()]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients and faults break connections; that is no error here."""

    def cut_all(self, *, wait: bool = True) -> None:
        handling = list(self._handling.items())
        for _, connection in handling:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread, _ in handling if wait else ():
            thread.join(_JOIN_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    endpoint: FakeHttp
    breaks = False
    """Whether the connection breaks within the answer."""

    def log_message(self, *_arguments: Any) -> None:
        """Tests are quiet."""

    def do_GET(self) -> None:
        self.answer(405)

    def do_DELETE(self) -> None:
        self.endpoint._end_session(self.headers.get(_SESSION))
        self.answer(200)

    def do_POST(self) -> None:
        message: Json = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        self.breaks = False
        for act in self.endpoint._due(message):
            if act(self):
                return
        session = self.endpoint._session(self.headers.get(_SESSION), message)
        if session is None:
            self.answer(404)
        elif "method" in message and "id" in message:
            self._respond(session, session.ask(message))
        else:
            session.tell(message)
            self.answer(202)

    def answer(
        self, status: int, body: bytes = b"", kind: str | None = None, headers: Mapping[str, str] | None = None
    ) -> bool:
        self._head(status, kind, {"Content-Length": str(len(body)), **(headers or {})})
        self.wfile.write(body[: len(body) // 2] if self.breaks else body)
        return self.drop() if self.breaks else True

    def drop(self) -> bool:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        return True

    def _head(self, status: int, kind: str | None, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**({} if kind is None else {"Content-Type": kind}), **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _respond(self, session: _HttpSession, stream: queue.SimpleQueue[bytes | None]) -> None:
        headers = {_SESSION: session.identity} if session.identity else {}
        line = stream.get()
        if line is None:
            self.drop()
        elif b'"method"' not in line or "method" not in json.loads(line):
            self.answer(200, line, "application/json", headers)
        else:
            self._stream(line, stream, headers)

    def _stream(self, line: bytes | None, stream: queue.SimpleQueue[bytes | None], headers: Mapping[str, str]) -> None:
        """Answer with a stream of events, the last of which is the answer."""
        self._head(200, "text/event-stream", {"Transfer-Encoding": "chunked", **headers})
        while line is not None:
            event = b"data: " + line.strip() + b"\n\n"
            is_last = "method" not in json.loads(line)
            if is_last and self.breaks:
                break
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            if is_last:
                self.wfile.write(b"0\r\n\r\n")
                return
            line = stream.get()
        self.drop()
