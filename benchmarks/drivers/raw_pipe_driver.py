"""The floor: what a call costs without a client. Ready-made lines are written, lines are read, nothing is decoded.

It does what makes a pipe quick: it asks for large ones, reads much at a time once there is much, and keeps many calls
under way with one thread.

The first steps from there to a client, one after the other: with ``--json`` each request is encoded and each answer
decoded, with ``--thread`` a thread of its own does the reading, too, and hands the answer over.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from typing import Any

from driving import drive

_READ_BYTES = 64 * 1024
_LARGE_BYTES = 1024 * 1024
_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw pipe", "version": "1"},
}


class RawPipe:
    def load(self) -> None:
        import subprocess

        self._popen = subprocess.Popen

    def connect(self, argv: list[str], servers: int) -> None:
        self._argv = argv
        pipe = -1  # subprocess.PIPE, which is not loaded before `load`
        self._servers = [self._popen(argv, stdin=pipe, stdout=pipe, bufsize=0) for _ in range(servers)]
        self._pipes = [(server.stdin.fileno(), server.stdout.fileno()) for server in self._servers]
        for server, descriptors in enumerate(self._pipes):
            for descriptor in descriptors:
                # What an ordinary user may have; not for all once the user's allowance is used up.
                with contextlib.suppress(OSError, AttributeError):
                    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _LARGE_BYTES)
            self.call(server, _line("initialize", _HELLO))
            os.write(descriptors[0], b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            self.call(server, _line("tools/list", {}))

    def disconnect(self) -> None:
        for server in self._servers:
            server.stdin.close()
        for server in self._servers:
            server.wait()
            server.stdout.close()

    def recover(self, pid: int, give_up: float) -> dict[str, Any]:
        """Start a server in place of a killed one: what no client can save. `give_up` does not matter."""
        os.kill(pid, signal.SIGKILL)
        self.disconnect()
        started = time.perf_counter()
        self.connect(self._argv, len(self._servers))
        self.request("x")
        return {"seconds": time.perf_counter() - started}

    def request(self, text: str) -> bytes:
        line = _line("tools/call", {"name": "echo", "arguments": {"text": text}})
        # All answers to the same line are the same, so they can be checked without decoding them.
        self._expected = self.call(0, line)
        assert json.loads(self._expected)["result"]["content"][0]["text"] == text
        return line

    def call(self, server: int, request: bytes) -> bytes:
        writing, reading = self._pipes[server]
        sent = os.write(writing, request)
        while sent < len(request):
            sent += os.write(writing, memoryview(request)[sent:])
        answer = os.read(reading, _READ_BYTES)
        if answer.endswith(b"\n"):
            return answer
        chunks = [answer]
        while not chunks[-1].endswith(b"\n"):
            chunks.append(os.read(reading, _LARGE_BYTES))
        return b"".join(chunks)

    def is_echo(self, request: bytes, answer: bytes) -> bool:
        return answer == self._expected

    def crowd(self, callers: int, servers: int, seconds: float) -> dict[str, Any]:
        """Write as many requests as there are callers, read as many answers, and so on."""
        request = self.request("x" * 64)
        shares = [len(range(server, callers, servers)) for server in range(min(servers, callers))]
        calls = 0
        started = now = time.perf_counter()
        while now < started + seconds:
            for server, share in enumerate(shares):
                os.write(self._pipes[server][0], request * share)
            for server, share in enumerate(shares):
                left = share
                while left:
                    left -= os.read(self._pipes[server][1], _READ_BYTES).count(b"\n")
                calls += share
            now = time.perf_counter()
        return {"calls": calls, "seconds": now - started}


class JsonPipe(RawPipe):
    """The same with requests that are encoded and answers that are decoded."""

    def load(self) -> None:
        super().load()
        import msgspec

        self._encode, self._decode = msgspec.json.encode, msgspec.json.decode

    def request(self, text: str) -> Any:
        return {"name": "echo", "arguments": {"text": text}}

    def call(self, server: int, request: Any) -> Any:
        if isinstance(request, bytes):  # of the handshake
            return super().call(server, request)
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": request}
        return self._decode(super().call(server, self._encode(message) + b"\n"))

    def is_echo(self, request: Any, answer: Any) -> bool:
        return answer["result"]["content"][0]["text"] == request["arguments"]["text"]


class ThreadedPipe(JsonPipe):
    """The same with a thread that reads, for the first server alone."""

    def load(self) -> None:
        super().load()
        import threading

        self._answered = threading.Lock()
        self._answered.acquire()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def connect(self, argv: list[str], servers: int) -> None:
        super().connect(argv, servers)
        self._thread.start()

    def call(self, server: int, request: Any) -> Any:
        if isinstance(request, bytes):
            return super().call(server, request)
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": request}
        os.write(self._pipes[0][0], self._encode(message) + b"\n")
        self._answered.acquire()
        return self._answer

    def _read(self) -> None:
        while answer := os.read(self._pipes[0][1], _READ_BYTES):
            self._answer = self._decode(answer)
            self._answered.release()


def _line(method: str, params: dict[str, Any]) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


if __name__ == "__main__":
    drive(ThreadedPipe() if "--thread" in sys.argv else JsonPipe() if "--json" in sys.argv else RawPipe())
