"""The trace context that goes to the other side, and the one that comes from there."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.trace.span import TraceState

from gaia.telemetry import propagation

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def a_span(**fields: Any) -> NonRecordingSpan:
    return NonRecordingSpan(SpanContext(0xAB, 0xCD, is_remote=False, **fields))


class TestInject:
    @pytest.mark.parametrize("flags", [0, 1])
    @pytest.mark.parametrize("state", [(), (("vendor", "1"), ("other", "2"))])
    def test_it_writes_what_the_standard_propagators_write(
        self, flags: int, state: tuple[tuple[str, str], ...]
    ) -> None:
        span = a_span(trace_flags=TraceFlags(flags), trace_state=TraceState(state))
        written: dict[str, Any] = {"progressToken": 7}
        expected = dict(written)
        propagation.inject(written, span, Context())
        propagate.inject(expected, trace.set_span_in_context(span, Context()))
        assert written == expected
        assert written.keys() >= {"progressToken", "traceparent"}

    def test_baggage_goes_along(self) -> None:
        written: dict[str, Any] = {}
        propagation.inject(written, a_span(), baggage.set_baggage("customer", "7", Context()))
        assert written["baggage"] == "customer=7"
        assert "traceparent" in written

    def test_a_span_that_is_none_writes_nothing(self) -> None:
        written: dict[str, Any] = {}
        propagation.inject(written, trace.INVALID_SPAN, Context())
        assert written == {}

    @pytest.fixture
    def standard(self) -> Iterator[None]:
        before = propagate.get_global_textmap()
        yield
        propagate.set_global_textmap(before)

    def test_a_propagator_of_the_application_is_used_as_soon_as_it_is_set(self, standard: None) -> None:
        class Own(TraceContextTextMapPropagator):
            def inject(self, carrier: Any, *_: Any, **__: Any) -> None:
                carrier["own"] = "1"

        written: dict[str, Any] = {}
        propagation.inject(written, a_span(), Context())
        assert written.keys() == {"traceparent"}
        propagate.set_global_textmap(Own())
        own: dict[str, Any] = {}
        propagation.inject(own, a_span(), Context())
        assert own == {"own": "1"}


class TestExtract:
    def test_the_context_of_the_other_side(self) -> None:
        context = propagation.extract({"traceparent": REMOTE, "progressToken": 7})
        found = trace.get_current_span(context).get_span_context()
        assert f"{found.trace_id:032x}" in REMOTE
        assert found.is_remote

    @pytest.mark.parametrize("meta", [None, 5, [], {}, {"traceparent": 5}, {"traceparent": "junk"}, {"baggage": []}])
    def test_what_is_no_context_is_none(self, meta: Any) -> None:
        assert propagation.extract(meta) is None
