"""Spans of tool calls as the demo shows them: kept in memory, in the order in which they ended."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

__all__ = ["SpanCollector"]


class SpanCollector(SpanExporter):
    """Keeps each span when it ends, on the thread that ends it."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    @classmethod
    def install(cls) -> SpanCollector:
        """Make this process trace, if it does not do so already. OpenTelemetry allows that once per process."""
        collector = cls()
        provider = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            # Whatever the environment says about sampling: the demo shows every span.
            provider = TracerProvider(sampler=ALWAYS_ON)
            trace.set_tracer_provider(provider)
        provider.add_span_processor(SimpleSpanProcessor(collector))
        return collector

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        # The spans of handshakes and of the restart end on other threads, at times that no step waits for.
        self._spans.extend(span for span in spans if span.name.startswith("tools/call"))
        return SpanExportResult.SUCCESS

    def take(self) -> list[dict[str, object]]:
        """The spans that ended since the last time, as JSON values."""
        taken, self._spans = self._spans, []
        return [_plain(span) for span in taken]


def _plain(span: ReadableSpan) -> dict[str, object]:
    started, ended = span.start_time or 0, span.end_time or 0
    return {
        "name": span.name,
        "kind": span.kind.name,
        "seconds": (ended - started) / 1e9,
        "status": span.status.status_code.name,
        "attributes": dict(span.attributes or {}),
    }
