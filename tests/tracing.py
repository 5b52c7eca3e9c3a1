"""What a test records: spans and metrics of this process, without setting anything global."""

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gaia.telemetry import metrics, spans
from gaia.telemetry.metrics import Instruments
from tests.waiting import wait_until


class Tracing:
    """A tracer provider of a test's own, and what it exports. The global one can be set only once per process."""

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @classmethod
    def installed(cls, monkeypatch: pytest.MonkeyPatch, provider: TracerProvider | None = None) -> "Tracing":
        """In place of what the application would have set."""
        provider = provider or TracerProvider()
        monkeypatch.setattr(spans, "_tracer", provider.get_tracer("gaia.mcp"))
        return cls(provider)

    def clear(self) -> None:
        """Forget the spans that have ended."""
        self._exporter.clear()

    @property
    def all(self) -> list[ReadableSpan]:
        """The spans that have ended, in the order in which they began."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, *beginnings: str) -> list[ReadableSpan]:
        """Those whose names begin so."""
        return [span for span in self.all if span.name.startswith(beginnings)]

    def only(self, name: str) -> ReadableSpan:
        """The only one of this name."""
        (span,) = [span for span in self.all if span.name == name]
        return span

    def wait_for(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """Wait until so many of this name have ended, which is told by another thread."""
        assert wait_until(lambda: len([span for span in self.all if span.name == name]) >= count), self.tree()
        return [span for span in self.all if span.name == name]

    @property
    def calls(self) -> list[ReadableSpan]:
        """Those of tool calls, in the order in which they ended."""
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith("tools/call")]

    @property
    def call(self) -> ReadableSpan:
        """The only one of a tool call."""
        (span,) = self.calls
        return span

    def tree(self) -> list[str]:
        """All spans, each indented under its parent, in the order in which they began."""
        everything = self.all
        by_id = {span.context.span_id: span for span in everything if span.context is not None}

        def depth(span: ReadableSpan) -> int:
            parent = None if span.parent is None else by_id.get(span.parent.span_id)
            return 0 if parent is None else depth(parent) + 1

        def path(span: ReadableSpan) -> list[int]:
            parent = None if span.parent is None else by_id.get(span.parent.span_id)
            return [*(path(parent) if parent is not None else []), everything.index(span)]

        return ["  " * depth(span) + span.name for span in sorted(everything, key=path)]


class Metering:
    """A meter provider of a test's own, and what it has counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])
        monkeypatch.setattr(metrics, "instruments", Instruments(self.provider.get_meter("gaia.mcp")))

    def points(self, name: str) -> list[Any]:
        """The data points of one metric; empty if nothing was recorded."""
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def value(self, name: str, **attributes: Any) -> float:
        """The sum over all points with these attributes, dots written as two underscores."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return sum(
            point.value if isinstance(point, NumberDataPoint) else point.count
            for point in self.points(name)
            if wanted.items() <= dict(point.attributes or {}).items()
        )


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    """Its attributes, as a dict that can be compared."""
    return dict(span.attributes or {})
