"""What OpenTelemetry itself takes for a span like that of a call: it has the attributes of a call that was traced.

With ``--around-call`` it is begun before and ended after a call of gaia-mcp that does not trace. It takes longer there
than in a loop of spans alone, because the call in between, with the threads that it wakes, uses the processor's caches
for other things. With ``--unsampled`` the sampler takes none.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from typing import Any

from driving import batching_provider, drive
from gaia_driver import Gaia

_TEXT_BYTES = 64
_PATIENCE_SECONDS = 30.0
_DESCRIBE = "--describe"


class Span:
    def load(self) -> None:
        from opentelemetry.trace import SpanKind

        self._kind = SpanKind.CLIENT
        self._tracer = batching_provider(sampled="--unsampled" not in sys.argv).get_tracer("benchmarks")

    def connect(self, argv: list[str], servers: int) -> None:
        # In a process of its own: a tracer cannot be taken from a process again.
        command = [sys.executable, __file__, _DESCRIBE, *argv]
        described = subprocess.run(command, capture_output=True, check=True, timeout=_PATIENCE_SECONDS)
        self._name, self._attributes = json.loads(described.stdout)

    def request(self, text: str) -> Any:
        """The span is that of a call with 64 B, whatever is asked for."""

    def call(self, server: int, request: Any) -> Any:
        self._tracer.start_span(self._name, kind=self._kind, attributes=self._attributes).end()

    def is_echo(self, request: Any, answer: Any) -> bool:
        return True


class SpanAroundCall(Span):
    def __init__(self) -> None:
        self._gaia = Gaia()
        self.request = self._gaia.request
        self.is_echo = self._gaia.is_echo
        self.close = self._gaia.close

    def load(self) -> None:
        super().load()
        self._gaia.load()

    def connect(self, argv: list[str], servers: int) -> None:
        super().connect(argv, servers)
        self._gaia.connect(argv, servers)

    def call(self, server: int, request: Any) -> Any:
        span = self._tracer.start_span(self._name, kind=self._kind, attributes=self._attributes)
        answer = self._gaia.call(server, request)
        span.end()
        return answer


def _describe(argv: list[str]) -> None:
    """Print what gaia-mcp records of a call by default."""
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
    json.dump([span.name, dict(span.attributes or {})], sys.stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == [_DESCRIBE]:
        _describe(sys.argv[2:])
    else:
        drive(SpanAroundCall() if "--around-call" in sys.argv else Span())
