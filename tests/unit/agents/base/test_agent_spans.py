"""The spans around a run, a request to the model and a native tool; whole runs are traced in `tests/agents`."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from gaia.agents.base import agent_spans
from gaia.agents.base.agent_spans import agent_span, chat_span, native_tool_span, set_completion
from tests.tracing import Tracing, attributes_of


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Tracing:
    provider = TracerProvider()
    monkeypatch.setattr(agent_spans, "_tracer", provider.get_tracer("test"))
    return Tracing(provider)


def test_each_has_the_name_kind_and_attributes_of_the_convention(tracing: Tracing) -> None:
    with agent_span("CodeAgent"), chat_span("small"), native_tool_span("add"):
        pass
    assert tracing.tree() == ["invoke_agent CodeAgent", "  chat small", "    execute_tool add"]
    assert [(span.kind, attributes_of(span)) for span in tracing.all] == [
        (SpanKind.INTERNAL, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "CodeAgent"}),
        (SpanKind.CLIENT, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "small"}),
        (SpanKind.INTERNAL, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add"}),
    ]
    assert {span.status.status_code for span in tracing.all} == {StatusCode.UNSET}


@pytest.mark.parametrize(("reason", "reasons"), [("stop", {"gen_ai.response.finish_reasons": ("stop",)}), (None, {})])
def test_a_completion_is_told_by_its_tokens_and_its_reason(
    reason: str | None, reasons: dict[str, object], tracing: Tracing
) -> None:
    with chat_span("small") as span:
        set_completion(span, 7, 3, reason)
    told = {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3, **reasons}
    assert told.items() <= attributes_of(tracing.only("chat small")).items()
    assert ("gen_ai.response.finish_reasons" in attributes_of(tracing.only("chat small"))) == bool(reasons)


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_what_is_raised_passes_on_and_is_told_without_its_words(kind: type[BaseException], tracing: Tracing) -> None:
    with pytest.raises(kind, match="hunter2"), native_tool_span("add"):
        raise kind("the password is hunter2")
    span = tracing.only("execute_tool add")
    assert attributes_of(span)["error.type"] == kind.__name__
    assert span.status.status_code is StatusCode.ERROR
    assert "hunter2" not in span.to_json()
