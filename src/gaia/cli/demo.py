"""`gaia mcp demo`: shows supervision on the small server that comes with the package."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option

from gaia.cli import terminal
from gaia.cli.options import Options, with_options
from gaia.cli.rendering import Step, list_text, microseconds, milliseconds, nothing_left, show_step
from gaia.cli.terminal import FAILED, usage_error
from gaia.runtime.untrusted_text import one_line

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from gaia.mcp.client import MCPClientManager
    from gaia.mcp.supervision.events import Event, Restarted
    from gaia.mcp.supervision.status import ServerStatus
    from gaia.mcp.tools.tool_result import ToolResult

_SERVER = "demo"
_CALL_SECONDS = 10.0
_EVENT_SECONDS = 5.0
_MAX_OVERHEAD = 0.050


@with_options("as_json", "trace", "debug")
def demo(
    options: Options,
    ray: Annotated[bool, Option("--ray", help="On a Ray cluster of three nodes, started for it.")] = False,
) -> None:
    """Show supervision at work on the small server that comes with the package.

    Starts it, measures what supervision costs, calls its tools with their spans, crashes it on purpose, shows the
    restart and the next call working, and checks that no process is left. Nothing is read from or written to your
    configuration. The exit status is 0 only if all of it worked.

    With --ray it starts a cluster of three nodes on this machine, places the server there, kills the node it is on
    during a call, shows the next call working elsewhere, and removes all of it. That takes about half a minute.

    Examples:
      gaia mcp demo
      gaia mcp demo --json
      gaia mcp demo --ray
    """
    tours: Callable[[], Generator[Step | str, None, None]] = _tour
    if ray:
        from gaia.cli.demo_ray import cluster_tour
        from gaia.runtime.extras import missing

        if (absent := missing("ray", "ray")) is not None:
            raise usage_error(f"this needs {absent}", error_type="not_installed")
        tours = cluster_tour
    steps: list[Step] = []
    started = time.perf_counter()
    with contextlib.closing(tours()) as tour:
        for step in tour:
            if isinstance(step, Step):
                steps.append(step)
            if options.json:
                continue
            if isinstance(step, str):
                terminal.say(step, "dim")
            else:
                show_step(step)
    seconds = time.perf_counter() - started
    failed = [step.name for step in steps if not step.ok]
    if options.json:
        shown = [{"name": step.name, "ok": step.ok, **step.facts} for step in steps]
        terminal.print_json({"ok": not failed, "seconds": seconds, "steps": shown})
    elif failed:
        terminal.say(f"Not as it should be: {', '.join(failed)}.", "bold red")
    else:
        terminal.say(f"Everything held, in {seconds:.1f} s.", "bold green")
    if failed:
        raise Exit(FAILED)


def _tour() -> Generator[Step | str, None, None]:
    """Yield the demo's steps. All started processes have ended when the generator has ended or is closed."""
    import psutil

    from gaia.cli.bench import raw_pipe
    from gaia.mcp import demo_server
    from gaia.mcp.client import MCPClientManager

    # Run as a file, the server needs no module search path, which servers do not inherit.
    argv = [sys.executable, "-I", str(demo_server.__file__)]
    started: set[psutil.Process] = set()
    with MCPClientManager({}) as manager, raw_pipe(argv, "echo", {"text": "hello"}) as raw_call:
        for step in _Guide(manager, raw_call).steps({"command": argv[0], "args": argv[1:]}):
            # Each generation of the server has its own process. The guard and the raw pipe are children too.
            started.update(psutil.Process().children(recursive=True))
            yield step
    yield nothing_left(started)


class _Guide:
    def __init__(self, manager: MCPClientManager, raw_call: Callable[[], None]) -> None:
        self._manager = manager
        self._raw_call = raw_call
        self._spans: InMemorySpanExporter | None = None
        self._restarted: Future[Restarted] = Future()
        manager.subscribe(self._on_event)

    def _on_event(self, event: Event) -> None:
        from gaia.mcp.supervision.events import Restarted

        # The server crashes once.
        if isinstance(event, Restarted) and not self._restarted.done():
            self._restarted.set_result(event)

    def steps(self, config: dict[str, Any]) -> Iterator[Step]:
        """Yield all steps. An unexpected error becomes the last step."""
        from gaia.telemetry.configuration import sdk_missing

        try:
            yield self._start(config)
            names = [tool.name for tool in self._manager.list_tools()]
            ok = {"add", "echo", "sleep", "crash"} <= set(names)
            yield Step("list", ok, ["List its tools", list_text(names)], {"tools": names})
            # Tracing cannot be switched off again. Most programs run without it, so the untraced call is measured
            # first.
            yield self._overhead("overhead", "What supervision adds to a call, untraced")
            if (missing := sdk_missing()) is None:
                self._spans = _recorded_spans()
            else:
                yield Step("no_spans", True, ["Leave out the spans of the calls", missing], {"missing": missing})
            yield self._call("add", {"a": 2, "b": 3}, lambda result: result["structuredContent"] == {"sum": 5})
            yield self._call("echo", {"text": "hello"}, lambda result: result.text == "hello")
            yield self._call("sleep", {"seconds": 0.3}, lambda result: not result.is_error, progress=True)
            before = self._status()
            yield self._crash()
            yield self._recover(before)
            if self._spans is not None:
                yield self._overhead("overhead_traced", "What it adds with a span recorded for each call")
        except RuntimeError as error:
            yield Step("error", False, ["It came to an end", str(error)], {"error": str(error)})

    def _start(self, config: dict[str, Any]) -> Step:
        began = time.perf_counter()
        self._manager.add_server(_SERVER, config)
        status, seconds = self._status(), time.perf_counter() - began
        facts = {"seconds": seconds, "pid": status.pid, "generation": status.generation}
        lines = [
            "Start the server",
            f"ready after {milliseconds(seconds)}: pid {status.pid}, generation {status.generation}",
            f"protocol {status.protocol_version}",
        ]
        return Step("start", status.generation == 1, lines, facts | {"protocol_version": status.protocol_version})

    def _overhead(self, name: str, title: str) -> Step:
        from gaia.cli.bench import measure

        overhead = measure(self._raw_call, lambda: self._invoke("echo", {"text": "hello"}))
        raw, managed, calls = overhead.raw.summary(), overhead.managed.summary(), len(overhead.raw.latencies)
        lines = [
            title,
            f"raw pipe    median {microseconds(raw['median'])}, p99 {microseconds(raw['p99'])}",
            f"supervised  median {microseconds(managed['median'])}, p99 {microseconds(managed['p99'])}",
            f"{overhead.ratio:.2f} times the raw pipe, {microseconds(overhead.added)} more at the median",
            f"({calls} echo calls each way, in rounds that alternate)",
        ]
        facts = {"calls": calls, "raw": raw, "managed": managed, "ratio": overhead.ratio}
        return Step(name, overhead.added < _MAX_OVERHEAD, lines, facts)

    def _call(
        self, tool: str, arguments: dict[str, Any], holds: Callable[[ToolResult], bool], *, progress: bool = False
    ) -> Step:
        reports: list[float] = []

        def report(done: float, _total: float | None, _message: str | None) -> None:
            reports.append(done)

        began = time.perf_counter()
        result = self._invoke(tool, arguments, **({"on_progress": report} if progress else {}))
        seconds, recorded = time.perf_counter() - began, take_calls(self._spans)
        ok = not result.is_error and holds(result) and bool(reports) == progress and self._has_one(recorded)
        outcome = f"error: {result.error}" if result.is_error else f"→ {result.text}"
        lines = [f"Call {tool} {json.dumps(arguments)}", f"{outcome} after {milliseconds(seconds)}"]
        if progress:
            lines.append(f"progress: {list_text(reports)}")
        facts = {"tool": tool, "seconds": seconds, "result": result, "progress": reports, "spans": recorded}
        return Step(f"call_{tool}", ok, lines + _span_lines(recorded), facts)

    def _has_one(self, spans: list[dict[str, Any]]) -> bool:
        return len(spans) == (self._spans is not None)

    def _crash(self) -> Step:
        result = self._invoke("crash", {"exit_code": 3})
        recorded = take_calls(self._spans)
        ok = (result.get("error_type"), result.get("delivery")) == ("server_crashed", "unknown")
        lines = [
            "Crash it during a call",
            f"error: {one_line(result.get('error'))}",
            f"type {result.get('error_type')}, delivery {result.get('delivery')}",
            "(it was written, so it may have had its effect; it is not repeated)",
        ]
        facts = {"result": result, "spans": recorded}
        return Step("crash", ok and self._has_one(recorded), lines + _span_lines(recorded), facts)

    def _recover(self, before: ServerStatus) -> Step:
        step = self._call("echo", {"text": "hello again"}, lambda result: not result.is_error)
        downtime = None
        # Events come on a thread of their own.
        with contextlib.suppress(TimeoutError):
            downtime = self._restarted.result(_EVENT_SECONDS).downtime
        after = self._status()
        is_next = after.generation == before.generation + 1 and after.pid != before.pid
        lines = [
            "Call again at once: the call waits for the restart",
            f"restarted: generation {after.generation}, pid {before.pid} → {after.pid}",
            "no restart was reported" if downtime is None else f"downtime {milliseconds(downtime)}",
            *step.lines[1:],
        ]
        facts = {"generation": after.generation, "pid": after.pid, "restarts": after.restarts, "downtime": downtime}
        return Step("restart", step.ok and downtime is not None and is_next, lines, {**step.facts, **facts})

    def _invoke(self, tool: str, arguments: dict[str, Any], **options: Any) -> ToolResult:
        return self._manager.call_tool(f"mcp_{_SERVER}_{tool}", arguments, timeout=_CALL_SECONDS, **options)

    def _status(self) -> ServerStatus:
        (status,) = self._manager.status()
        return status


def _recorded_spans() -> InMemorySpanExporter:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from gaia.telemetry.configuration import tracer_provider

    spans = InMemorySpanExporter()
    tracer_provider().add_span_processor(SimpleSpanProcessor(spans))
    return spans


def take_calls(spans: InMemorySpanExporter | None) -> list[dict[str, Any]]:
    """The spans of the tool calls that ended since the previous call of this function, as JSON values."""
    if spans is None:
        return []
    # Spans of handshakes and restarts may end on other threads at any time, so they are left out.
    ended = [span for span in spans.get_finished_spans() if span.name.startswith("tools/call")]
    spans.clear()
    return [
        {
            "name": span.name,
            "kind": span.kind.name,
            "seconds": ((span.end_time or 0) - (span.start_time or 0)) / 1e9,
            "status": span.status.status_code.name,
            "attributes": dict(span.attributes or {}),
        }
        for span in ended
    ]


def _span_lines(spans: list[dict[str, Any]]) -> list[str]:
    lines = []
    for span in spans:
        lines.append(f"span {span['name']}, {span['kind']}, {milliseconds(span['seconds'])}, status {span['status']}")
        lines.append(f"span attributes {'  '.join(f'{key}={value}' for key, value in span['attributes'].items())}")
    return lines
