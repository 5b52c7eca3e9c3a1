"""What the demo keeps of spans."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from gaia.cli.span_collector import SpanCollector


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> TracerProvider:
    """What the application has set before."""
    provider = TracerProvider()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return provider


def test_tool_calls_are_kept_in_the_order_in_which_they_ended(provider: TracerProvider) -> None:
    collector = SpanCollector.install()
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("tools/call add", attributes={"gen_ai.tool.name": "add"}) as span:
        tracer.start_span("tools/call echo").end()
        tracer.start_span("tools/list").end()
        span.set_status(StatusCode.ERROR)
    echo, add = collector.take()

    assert (echo["name"], add["name"]) == ("tools/call echo", "tools/call add")
    assert (add["kind"], add["status"], add["attributes"]) == ("INTERNAL", "ERROR", {"gen_ai.tool.name": "add"})
    assert isinstance(echo["seconds"], float)
    assert 0 <= echo["seconds"] < 10


def test_each_span_is_taken_once(provider: TracerProvider) -> None:
    collector = SpanCollector.install()
    provider.get_tracer("test").start_span("tools/call echo").end()

    assert len(collector.take()) == 1
    assert collector.take() == []


def test_a_process_that_does_not_trace_does_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[TracerProvider] = []
    monkeypatch.setattr(trace, "set_tracer_provider", installed.append)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    collector = SpanCollector.install()
    (provider,) = installed
    provider.get_tracer("test").start_span("tools/call echo").end()

    assert provider.sampler is not ALWAYS_OFF
    assert len(collector.take()) == 1
