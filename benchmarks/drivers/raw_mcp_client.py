"""A client of MCP servers over HTTP that costs next to nothing: ready-made requests, answers that are hardly parsed.

Of an answer it looks at the length, the request's id, the text that was echoed and, in the stateless era, whether there
is a ``resultType``. It is the same for all gateways and for the floor, so what differs is theirs.
"""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Any

_HANDSHAKE, _STATELESS = "2025-11-25", "2026-07-28"
_READ_BYTES = 256 * 1024
_TIMEOUT = 20.0
_FIRST_ID = 100_000_000
"""All ids have as many digits, so all requests of a session have the same length."""

_INFO = {"name": "raw client", "version": "1"}
_META = {
    "io.modelcontextprotocol/protocolVersion": _STATELESS,
    "io.modelcontextprotocol/clientInfo": _INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Failed(Exception):
    """A request was refused, or its answer is not the right one."""


class RawClient:
    """Where sessions go, and in which era."""

    def __init__(self, port: int, path: str = "/mcp", *, stateless: bool = False, token: str | None = None) -> None:
        """`token` is what the client shows, where clients have to."""
        self.address = ("127.0.0.1", port)
        self.path = path
        self.token = token
        self.is_stateless = stateless
        self.marks_results = stateless
        """Whether each result has to have a `resultType`."""
        self.tool = "echo"
        """Its name at this endpoint."""

    def open(self) -> RawSession:
        """A session that may call the tool; in the stateless era a connection. Raises Failed and OSError."""
        session = RawSession(self)
        try:
            session.greet()
        except BaseException:
            session.close()
            raise
        return session

    def crowd(self, sessions: list[RawSession], text: str, seconds: float) -> dict[str, Any]:
        """Each session has one call under way, and makes the next one at the answer."""
        calls = 0
        for session in sessions:
            session.prepare(text)
            # So that no connection is one that the gateway is about to close.
            session.call()
        poll = select.epoll()
        by_descriptor = {session.descriptor: session for session in sessions}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        started = now = time.perf_counter()
        for session in sessions:
            session.send()
        under_way = len(sessions)
        while under_way:
            ready = poll.poll(_TIMEOUT)
            if not ready:
                raise Failed(f"no answer within {_TIMEOUT:g} s")
            now = time.perf_counter()
            for descriptor, _ in ready:
                session = by_descriptor[descriptor]
                if session.receive():
                    session.check()
                    calls += 1
                    if now < started + seconds:
                        session.send()
                    else:
                        under_way -= 1
        poll.close()
        return {"calls": calls, "seconds": now - started}


class RawSession:
    """One session on one connection, with one request at a time."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._socket = self._connected()
        self._id: str | None = None
        self._number = _FIRST_ID
        self._received = bytearray()
        self._wanted: int | None = None
        """Bytes of the response as a whole; -1 if its chunks say when it is over, None if its head is not there yet."""
        self._head_size = 0

    @property
    def descriptor(self) -> int:
        return self._socket.fileno()

    def greet(self) -> None:
        """Shake hands where that is done, and find the tool. Raises Failed."""
        client = self._client
        if not client.is_stateless:
            hello = {"protocolVersion": _HANDSHAKE, "capabilities": {}, "clientInfo": _INFO}
            self._result("initialize", hello)
            head = bytes(self._received[: self._head_size]).decode("latin-1")
            ids = [line.partition(":")[2].strip() for line in head.split("\r\n") if _is_session(line)]
            self._id = ids[0] if ids else None
            self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, "notifications/initialized")
        tools = [tool["name"] for tool in self._result("tools/list", {})["tools"]]
        try:
            client.tool = next(tool for tool in tools if tool.endswith("echo"))
        except StopIteration:
            raise Failed(f"there is no echo among the tools {tools}") from None

    def close(self) -> None:
        self._socket.close()

    def prepare(self, text: str) -> None:
        """Make the request with this text, which `send` repeats under further ids.

        Servers close connections on which nothing has come for a while, so there may have to be another one.
        """
        if self._is_closed():
            self.reconnect()
        params: dict[str, Any] = {"name": self._client.tool, "arguments": {"text": text}}
        message = {"jsonrpc": "2.0", "id": _FIRST_ID, "method": "tools/call", "params": self._with_meta(params)}
        request = self._request(message, "tools/call", self._client.tool)
        self._before, _, self._after = request.partition(str(_FIRST_ID).encode())
        self._text = text.encode()

    def send(self) -> None:
        self._number += 1
        self._wanted = None
        self._received.clear()
        self._digits = b"%d" % self._number
        self._socket.sendall(b"".join((self._before, self._digits, self._after)))

    def receive(self) -> bool:
        """Take what is there, at least one byte; whether the response is there as a whole."""
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise Failed("the connection was closed in the middle of a response")
        received = self._received
        received += data
        if self._wanted is None:
            self._wanted = self._length()
            if self._wanted is None:
                return False
        return len(received) >= self._wanted if self._wanted >= 0 else received.endswith(b"0\r\n\r\n")

    def check(self) -> None:
        """Raises Failed if the response is not the right one."""
        received = self._received
        if self._digits not in received or self._text not in received or b'isError":true' in received:
            raise Failed(f"not the echo: {bytes(received)[:600]!r}")
        if self._client.marks_results and b"resultType" not in received:
            raise Failed("the answer has no resultType")

    def call(self) -> None:
        """Raises Failed."""
        self.send()
        try:
            self._receive_all()
        except (Failed, ConnectionError):
            if self._received:
                raise
            # The gateway has closed the connection while the request was on its way, because it was idle.
            self.reconnect()
            self.send()
            self._receive_all()
        self.check()

    def outcome(self) -> dict[str, Any]:
        """The message of the response that is there: a result or an error."""
        content = bytes(self._received[self._head_size :])
        start, end = content.find(b"{"), content.rfind(b"}")
        if start < 0:
            raise Failed(f"no message: {bytes(self._received)[:300]!r}")
        message: dict[str, Any] = json.loads(content[start : end + 1])
        return message

    def reconnect(self) -> None:
        """Another connection for the same session."""
        self._socket.close()
        self._socket = self._connected()

    def _is_closed(self) -> bool:
        # Nothing is to be read between two responses but the end.
        return bool(select.select([self._socket], [], [], 0)[0])

    def _connected(self) -> socket.socket:
        connection = socket.create_connection(self._client.address, timeout=_TIMEOUT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _length(self) -> int | None:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        self._head_size = end + 4
        head = self._received[:end].lower()
        at = head.find(b"content-length:")
        if at < 0:
            return -1 if b"chunked" in head else self._head_size
        return self._head_size + int(head[at + 15 :].partition(b"\r")[0])

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": self._with_meta(params)}
        self._post(message, method)
        outcome = self.outcome()
        if "result" not in outcome:
            raise Failed(f"{method}: {str(outcome.get('error', outcome))[:300]}")
        result: dict[str, Any] = outcome["result"]
        return result

    def _post(self, message: dict[str, Any], method: str) -> None:
        self._wanted = None
        self._received.clear()
        self._socket.sendall(self._request(message, method))
        self._receive_all()

    def _receive_all(self) -> None:
        while not self.receive():
            pass

    def _with_meta(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, "_meta": _META} if self._client.is_stateless else params

    def _request(self, message: dict[str, Any], method: str, name: str = "") -> bytes:
        body = json.dumps(message, separators=(",", ":")).encode()
        lines = [
            f"POST {self._client.path} HTTP/1.1",
            "Host: {}:{}".format(*self._client.address),
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
        ]
        if self._client.token is not None:
            lines += [f"Authorization: Bearer {self._client.token}"]
        if self._client.is_stateless:
            lines += [f"MCP-Protocol-Version: {_STATELESS}", f"Mcp-Method: {method}"]
            lines += [f"Mcp-Name: {name}"] if name else []
        elif method != "initialize":
            lines += [f"MCP-Protocol-Version: {_HANDSHAKE}"]
            lines += [f"Mcp-Session-Id: {self._id}"] if self._id is not None else []
        return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def _is_session(line: str) -> bool:
    return line.lower().startswith("mcp-session-id:")
