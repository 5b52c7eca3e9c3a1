"""The floor over HTTP: a socket to which a ready-made request is written, and from which the answer is read.

All answers to the same request are the same, so one is there when as many bytes are: nothing is parsed. With ``--json``
each request is encoded and the body of each answer decoded.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from driving import drive

_READ_BYTES = 64 * 1024
_LARGE_BYTES = 1024 * 1024
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class RawSocket:
    def load(self) -> None:
        import socket

        self._connect, self._option = socket.create_connection, (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connect(self, argv: list[str], servers: int) -> None:
        host, _, port = argv[0].removeprefix("http://").partition("/")[0].partition(":")
        self._address, self._host = (host, int(port)), f"{host}:{port}"
        self._sockets = [self._opened()]
        self._length = 0

    def disconnect(self) -> None:
        for socket in self._sockets:
            socket.close()

    def request(self, text: str) -> Any:
        return self._prepared(text)

    def call(self, server: int, request: bytes) -> bytes:
        return self._exchange(request)

    def is_echo(self, request: bytes, answer: bytes) -> bool:
        return answer == self._expected

    def crowd(self, callers: int, servers: int, seconds: float) -> dict[str, Any]:
        """Write a request on as many connections as there are callers, read as many answers, and so on."""
        while len(self._sockets) < callers:
            self._sockets.append(self._opened())
        request = self._prepared("x" * 64)
        calls = 0
        started = now = time.perf_counter()
        while now < started + seconds:
            for socket in self._sockets[:callers]:
                socket.sendall(request)
            for socket in self._sockets[:callers]:
                left = self._length
                while left:
                    left -= len(socket.recv(_READ_BYTES))
            calls += callers
            now = time.perf_counter()
        return {"calls": calls, "seconds": now - started}

    def _prepared(self, text: str) -> bytes:
        """A request as bytes; from now on answers have the size of the one to it."""
        request = self._post(_body({"name": "echo", "arguments": {"text": text}}))
        self._expected = self._first_answer(request)
        assert json.loads(_content(self._expected))["result"]["content"][0]["text"] == text
        self._length = len(self._expected)
        return request

    def _opened(self) -> Any:
        socket = self._connect(self._address)
        socket.setsockopt(*self._option)
        return socket

    def _post(self, body: bytes) -> bytes:
        return (
            f"POST /mcp HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def _exchange(self, request: bytes) -> bytes:
        socket, length = self._sockets[0], self._length
        socket.sendall(request)
        answer = socket.recv(_READ_BYTES)
        if len(answer) == length:
            return answer
        chunks, left = [answer], length - len(answer)
        while left:
            chunks.append(socket.recv(_LARGE_BYTES))
            left -= len(chunks[-1])
        return b"".join(chunks)

    def _first_answer(self, request: bytes) -> bytes:
        """The answer to a request of which the size of the answer is not known."""
        self._sockets[0].sendall(request)
        answer = b""
        while not _is_whole(answer):
            received = self._sockets[0].recv(_LARGE_BYTES)
            assert received, "the server has closed the connection"
            answer += received
        return answer


class JsonSocket(RawSocket):
    """The same with requests that are encoded and answers that are decoded."""

    def load(self) -> None:
        super().load()
        import msgspec

        self._encode, self._decode = msgspec.json.encode, msgspec.json.decode

    def request(self, text: str) -> Any:
        self._prepared(text)
        return {"name": "echo", "arguments": {"text": text}}

    def call(self, server: int, request: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": request}
        return self._decode(_content(self._exchange(self._post(self._encode(message)))))

    def is_echo(self, request: Any, answer: Any) -> bool:
        return answer["result"]["content"][0]["text"] == request["arguments"]["text"]


def _body(params: dict[str, Any]) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(message, separators=(",", ":")).encode()


def _is_whole(answer: bytes) -> bool:
    head, found, content = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    if b"chunked" in head:
        return content.endswith(_LAST_CHUNK)
    return len(content) == int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])


def _content(answer: bytes) -> bytes:
    """The message in a whole answer, in JSON or as the one event of a stream."""
    content = answer.partition(b"\r\n\r\n")[2]
    _, event, data = content.partition(b"\r\ndata: ")
    return data.partition(b"\r\n")[0] if event else content


if __name__ == "__main__":
    drive(JsonSocket() if "--json" in sys.argv else RawSocket())
