"""Where spans go without a backend: readable lines for a terminal, and a file with one JSON object a line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from gaia.runtime.locks import reentrant_lock
from gaia.runtime.private_files import keep_private
from gaia.runtime.untrusted_text import escaped


class JsonLinesExporter(SpanExporter):
    """Appends each span to a file as one line of JSON, in the form of the SDK's `ReadableSpan.to_json`.

    A line is written with one system call, so several processes may use one file. The file is created for its owner
    only. Thread-safe. Raises OSError if the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._lock = reentrant_lock()
        """Owns `_descriptor`."""
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
                # A full disk must not disturb a call. The SDK is told by the result.
                return SpanExportResult.FAILURE
        # It may have become full in the middle of it.
        return SpanExportResult.SUCCESS if written == len(lines) else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def readable_line(span: ReadableSpan, *, with_ids: bool = True) -> str:
    """One line for a person: ``span tools/call echo CLIENT 1.2 ms  trace=… attribute=value``, with its line break.

    The ids of trace, span and parent are left out without `with_ids`.

    Names and values may come from servers: what a terminal would act on is shown escaped.
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
