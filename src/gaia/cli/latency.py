"""How long calls take: one after the other, by several callers at once, and next to a bare pipe."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple

_STEPS = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)
"""Where buckets begin within each power of ten: the preferred numbers R10, which are equally far apart by ratio."""

_MAX_BUCKETS = 20

_ROUNDS = 20
_CALLS_A_ROUND = 50
_WARM_UP = 50


class Calls(NamedTuple):
    """Calls that were answered, and how long all of it took. In seconds."""

    latencies: list[float]
    seconds: float

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        """The latency that the given share (0 to 1) of the calls did not exceed. Nearest rank."""
        ordered = sorted(self.latencies)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Bucket(NamedTuple):
    """How many of the calls took from `low` to below `high` seconds."""

    low: float
    high: float
    calls: int


def one_by_one(call: Callable[[], object], most: int, seconds: float = math.inf) -> Calls:
    """Call up to `most` times, and begin no call after `seconds`; at least one. Raises whatever a call raises."""
    latencies: list[float] = []
    clock = time.perf_counter
    started = now = clock()
    while len(latencies) < most and (not latencies or now < started + seconds):
        begun = clock()
        call()
        now = clock()
        latencies.append(now - begun)
    return Calls(latencies, now - started)


def together(call: Callable[[], object], callers: int, most: int, seconds: float) -> Calls:
    """The same by `callers` threads, each with an equal share of `most`. Raises what the first failed call raised."""
    share = max(1, most // callers)
    done: list[Calls] = []
    failures: list[BaseException] = []
    ready = threading.Barrier(callers + 1)

    def run() -> None:
        ready.wait()
        try:
            done.append(one_by_one(lambda: failures or call(), share, seconds))
        except BaseException as error:  # noqa: BLE001 - raised again where it can be handled
            failures.append(error)

    threads = [threading.Thread(target=run, name=f"gaia-bench-{index}", daemon=True) for index in range(callers)]
    for thread in threads:
        thread.start()
    started = time.perf_counter()
    ready.wait()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return Calls([latency for calls in done for latency in calls.latencies], time.perf_counter() - started)


def histogram(latencies: Sequence[float]) -> list[Bucket]:
    """Buckets of equal ratio from the quickest to the slowest call, empty ones between them included.

    As fine as fits in twenty.
    """
    for every in (1, 2, 5, 10):
        edges = _edges(min(latencies), max(latencies), every)
        if len(edges) - 1 <= _MAX_BUCKETS:
            break
    return [
        Bucket(low, high, sum(low <= latency < high for latency in latencies))
        for low, high in itertools.pairwise(edges)
    ]


def _edges(low: float, high: float, every: int) -> list[float]:
    powers = range(math.floor(math.log10(low)) - 1, math.floor(math.log10(high)) + 2)
    edges = [step * 10.0**power for power in powers for step in _STEPS[::every]]
    first = max(index for index, edge in enumerate(edges) if edge <= low)
    last = min(index for index, edge in enumerate(edges) if edge > high)
    return edges[first : last + 1]


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
    """Time both, in rounds that alternate, so that noise hits both alike."""
    one_by_one(raw_call, _WARM_UP)
    one_by_one(managed_call, _WARM_UP)
    raw: list[float] = []
    managed: list[float] = []
    for _ in range(_ROUNDS):
        raw += one_by_one(raw_call, _CALLS_A_ROUND).latencies
        managed += one_by_one(managed_call, _CALLS_A_ROUND).latencies
    return Overhead(len(raw), _latency(raw), _latency(managed))


def _latency(seconds: list[float]) -> Latency:
    return Latency(statistics.median(seconds), statistics.quantiles(seconds, n=100)[98])


def _request(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"
