"""What an MCP agent has by default."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serving.agents import QuietAgent


class PromptAgent(QuietAgent):
    def get_mcp_prompts(self) -> list[dict[str, Any]]:
        return [{"name": "analyze", "description": "Analyze the code", "arguments": [{"name": "path"}]}]


@pytest.fixture
def agent() -> QuietAgent:
    return QuietAgent(silent_mode=True)


def test_a_prompt_is_its_description_with_its_arguments() -> None:
    agent = PromptAgent(silent_mode=True)
    assert agent.get_mcp_prompt("analyze", {"path": "a.py"}) == "Analyze the code\npath: a.py"
    with pytest.raises(ValueError, match="Unknown prompt: nonsense"):
        agent.get_mcp_prompt("nonsense", {})


def test_other_methods_have_defaults(agent: QuietAgent) -> None:
    assert agent.get_mcp_instructions() == ""
    assert agent.get_mcp_resource_templates() == []
    assert agent.complete_mcp_argument({"type": "ref/prompt", "name": "a"}, "b", "c", {}) == []
    agent.set_mcp_logging_level("debug")
    agent.notify_mcp_change("tools")
    with pytest.raises(ValueError, match="Unknown resource"):
        agent.read_mcp_resource("note:///a")


def test_it_offers_what_it_has_methods_for(agent: QuietAgent) -> None:
    assert not any(agent.offers_mcp(what) for what in ("prompts", "resources", "completions"))
    assert PromptAgent(silent_mode=True).offers_mcp("prompts")


def test_changes_reach_each_listener_until_it_is_removed(agent: QuietAgent) -> None:
    heard: list[tuple[str, str, str | None]] = []
    remove = [agent.add_mcp_listener(lambda what, uri, who=who: heard.append((who, what, uri))) for who in "ab"]  # type: ignore[misc]
    agent.notify_mcp_change("resource", "note:///a")
    remove[0]()
    agent.notify_mcp_change("tools")
    assert heard == [("a", "resource", "note:///a"), ("b", "resource", "note:///a"), ("b", "tools", None)]
