"""`gaia mcp bench`: measures the latency of a tool's calls."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gaia.cli import arguments, terminal, time_limit
from gaia.cli.options import CallTimeoutOption, Options, with_options
from gaia.cli.servers import complete_name, connected, waiting_for
from gaia.cli.terminal import CommandFailed, usage_error

if TYPE_CHECKING:
    from gaia.mcp.client import MCPClient

_DEMO_ARGUMENTS = {"text": "x" * 64}
_WARM_UP = 10
_BAR_WIDTH = 50
_SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "max": 1.0}
_EXAMPLE = """Example: gaia mcp bench --server time --tool get_current_time --arguments '{"timezone": "UTC"}'"""


class _Report(NamedTuple):
    alone: Calls
    crowd: Calls | None
    """Calls by several callers at once; None for one caller."""
    overhead: Overhead | None
    """The comparison with a bare pipe; None unless the demo server is measured."""


@with_options("trust", "config", "as_json", "debug")
def bench(
    options: Options,
    server: Annotated[
        str | None,
        typer.Option("--server", help="A configured server; by default the demo server.", autocompletion=complete_name),
    ] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="The tool, by the server's own name for it.")] = None,
    given: Annotated[
        str | None,
        typer.Option("--arguments", metavar="JSON", help="What it is called with: a JSON object, or @FILE with one."),
    ] = None,
    calls: Annotated[int, typer.Option("--calls", min=1, help="So many calls at most, each way.")] = 1000,
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="No call begins later than this.")] = 5.0,
    callers: Annotated[int, typer.Option("--callers", min=1, max=256, help="How many call at once.")] = 8,
    timeout: CallTimeoutOption = None,
) -> None:
    """Measure how quick the calls of a tool are: one after the other, and by several callers at once.

    The tool is really called, up to two thousand times by default: choose one that does no harm. Without --server it is
    the demo server's echo, which is also called through a bare pipe to show what supervision costs. The first call that
    fails ends it, with exit status 1.

    Examples:
      gaia mcp bench
      gaia mcp bench --server time --tool get_current_time --arguments '{"timezone": "UTC"}'
    """
    if (server is None) != (tool is None):
        raise usage_error("--server and --tool go together", _EXAMPLE)
    if server is None and given is not None:
        raise usage_error("--arguments: for a tool that --server and --tool name", _EXAMPLE)
    wanted = _DEMO_ARGUMENTS if server is None else _object(given or "{}")
    name, tool = server or "demo", tool or "echo"
    time_limit.begin(timeout, options.started)
    with _client(server, options) as (client, raw_call), waiting_for(f"Calling {tool} of {name}", options):
        # From here on the timeout limits each call.
        time_limit.end()
        report = _measure(_checked(client, tool, wanted, timeout), raw_call, calls, seconds, callers)
    if options.json:
        terminal.print_json({"server": name, "tool": tool, "arguments": wanted, "callers": callers, **_facts(report)})
    else:
        _show(f"{tool} of {name}", report, callers)


def _object(given: str) -> dict[str, Any]:
    if not given.lstrip().startswith(("{", "@")):
        raise usage_error(f"--arguments: expected a JSON object, got {given!r}", _EXAMPLE)
    return dict(arguments.parse([given]))


@contextlib.contextmanager
def _client(server: str | None, options: Options) -> Iterator[tuple[MCPClient, Callable[[], object] | None]]:
    """A connected client; for the demo server also a function that makes the same call over a bare pipe."""
    if server is not None:
        with connected(server, options) as client:
            yield client, None
        return
    from gaia.mcp import demo_server
    from gaia.mcp.client import MCPClient

    argv = [sys.executable, "-I", str(demo_server.__file__)]
    own = MCPClient.from_config("demo", {"command": argv[0], "args": argv[1:]}, debug=options.debug)
    with own, RawPipe(argv, "echo", _DEMO_ARGUMENTS) as raw:
        yield own, raw.call


def _checked(client: MCPClient, tool: str, wanted: dict[str, Any], timeout: float | None) -> Callable[[], object]:
    """A function that calls the tool once.

    It raises CommandFailed for a failed call, which would distort the figures.
    """

    def call() -> None:
        result = client.call_tool(tool, wanted, timeout=timeout)
        if result.is_error:
            what = "a call failed" if "error_type" in result else "the tool reported an error"
            raise CommandFailed(f"{what}: {result.error}", error_type=result.get("error_type", "tool_error"))

    return call


def _measure(
    call: Callable[[], object], raw_call: Callable[[], object] | None, calls: int, seconds: float, callers: int
) -> _Report:

    one_by_one(call, min(_WARM_UP, calls), seconds)
    return _Report(
        alone=one_by_one(call, calls, seconds),
        crowd=together(call, callers, calls, seconds) if callers > 1 else None,
        overhead=None if raw_call is None else measure(raw_call, call),
    )


def _facts(report: _Report) -> dict[str, Any]:

    overhead = report.overhead
    return {
        "alone": _figures(report.alone),
        "together": None if report.crowd is None else _figures(report.crowd),
        "histogram": [bucket._asdict() for bucket in histogram(report.alone.latencies)],
        "raw_pipe": None
        if overhead is None
        else {
            "calls": overhead.calls,
            **overhead.raw._asdict(),
            "supervised": overhead.managed._asdict(),
            "ratio": overhead.ratio,
        },
    }


def _figures(calls: Calls) -> dict[str, Any]:
    latencies = {name: calls.percentile(share) for name, share in _SHARES.items()}
    return {"calls": len(calls.latencies), "seconds": calls.seconds, "calls_per_second": calls.rate, **latencies}


def _show(title: str, report: _Report, callers: int) -> None:
    from gaia.cli.rendering import bar, latency_table, microseconds

    rows = [("one caller", report.alone)]
    if report.crowd is not None:
        rows.append((f"{callers} callers", report.crowd))
    terminal.say(f"{title}: {', '.join(f'{len(calls.latencies)} by {name}' for name, calls in rows)}")
    figures = [(name, [calls.percentile(share) for share in _SHARES.values()], calls.rate) for name, calls in rows]
    terminal.show(latency_table(figures))
    buckets = histogram(report.alone.latencies)
    most = max(bucket.calls for bucket in buckets)
    edges = [microseconds(bucket.low) for bucket in buckets]
    width = max(map(len, edges))
    terminal.show()
    terminal.say("One caller, calls by how long they took, from:")
    for edge, bucket in zip(edges, buckets, strict=True):
        terminal.say(f"{edge:>{width}}  {bar(bucket.calls / most, _BAR_WIDTH)} {bucket.calls or ''}")
    if (overhead := report.overhead) is not None:
        terminal.show()
        terminal.say(f"Supervised next to a bare pipe, medians of {overhead.calls} calls each, taken in turns:")
        terminal.say(f"bare pipe   {microseconds(overhead.raw.median)}")
        terminal.say(
            f"supervised  {microseconds(overhead.managed.median)}, which is {microseconds(overhead.added)} more, or "
            f"{overhead.ratio:.2f} times the bare pipe"
        )


_STEPS = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)
"""Lower edges of buckets within a power of ten: the preferred numbers R10, which have nearly equal ratios."""

_MAX_BUCKETS = 20

_ROUNDS = 20
_CALLS_A_ROUND = 50


class Calls(NamedTuple):
    """The latencies of answered calls, and the time they took together. In seconds."""

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
    """The number of calls that took from `low` to below `high` seconds."""

    low: float
    high: float
    calls: int


def one_by_one(call: Callable[[], object], most: int, seconds: float = math.inf) -> Calls:
    """Call up to `most` times, at least once; no call begins after `seconds`. Raises what a call raises."""
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
    """Do the same in `callers` threads, which share `most` equally. Raises the error of the first call that failed."""
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
    """At most twenty buckets of equal ratio, from the fastest to the slowest call.

    Empty buckets between them are included.
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
    """Figures in seconds."""

    median: float
    p99: float


class Overhead(NamedTuple):
    """The latencies of a call that was made `calls` times over a bare pipe and `calls` times through the client."""

    calls: int
    raw: Latency
    managed: Latency

    @property
    def ratio(self) -> float:
        return self.managed.median / self.raw.median

    @property
    def added(self) -> float:
        """Seconds that supervision adds to the median call."""
        return self.managed.median - self.raw.median


class RawPipe:
    """The smallest possible client: it writes a line and reads up to the next line break, without parsing.

    A context manager that owns its server process.
    """

    def __init__(self, argv: list[str], tool: str, arguments: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # Ctrl-C must reach only this process, as with supervised servers.
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
    """Time both calls in alternating rounds, so that noise affects both alike."""
    one_by_one(raw_call, _CALLS_A_ROUND)
    one_by_one(managed_call, _CALLS_A_ROUND)
    raw: list[float] = []
    managed: list[float] = []
    for _ in range(_ROUNDS):
        raw += one_by_one(raw_call, _CALLS_A_ROUND).latencies
        managed += one_by_one(managed_call, _CALLS_A_ROUND).latencies
    return Overhead(len(raw), _latency(raw), _latency(managed))


def _latency(seconds: list[float]) -> Latency:
    import statistics

    return Latency(statistics.median(seconds), statistics.quantiles(seconds, n=100)[98])


def _request(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"
