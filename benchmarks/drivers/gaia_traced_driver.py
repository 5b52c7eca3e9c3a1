"""gaia-mcp in a program that traces: every call has a span, which is handed to an exporter that throws it away.

With ``--unsampled`` the sampler takes none, and only the trace's context is passed on. With ``--metrics`` there is a
meter in place of the tracer. Any other argument says what spans record of arguments and results, in the words of
OpenTelemetry's variable.
"""

from __future__ import annotations

import os
import sys

from driving import batching_provider, drive
from gaia_driver import Gaia


class TracedGaia(Gaia):
    def __init__(self, *, sampled: bool) -> None:
        super().__init__()
        self._sampled = sampled

    def load(self) -> None:
        super().load()
        from opentelemetry import trace

        trace.set_tracer_provider(batching_provider(sampled=self._sampled))


class MeteredGaia(Gaia):
    def load(self) -> None:
        super().load()
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        # It reads only when it is asked to: what is measured is recording.
        metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))


if __name__ == "__main__":
    words = sys.argv[1:]
    content = "".join(word for word in words if not word.startswith("--"))
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = content
    drive(MeteredGaia() if "--metrics" in words else TracedGaia(sampled="--unsampled" not in words))
