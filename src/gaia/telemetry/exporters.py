"""Exporters without a backend: readable lines for a terminal, and a file with one JSON object a line."""

from __future__ import annotations

import contextlib
import os
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from gaia.runtime.locks import reentrant_lock
from gaia.runtime.private_files import keep_private
from gaia.runtime.untrusted_text import escaped


class JsonLinesExporter(SpanExporter):
    """Appends each span to a file as one line of JSON, in the form of the SDK's `ReadableSpan.to_json`.

    One system call writes a line, so several processes may use one file. Only its owner can read it. Thread-safe.
    Raises OSError if the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._lock = reentrant_lock()
        keep_private(path)
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lines = "".join(f"{span.to_json(indent=None)}\n" for span in spans).encode("utf-8", "replace")
        with self._lock:
            if self._descriptor is None:
                return SpanExportResult.FAILURE
            try:
                written = os.write(self._descriptor, lines)
            except OSError:
                # A full disk must not disturb a call. The result tells the SDK of the failure.
                return SpanExportResult.FAILURE
        # The disk may have become full during the write.
        return SpanExportResult.SUCCESS if written == len(lines) else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def readable_line(span: ReadableSpan, *, with_ids: bool = True) -> str:
    """One line for a person: ``span tools/call echo CLIENT 1.2 ms  trace=… attribute=value``, with its line break.

    `with_ids` adds the ids of trace, span and parent. Names and values may come from servers, so characters that a
    terminal would interpret are escaped.
    """
    milliseconds = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
    context = span.get_span_context()
    parts = [f"span {span.name} {span.kind.name} {milliseconds:.1f} ms"]
    if not span.status.is_unset:
        parts.append(f"{span.status.status_code.name} {span.status.description or ''}".rstrip())
    if with_ids and context is not None:
        parts.append(f"trace={context.trace_id:032x} span={context.span_id:016x}")
    if with_ids and span.parent is not None:
        parts.append(f"parent={span.parent.span_id:016x}")
    parts += [f"{key}={value!r}" for key, value in (span.attributes or {}).items()]
    parts += [f"[{event.name}]" for event in span.events]
    return escaped("  ".join(parts).replace("\n", "\\n")) + "\n"


_MAX_SPANS = 1000
"""Ended spans kept of one trace. At this number they are written before the trace is complete."""

_MAX_TRACES = 1000
"""When there are more, the oldest trace is written before it is complete."""

_MIN_WIDTH = 40


_Glyphs = tuple[str, str, str]

_LINES = ("├─ ", "└─ ", "│  ")
_ASCII = ("|- ", "`- ", "|  ")


class _Trace:
    def __init__(self) -> None:
        self.open = 0
        self.ended: list[ReadableSpan] = []


class TraceTree(SpanProcessor):
    """Writes each trace when its last open span has ended; folds long lines on a terminal. Thread-safe."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = reentrant_lock()
        self._traces: dict[int, _Trace] = {}
        self._glyphs: _Glyphs = _LINES
        try:
            "".join(_LINES).encode(out.encoding or "utf-8")
        except (UnicodeEncodeError, LookupError):
            self._glyphs = _ASCII

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002 - the SDK's name
        context = span.get_span_context()
        if context is None:
            return
        overdue: list[ReadableSpan] = []
        with self._lock:
            if context.trace_id not in self._traces and len(self._traces) >= _MAX_TRACES:
                overdue = self._traces.pop(next(iter(self._traces))).ended
            self._traces.setdefault(context.trace_id, _Trace()).open += 1
        self._write(overdue)

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is None:
            return
        with self._lock:
            # The trace is missing if it was written before it was complete.
            trace = self._traces.setdefault(context.trace_id, _Trace())
            trace.open -= 1
            if context.trace_flags.sampled:
                trace.ended.append(span)
            ended: list[ReadableSpan] = []
            if trace.open <= 0:
                ended = self._traces.pop(context.trace_id).ended
            elif len(trace.ended) >= _MAX_SPANS:
                ended, trace.ended = trace.ended, []
        self._write(ended)

    def shutdown(self) -> None:
        self.force_flush()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 - the SDK's name
        waiting = []
        with self._lock:
            # All at once: a trace that completes meanwhile writes the rest itself.
            for trace in self._traces.values():
                waiting.append(trace.ended)
                trace.ended = []
        for ended in waiting:
            self._write(ended)
        return True

    def _write(self, spans: list[ReadableSpan]) -> None:
        if not spans:
            return
        # A closed or full standard error must not disturb the traced code.
        with contextlib.suppress(OSError, ValueError):
            width = shutil.get_terminal_size().columns if self._out.isatty() else None
            self._out.write("".join(f"{line}\n" for line in tree_lines(spans, self._glyphs, width)))
            self._out.flush()


def tree_lines(spans: Iterable[ReadableSpan], glyphs: _Glyphs = _LINES, width: int | None = None) -> Iterator[str]:
    """The lines of one trace by start, folded to `width` if given. Spans without a known parent stand at the left."""
    child_glyph, last_glyph, beside = glyphs
    ordered = sorted(spans, key=lambda span: span.start_time or 0)
    known = {span.context.span_id for span in ordered if span.context is not None}
    children: dict[int | None, list[ReadableSpan]] = {}
    for span in ordered:
        parent = span.parent.span_id if span.parent is not None and span.parent.span_id in known else None
        children.setdefault(parent, []).append(span)
    # Not recursive, because spans can be nested more deeply than functions.
    waiting = [(span, "", "") for span in reversed(children.get(None, []))]
    while waiting:
        span, here, below = waiting.pop()
        parts = children.get(span.context.span_id, []) if span.context is not None else []
        text = readable_line(span, with_ids=not here).rstrip("\n")
        rest = below + (beside if parts else "   ")
        lines = [text]
        if width is not None:
            columns = max(width - len(rest), _MIN_WIDTH)
            lines = textwrap.wrap(text, columns, subsequent_indent="  ", break_on_hyphens=False)
        yield here + lines[0]
        for line in lines[1:]:
            yield rest + line
        for number, part in enumerate(reversed(parts)):
            glyph, bar = (last_glyph, "   ") if number == 0 else (child_glyph, beside)
            waiting.append((part, below + glyph, below + bar))
