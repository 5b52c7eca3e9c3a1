"""gaia-mcp in a program that traces: every call has a span, which is handed to an exporter that throws it away.

With ``--unsampled`` the sampler takes none, and only the trace's context is passed on. Any other argument says what
spans record of arguments and results, in the words of OpenTelemetry's variable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from driving import drive
from gaia_driver import Gaia


class TracedGaia(Gaia):
    def __init__(self, *, sampled: bool) -> None:
        super().__init__()
        self._sampled = sampled

    def load(self) -> None:
        super().load()
        from opentelemetry import trace
        from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
        from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

        class Discard(SpanExporter):
            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                return SpanExportResult.SUCCESS

        provider = TracerProvider(sampler=ALWAYS_ON if self._sampled else ALWAYS_OFF)
        provider.add_span_processor(BatchSpanProcessor(Discard()))
        trace.set_tracer_provider(provider)


if __name__ == "__main__":
    sampled = "--unsampled" not in sys.argv
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "".join(sys.argv[1:]) if sampled else ""
    drive(TracedGaia(sampled=sampled))
