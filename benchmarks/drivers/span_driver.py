"""What OpenTelemetry itself takes for a span like that of a call: it has the attributes of a call that was traced."""

from __future__ import annotations

import queue
from typing import Any

from driving import drive
from gaia_driver import Gaia
from gaia_traced_driver import batching_provider

_TEXT_BYTES = 64
_PATIENCE_SECONDS = 30.0


class Span:
    def load(self) -> None:
        self._tracer = batching_provider(sampled=True).get_tracer("benchmarks")

    def connect(self, argv: list[str], servers: int) -> None:
        span = _span_of_a_call(argv)
        self._name, self._kind, self._attributes = span.name, span.kind, dict(span.attributes or {})

    def request(self, text: str) -> None:
        """The span is that of a call with 64 B, whatever is asked for."""

    def call(self, server: int, request: Any) -> None:
        self._tracer.start_span(self._name, kind=self._kind, attributes=self._attributes).end()

    def is_echo(self, request: Any, answer: Any) -> bool:
        return True


def _span_of_a_call(argv: list[str]) -> Any:
    """What gaia-mcp records of a call by default."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

    ended: queue.SimpleQueue[ReadableSpan] = queue.SimpleQueue()

    class Keep(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            ended.put(span)

    provider = TracerProvider()
    provider.add_span_processor(Keep())
    trace.set_tracer_provider(provider)
    gaia = Gaia()
    gaia.load()
    gaia.connect(argv, 1)
    request = gaia.request("x" * _TEXT_BYTES)
    assert gaia.is_echo(request, gaia.call(0, request))
    while not (span := ended.get(timeout=_PATIENCE_SECONDS)).name.startswith("tools/call"):
        continue
    gaia.disconnect()
    return span


if __name__ == "__main__":
    drive(Span())
