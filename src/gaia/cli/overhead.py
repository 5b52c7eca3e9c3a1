"""What a call through the manager costs on top of a bare pipe: the two take turns, so that noise hits both alike."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import IO, Any, NamedTuple

__all__ = ["Latency", "Overhead", "RawPipe", "measure"]

_ROUNDS = 20
_CALLS_A_ROUND = 50
_WARM_UP = 50


class Latency(NamedTuple):
    """Seconds."""

    median: float
    p99: float


class Overhead(NamedTuple):
    """The same call `calls` times each way."""

    calls: int
    raw: Latency
    managed: Latency

    @property
    def ratio(self) -> float:
        return self.managed.median / self.raw.median

    @property
    def added(self) -> float:
        """Seconds that the median call takes longer."""
        return self.managed.median - self.raw.median


class RawPipe:
    """The least that a client can do: write a line, read until the line break, look at nothing.

    A context manager that owns a server process of its own.
    """

    def __init__(self, argv: list[str], tool: str, arguments: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # Ctrl-C is for us, as it is with supervised servers.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin: IO[bytes] = self._process.stdin
        self._stdout: IO[bytes] = self._process.stdout
        self._line = _request("tools/call", {"name": tool, "arguments": arguments})

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> RawPipe:
        client = {"name": "raw pipe", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        try:
            self._round_trip(_request("initialize", hello))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stdin.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()

    def call(self) -> None:
        self._round_trip(self._line)

    def _round_trip(self, line: bytes) -> None:
        self._stdin.write(line)
        answer = b""
        while not answer.endswith(b"\n"):
            chunk = self._stdout.read(65536)
            if not chunk:
                raise RuntimeError("the server behind the raw pipe has ended")
            answer += chunk


def measure(raw_call: Callable[[], object], managed_call: Callable[[], object]) -> Overhead:
    """Time both, in rounds that alternate."""
    for _ in range(_WARM_UP):
        raw_call()
        managed_call()
    raw: list[float] = []
    managed: list[float] = []
    for _ in range(_ROUNDS):
        for call, seconds in ((raw_call, raw), (managed_call, managed)):
            for _ in range(_CALLS_A_ROUND):
                started = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - started)
    return Overhead(len(raw), _latency(raw), _latency(managed))


def _latency(seconds: list[float]) -> Latency:
    return Latency(statistics.median(seconds), statistics.quantiles(seconds, n=100)[98])


def _request(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"
