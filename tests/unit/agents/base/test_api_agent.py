"""An agent as a model: its name and its limits."""

from __future__ import annotations

import pytest

from gaia.agents.base import ApiAgent, MCPAgent
from tests.silent_agent import SilentAgent


@pytest.mark.parametrize(
    ("name", "model"), [("CodeAgent", "gaia-code"), ("Jira", "gaia-jira"), ("Agent", "gaia-agent")]
)
def test_the_model_is_named_after_the_class(name: str, model: str) -> None:
    cls: type[ApiAgent] = type(name, (ApiAgent, SilentAgent), {})
    assert cls().get_model_id() == model


def test_the_model_tells_its_limits() -> None:
    class CodeAgent(ApiAgent, SilentAgent): ...

    info = CodeAgent().get_model_info()
    assert set(info) == {"max_input_tokens", "max_output_tokens", "description"}
    assert "CodeAgent" in info["description"]


def test_it_combines_with_an_mcp_agent_in_either_order() -> None:
    methods = {"get_mcp_tool_definitions": lambda self: [], "execute_mcp_tool": lambda self, name, arguments: {}}
    for bases in [(MCPAgent, ApiAgent, SilentAgent), (ApiAgent, MCPAgent, SilentAgent)]:
        agent = type("BothAgent", bases, methods)(silent_mode=True)
        assert agent.get_model_id() == "gaia-both"
        assert agent.get_mcp_server_info()["name"] == "GAIA BothAgent"
