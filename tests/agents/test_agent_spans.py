"""The trace of a run: one tree, across the threads that the work is done on and into the servers' calls."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from gaia.agents.base import agent_spans
from gaia.agents.base.llm import LLMError, LLMSettings
from gaia.agents.base.tools import tool
from gaia.mcp import MCPClientMixin
from tests.servers.scripted_llm import Reply, scripted_llm
from tests.silent_agent import SilentAgent
from tests.tracing import Tracing

pytestmark = pytest.mark.usefixtures("empty_registry")


class TracedAgent(SilentAgent, MCPClientMixin):
    def _register_tools(self) -> None:
        @tool
        def native() -> str:
            """Do it."""
            return "done"


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Tracing:
    """The spans of agents and of their clients."""
    provider = TracerProvider()
    monkeypatch.setattr(agent_spans, "_tracer", provider.get_tracer("test"))
    return Tracing.installed(monkeypatch, provider)


def test_a_run_is_one_tree(tracing: Tracing, demo_server: dict[str, Any]) -> None:
    calls = [("native", {}), ("mcp_demo_add", {"a": 1, "b": 2})]
    with scripted_llm(Reply(calls=calls, usage=(7, 3)), Reply("Done.")) as endpoint:
        agent = TracedAgent(llm=LLMSettings(endpoint.base_url, "scripted"), auto_load_config=False)
        try:
            agent.connect_mcp_server("demo", demo_server)
            # Another thread ends the spans of the start.
            tracing.wait_for("gaia.mcp.start demo")
            tracing.clear()
            agent.run("Go.")
        finally:
            agent.close_mcp()
    finished = {span.name: span for span in tracing.all}
    assert set(finished) == {
        "invoke_agent TracedAgent",
        "chat scripted",
        "execute_tool native",
        "tools/call add",
        "gaia.mcp.close demo",
    }
    root = finished["invoke_agent TracedAgent"]
    assert root.parent is None
    for name, span in finished.items():
        if span is not root and not name.startswith("gaia.mcp.close"):
            assert span.parent is not None, name
            assert span.parent.span_id == root.context.span_id, name
    first_chat = next(span for span in tracing.all if span.name == "chat scripted")
    assert first_chat.attributes is not None
    assert dict(first_chat.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.finish_reasons": ("tool_calls",),
    }


def test_a_failure_is_told_by_its_kind_and_not_by_its_words(tracing: Tracing) -> None:
    body = '{"error": {"message": "the text of the conversation"}}'
    with scripted_llm(Reply(status=400, body=body)) as endpoint:
        agent = TracedAgent(llm=LLMSettings(endpoint.base_url, "scripted"), auto_load_config=False)
        with pytest.raises(LLMError):
            agent.run("Go.")
    for span in tracing.all:
        assert span.attributes is not None
        assert span.attributes["error.type"] == "LLMRequestRefused"
        assert "conversation" not in span.to_json()
