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
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Option

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


@with_options("trust", "config", "as_json", "debug")
def bench(
    options: Options,
    server: Annotated[
        str | None,
        Option("--server", help="A configured server; by default the demo server.", autocompletion=complete_name),
    ] = None,
    tool: Annotated[str | None, Option("--tool", help="The tool, by the server's own name for it.")] = None,
    given: Annotated[
        str | None,
        Option("--arguments", metavar="JSON", help="What it is called with: a JSON object, or @FILE with one."),
    ] = None,
    calls: Annotated[int, Option("--calls", min=1, help="So many calls at most, each way.")] = 1000,
    seconds: Annotated[float, Option("--seconds", min=0.01, help="No call begins later than this.")] = 5.0,
    callers: Annotated[int, Option("--callers", min=1, max=256, help="How many call at once.")] = 8,
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
    if given and not given.lstrip().startswith(("{", "@")):
        raise usage_error(f"--arguments: expected a JSON object, got {given!r}", _EXAMPLE)
    wanted = _DEMO_ARGUMENTS if server is None else dict(arguments.parse([given or "{}"]))
    name, tool = server or "demo", tool or "echo"
    time_limit.begin(timeout, options.started)
    with _client(server, options) as (client, raw_call), waiting_for(f"Calling {tool} of {name}", options):
        # From here on, the timeout limits each call.
        time_limit.end()
        call = _checked(client, tool, wanted, timeout)
        one_by_one(call, min(_WARM_UP, calls), seconds)
        alone = one_by_one(call, calls, seconds)
        crowd = together(call, callers, calls, seconds) if callers > 1 else None
        overhead = None if raw_call is None else measure(raw_call, call)
    if options.json:
        raw: dict[str, Any] | None = None
        if overhead is not None:
            raw = {"calls": len(overhead.raw.latencies), **overhead.raw.summary()}
            raw |= {"supervised": overhead.managed.summary(), "ratio": overhead.ratio}
        terminal.print_json(
            {
                "server": name,
                "tool": tool,
                "arguments": wanted,
                "callers": callers,
                "alone": _figures(alone),
                "together": None if crowd is None else _figures(crowd),
                "histogram": [bucket._asdict() for bucket in histogram(alone.latencies)],
                "raw_pipe": raw,
            }
        )
    else:
        rows = {"one caller": alone} if crowd is None else {"one caller": alone, f"{callers} callers": crowd}
        _show(f"{tool} of {name}", rows, overhead)


@contextlib.contextmanager
def _client(server: str | None, options: Options) -> Iterator[tuple[MCPClient, Callable[[], object] | None]]:
    if server is not None:
        with connected(server, options) as client:
            yield client, None
        return
    from gaia.mcp import demo_server
    from gaia.mcp.client import MCPClient

    argv = [sys.executable, "-I", str(demo_server.__file__)]
    own = MCPClient.from_config("demo", {"command": argv[0], "args": argv[1:]}, debug=options.debug)
    with own, raw_pipe(argv, "echo", _DEMO_ARGUMENTS) as raw_call:
        yield own, raw_call


def _checked(client: MCPClient, tool: str, wanted: dict[str, Any], timeout: float | None) -> Callable[[], object]:
    """A function that calls the tool once. It raises CommandFailed for a failure, which would distort the figures."""

    def call() -> None:
        result = client.call_tool(tool, wanted, timeout=timeout)
        if result.is_error:
            what = "a call failed" if "error_type" in result else "the tool reported an error"
            raise CommandFailed(f"{what}: {result.error}", error_type=result.get("error_type", "tool_error"))

    return call


def _figures(calls: Calls) -> dict[str, Any]:
    latencies = {name: calls.percentile(share) for name, share in _SHARES.items()}
    return {"calls": len(calls.latencies), "seconds": calls.seconds, "calls_per_second": calls.rate, **latencies}


def _show(title: str, rows: dict[str, Calls], overhead: Overhead | None) -> None:
    from gaia.cli.rendering import bar, latency_table, microseconds

    terminal.say(f"{title}: {', '.join(f'{len(calls.latencies)} by {name}' for name, calls in rows.items())}")
    terminal.show(
        latency_table((name, list(map(calls.percentile, _SHARES.values())), calls.rate) for name, calls in rows.items())
    )
    buckets = histogram(rows["one caller"].latencies)
    most = max(bucket.calls for bucket in buckets)
    edges = [microseconds(bucket.low) for bucket in buckets]
    width = max(map(len, edges))
    terminal.show()
    terminal.say("One caller, calls by how long they took, from:")
    for edge, bucket in zip(edges, buckets, strict=True):
        terminal.say(f"{edge:>{width}}  {bar(bucket.calls / most, _BAR_WIDTH)} {bucket.calls or ''}")
    if overhead is not None:
        calls, (raw, managed) = len(overhead.raw.latencies), (microseconds(way.percentile(0.5)) for way in overhead)
        added = f"{microseconds(overhead.added)} more, or {overhead.ratio:.2f} times the bare pipe"
        terminal.show()
        terminal.say(f"Supervised next to a bare pipe, medians of {calls} calls each, taken in turns:")
        terminal.say(f"bare pipe   {raw}")
        terminal.say(f"supervised  {managed}, which is {added}")


class Calls(NamedTuple):
    latencies: list[float]
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        """The latency that the given share (0 to 1) of the calls did not exceed (nearest rank)."""
        ordered = sorted(self.latencies)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    def summary(self) -> dict[str, float]:
        return {"median": self.percentile(0.5), "p99": self.percentile(0.99)}


def one_by_one(call: Callable[[], object], most: int, seconds: float = math.inf) -> Calls:
    """Call up to `most` times, at least once; no call begins after `seconds`. Raises the error of a failed call."""
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
    """Run `one_by_one` in `callers` threads, which share `most` equally. Raises the first failed call's error."""
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


_STEPS = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)
"""Lower edges of buckets within a power of ten: the preferred numbers R10, whose ratios are nearly equal."""

_MAX_BUCKETS = 20


class Bucket(NamedTuple):
    low: float
    high: float
    calls: int


def histogram(latencies: Sequence[float]) -> list[Bucket]:
    """At most twenty buckets of equal ratio, from the fastest to the slowest call, including empty ones."""
    low, high = min(latencies), max(latencies)
    powers = range(math.floor(math.log10(low)) - 1, math.floor(math.log10(high)) + 2)
    for every in (1, 2, 5, 10):
        edges = [step * 10.0**power for power in powers for step in _STEPS[::every]]
        first = max(index for index, edge in enumerate(edges) if edge <= low)
        last = min(index for index, edge in enumerate(edges) if edge > high)
        if last - first <= _MAX_BUCKETS:
            break
    return [
        Bucket(low, high, sum(low <= latency < high for latency in latencies))
        for low, high in itertools.pairwise(edges[first : last + 1])
    ]


_ROUNDS = 20
_CALLS_A_ROUND = 50


class Overhead(NamedTuple):
    raw: Calls
    managed: Calls

    @property
    def ratio(self) -> float:
        return self.managed.percentile(0.5) / self.raw.percentile(0.5)

    @property
    def added(self) -> float:
        return self.managed.percentile(0.5) - self.raw.percentile(0.5)


def measure(raw_call: Callable[[], object], managed_call: Callable[[], object]) -> Overhead:
    """Time both calls in alternating rounds, so that noise affects both equally."""
    measured = Overhead(Calls([], 0.0), Calls([], 0.0))
    for number in range(_ROUNDS + 1):
        for call, calls in zip((raw_call, managed_call), measured, strict=True):
            made = one_by_one(call, _CALLS_A_ROUND)
            # The first round warms up.
            calls.latencies.extend(made.latencies if number else ())
    return measured


@contextlib.contextmanager
def raw_pipe(argv: list[str], tool: str, arguments: dict[str, Any]) -> Iterator[Callable[[], None]]:
    """The smallest possible client, with its own server process. Yields a function that calls the tool.

    The function writes a line and reads up to the next line break, without parsing.
    """
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        # Ctrl-C must reach only this process, as with supervised servers.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def round_trip(line: bytes) -> None:
        stdin.write(line)
        answer = b""
        while not answer.endswith(b"\n"):
            chunk = stdout.read(65536)
            if not chunk:
                raise RuntimeError("the server behind the raw pipe has ended")
            answer += chunk

    client = {"name": "raw pipe", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    line = _request("tools/call", {"name": tool, "arguments": arguments})
    try:
        round_trip(_request("initialize", hello))
        yield lambda: round_trip(line)
    finally:
        stdin.close()
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        stdout.close()


def _request(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"
