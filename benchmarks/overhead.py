"""What the client adds to a call: a round trip through the manager against a raw pipe round trip, in one run.

Both talk to servers of the same C program, whose own time is near zero. The raw pipe writes a ready-made line and reads
one line back, without JSON. The two take turns in short rounds, so that whatever else the machine does hits both.

Where the scheduler puts client and server decides more than anything else: waking another core costs several times what
all the work costs. So they are put on two cores (``apart``, the default), or on one (``together``), which compares the
code paths. ``free`` leaves it to the scheduler, and its figures jump between the two.

    python benchmarks/overhead.py [--calls 20000] [--rounds 20] [--size 64] [--cores apart|together|free] [--json]

Exits with 1 if the difference of the 99th percentiles is over 50 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import echo_server

from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.config import MCPConfig

LIMIT_SECONDS = 0.050
PERCENTILES = (50, 95, 99)


class Cores:
    """Which core the client and its servers run on; does nothing where the system cannot pin processes."""

    def __init__(self, placement: str) -> None:
        self._server: int | None = None
        if placement != "free" and hasattr(os, "sched_setaffinity"):
            available = sorted(os.sched_getaffinity(0))
            self._server = available[-1] if placement == "apart" else available[0]
            os.sched_setaffinity(0, {available[0]})

    def place(self, pid: int) -> None:
        if self._server is not None:
            os.sched_setaffinity(pid, {self._server})


class RawPipe:
    """The floor: one write, one line back, nothing decoded."""

    def __init__(self, program: Path, text: str) -> None:
        self._server = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.pid = self._server.pid
        request = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": text}},
        }
        self._line = json.dumps(request, separators=(",", ":")).encode() + b"\n"

    def call(self) -> None:
        stdin, stdout = self._server.stdin, self._server.stdout
        assert stdin is not None
        assert stdout is not None
        view = memoryview(self._line)
        while view:
            view = view[stdin.write(view) or 0 :]
        while not (os.read(stdout.fileno(), 1 << 16)).endswith(b"\n"):
            pass

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(5)


def measure(call: Callable[[], object], count: int, into: list[float]) -> None:
    clock = time.perf_counter
    for _ in range(count):
        started = clock()
        call()
        into.append(clock() - started)


def percentile(ordered: list[float], rank: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * rank // 100)]


def run(calls: int, rounds: int, size: int, cores: Cores) -> dict[str, dict[str, float]]:
    """Seconds by contender and percentile."""
    program, text = echo_server.build(), "x" * size
    raw_times: list[float] = []
    client_times: list[float] = []
    raw = RawPipe(program, text)
    with tempfile.TemporaryDirectory() as folder, MCPClientManager(MCPConfig(f"{folder}/servers.json")) as manager:
        manager.add_server("bench", {"command": str(program), "args": []})
        for pid in (raw.pid, manager.status()[0].pid):
            assert pid is not None
            cores.place(pid)
        expected = {"content": [{"type": "text", "text": text}]}

        def through_manager() -> None:
            answer = manager.call_tool("mcp_bench_echo", {"text": text})
            assert answer["content"] == expected["content"], answer

        for times, call in ((raw_times, raw.call), (client_times, through_manager)):
            measure(call, max(10, calls // rounds // 10), times)
            times.clear()
        for _ in range(rounds):
            measure(raw.call, calls // rounds, raw_times)
            measure(through_manager, calls // rounds, client_times)
    raw.close()
    return {
        name: {f"p{rank}": percentile(sorted(times), rank) for rank in PERCENTILES}
        for name, times in (("raw pipe", raw_times), ("manager", client_times))
    }


def report(figures: dict[str, dict[str, float]], *, size: int, calls: int, cores: str) -> None:
    print(
        f"{calls} calls each, {size} B, cores {cores}, {platform.python_implementation()} {platform.python_version()}"
    )
    print(f"{'':12}{'p50':>12}{'p95':>12}{'p99':>12}")
    for name, values in figures.items():
        print(f"{name:12}" + "".join(f"{value * 1e6:9.1f} µs" for value in values.values()))
    raw, client = figures["raw pipe"], figures["manager"]
    print(f"{'added':12}" + "".join(f"{(client[key] - raw[key]) * 1e6:9.1f} µs" for key in raw))
    print(f"{'ratio':12}" + "".join(f"{client[key] / raw[key]:10.2f} x" for key in raw))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--size", type=int, default=64, help="bytes of text in each call and answer")
    parser.add_argument("--cores", choices=["apart", "together", "free"], default="apart")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = run(options.calls, options.rounds, options.size, Cores(options.cores))
    if options.json:
        print(json.dumps(figures))
    else:
        report(figures, size=options.size, calls=options.calls, cores=options.cores)
    added = figures["manager"]["p99"] - figures["raw pipe"]["p99"]
    if added > LIMIT_SECONDS:
        print(f"too slow: the 99th percentile grew by {added * 1e3:.1f} ms", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
