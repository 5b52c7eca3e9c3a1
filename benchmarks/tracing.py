"""What tracing adds to a call through the manager: without an SDK, sampled out, recorded, and recorded with content.

A raw pipe is the floor. All take turns in short rounds, so that other load on the machine affects all alike, and
where processes can be put on cores, callers are on one and servers on another. A process has one SDK or none, so the
calls without one are made by a process of its own, as are those with one. What the SDK records goes through a batch
processor to an exporter that drops it: what a backend costs is the backend's.

Waiting times depend on the machine and its other load; the processor time of the calling process, all its
threads together, hardly does.

    python -m benchmarks.tracing [--calls 4000] [--rounds 20] [--size 64] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import echo_server

__all__ = ["MODES", "main", "run"]

MODES = ("raw pipe", "no SDK", "sampled out", "content off", "content redacted", "content full")
"""In the order of the table. All after the second have an SDK; all after the third are recorded."""

_CONTENT = {"content off": "NO_CONTENT", "content redacted": "", "content full": "SPAN_ONLY"}
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class Round(NamedTuple):
    """Some calls in one mode, one after the other. Seconds."""

    times: list[float]
    processor: float
    """Of one call."""


class Caller:
    """A process that makes calls in the modes that it can."""

    def __init__(self, kind: str, size: int) -> None:
        command = [sys.executable, "-m", "benchmarks.tracing", "--caller", kind, "--size", str(size)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, mode: str, count: int) -> Round:
        """Make `count` calls."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([mode, count]) + "\n")
        self._process.stdin.flush()
        return Round(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def run(calls: int, rounds: int, size: int) -> dict[str, dict[str, float]]:
    """Seconds by mode and figure. `size` is the bytes of text in each call and answer."""
    callers = {kind: Caller(kind, size) for kind in ("raw", "plain", "traced")}
    by_mode = {mode: callers[{"raw pipe": "raw", "no SDK": "plain"}.get(mode, "traced")] for mode in MODES}
    measured: dict[str, list[Round]] = {mode: [] for mode in MODES}
    for mode in MODES:
        by_mode[mode].measure(mode, max(50, calls // rounds))
    for _ in range(rounds):
        for mode in MODES:
            measured[mode].append(by_mode[mode].measure(mode, calls // rounds))
    for caller in callers.values():
        caller.close()
    return {mode: _figures(all_rounds) for mode, all_rounds in measured.items()}


def _figures(rounds: list[Round]) -> dict[str, float]:
    cuts = statistics.quantiles([seconds for one in rounds for seconds in one.times], n=100)
    return {"p50": cuts[49], "p95": cuts[94], "processor": statistics.median(one.processor for one in rounds)}


def report(figures: dict[str, dict[str, float]]) -> None:
    """The table for people."""
    plain = figures["no SDK"]["processor"]
    print(f"{'':18}{'p50':>12}{'p95':>12}{'processor':>12}{'added by tracing':>20}")
    for mode, values in figures.items():
        added = "" if mode in MODES[:2] else f"{(values['processor'] - plain) * 1e6:17.1f} µs"
        print(f"{mode:18}" + "".join(f"{value * 1e6:9.1f} µs" for value in values.values()) + f"{added:>20}")


# What runs in the processes that make the calls.


def _serve(kind: str, size: int) -> None:
    program, text = echo_server.build(), "x" * size
    _put_on_core(0, first=True)
    if kind == "raw":
        _answer(lambda _: None, _raw_call(program, text))
        return
    switch = _set_up_sdk() if kind == "traced" else lambda _: None
    from gaia.mcp.client import MCPClientManager
    from gaia.mcp.client.config import MCPConfig

    with tempfile.TemporaryDirectory() as folder, MCPClientManager(MCPConfig(f"{folder}/servers.json")) as manager:
        manager.add_server("bench", {"command": str(program), "args": []})
        _put_on_core(manager.status()[0].pid or 0, first=False)
        _answer(switch, lambda: manager.call_tool("mcp_bench_echo", {"text": text}))


_CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _put_on_core(pid: int, *, first: bool) -> None:
    """Callers on the first core, servers on the last; 0 is this process."""
    if _CORES:
        os.sched_setaffinity(pid, {_CORES[0 if first else -1]})


def _answer(switch: Callable[[str], None], call: Callable[[], Any]) -> None:
    clock = time.perf_counter
    for line in sys.stdin:
        mode, count = json.loads(line)
        switch(mode)
        times = []
        before = time.process_time()
        for _ in range(count):
            started = clock()
            call()
            times.append(clock() - started)
        print(json.dumps([times, (time.process_time() - before) / count]), flush=True)


def _raw_call(program: Path, text: str) -> Callable[[], None]:
    server = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert server.stdin is not None
    assert server.stdout is not None
    request, answers = server.stdin, server.stdout.fileno()
    _put_on_core(server.pid, first=False)
    params = {"name": "echo", "arguments": {"text": text}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode() + b"\n"

    def call() -> None:
        view = memoryview(line)
        while view:
            view = view[request.write(view) or 0 :]
        while not os.read(answers, 1 << 16).endswith(b"\n"):
            pass

    return call


def _set_up_sdk() -> Callable[[str], None]:
    """Set the SDK of this process up; what is returned switches it to a mode."""
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler, SamplingResult

    class Drop(SpanExporter):
        def export(self, _spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    class Switch(Sampler):
        on = True

        def should_sample(self, *arguments: Any, **more: Any) -> SamplingResult:
            return (ALWAYS_ON if self.on else ALWAYS_OFF).should_sample(*arguments, **more)

        def get_description(self) -> str:
            return "on or off"

    sampler = Switch()
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(BatchSpanProcessor(Drop()))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))

    def switch(mode: str) -> None:
        sampler.on = mode in _CONTENT
        os.environ[_CAPTURE] = _CONTENT.get(mode, "")

    return switch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4000, help="in each mode")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--size", type=int, default=64, help="bytes of text in each call and answer")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--caller", choices=["raw", "plain", "traced"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.caller is not None:
        _serve(options.caller, options.size)
        return
    figures = run(options.calls, options.rounds, options.size)
    if options.json:
        print(json.dumps(figures))
    else:
        report(figures)


if __name__ == "__main__":
    main()
