"""Which agent a request goes to; bridges that are served are in `tests/serving`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gaia.mcp.mcp_bridge import MCPBridge, namespace_of
from tests.serving.agents import QuietAgent, tool


class Helper(QuietAgent):
    """Has what its keywords say, and tells which agent was asked."""

    def __init__(self, name: str, **offered: Any) -> None:
        super().__init__(silent_mode=True)
        self.name = name
        self.offered = offered
        self.levels: list[str] = []

    def get_mcp_tool_definitions(self) -> list[dict[str, Any]]:
        return [tool(name) for name in self.offered.get("tools", ())]

    def execute_mcp_tool(self, tool_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"agent": self.name, "tool": tool_name}

    def get_mcp_instructions(self) -> str:
        return self.offered.get("instructions", "")  # type: ignore[no-any-return]

    def get_mcp_prompts(self) -> list[dict[str, Any]]:
        return [{"name": name} for name in self.offered.get("prompts", ())]

    def get_mcp_prompt(self, name: str, arguments: dict[str, str]) -> Any:
        return f"{self.name}: {name} {arguments}"

    def get_mcp_resources(self) -> list[dict[str, Any]]:
        return [{"uri": uri, "name": uri} for uri in self.offered.get("resources", ())]

    def get_mcp_resource_templates(self) -> list[dict[str, Any]]:
        return [{"uriTemplate": uri, "name": uri} for uri in self.offered.get("templates", ())]

    def read_mcp_resource(self, uri: str) -> Any:
        if error := self.offered.get("error"):
            raise error
        return f"{uri} of {self.name}"

    def complete_mcp_argument(
        self, reference: dict[str, Any], name: str, value: str, arguments: dict[str, str]
    ) -> list[str]:
        return [f"{self.name}: {reference.get('name') or reference.get('uri')}"]

    def set_mcp_logging_level(self, level: str) -> None:
        self.levels.append(level)


def bridge(*agents: Helper, **options: Any) -> MCPBridge:
    return MCPBridge({agent.name: agent for agent in agents}, **options)


def test_of_two_tools_with_one_name_the_first_has_it() -> None:
    both = bridge(Helper("a", tools=["b_c"]), Helper("a_b", tools=["c"]))
    assert both.execute_mcp_tool("a_b_c", {}) == {"agent": "a", "tool": "b_c"}


def test_an_agent_that_cannot_list_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Helper):
        def get_mcp_prompts(self) -> list[dict[str, Any]]:
            raise OSError("disk full")

    both = bridge(Broken("broken"), Helper("b", prompts=["p"]))
    assert [one["name"] for one in both.get_mcp_prompts()] == ["b_p"]
    assert "agent_left_out" in caplog.text


def test_what_an_agent_defines_is_not_changed() -> None:
    agent = Helper("a", tools=["t"])
    definition = agent.get_mcp_tool_definitions()[0]
    agent.get_mcp_tool_definitions = lambda: [definition]  # type: ignore[method-assign]
    assert bridge(agent).get_mcp_tool_definitions() == [{**definition, "name": "a_t"}]
    assert definition["name"] == "t"


def test_a_prompt_is_asked_of_its_agent_by_the_agents_own_name_for_it() -> None:
    both = bridge(Helper("a", prompts=["p"]), Helper("b", prompts=["p"]))
    assert both.get_mcp_prompt("b_p", {"x": "1"}) == "b: p {'x': '1'}"
    with pytest.raises(ValueError, match="Unknown prompt: p"):
        both.get_mcp_prompt("p", {})


def test_instructions_are_told_under_their_namespaces() -> None:
    several = bridge(Helper("a", instructions="Ask first."), Helper("b"), Helper("c", instructions="Be brief."))
    assert several.get_mcp_instructions() == "Tools named a_…: Ask first.\n\nTools named c_…: Be brief."
    assert bridge(Helper("b")).get_mcp_instructions() == ""


class TestResources:
    def test_the_agent_that_lists_it_comes_before_those_that_may_know_it(self) -> None:
        several = bridge(Helper("any"), Helper("owner", resources=["note:///a"]))
        assert several.read_mcp_resource("note:///a") == "note:///a of owner"
        assert several.read_mcp_resource("note:///b") == "note:///b of any"

    def test_an_agent_that_does_not_know_it_is_passed_over(self) -> None:
        several = bridge(Helper("a", error=ValueError("Unknown resource")), Helper("b"))
        assert several.read_mcp_resource("note:///a") == "note:///a of b"

    @pytest.mark.parametrize("error", [json.JSONDecodeError("broken", "", 0), OSError("disk full")])
    def test_an_agent_that_fails_is_not(self, error: Exception) -> None:
        several = bridge(Helper("a", resources=["note:///a"], error=error), Helper("b"))
        with pytest.raises(type(error)):
            several.read_mcp_resource("note:///a")

    def test_all_of_them_are_listed(self) -> None:
        several = bridge(Helper("a", resources=["x"], templates=["y"]), Helper("b", resources=["z"]))
        assert [one["uri"] for one in several.get_mcp_resources()] == ["x", "z"]
        assert [one["uriTemplate"] for one in several.get_mcp_resource_templates()] == ["y"]


class TestSuggestions:
    @pytest.mark.parametrize(
        ("reference", "suggested"),
        [
            ({"type": "ref/prompt", "name": "b_p"}, ["b: p"]),
            ({"type": "ref/resource", "uri": "note:///{title}"}, ["a: note:///{title}"]),
            ({"type": "ref/resource", "uri": "other:///{title}"}, []),
        ],
    )
    def test_come_from_the_agent_of_the_prompt_or_template(
        self, reference: dict[str, Any], suggested: list[str]
    ) -> None:
        both = bridge(Helper("a", templates=["note:///{title}"]), Helper("b", prompts=["p"]))
        assert both.complete_mcp_argument(reference, "title", "", {}) == suggested

    def test_there_are_none_for_a_prompt_that_does_not_exist(self) -> None:
        with pytest.raises(ValueError, match="Unknown prompt: c_p"):
            bridge(Helper("a")).complete_mcp_argument({"type": "ref/prompt", "name": "c_p"}, "x", "", {})


def test_every_agent_hears_which_log_messages_are_wanted() -> None:
    agents = [Helper("a"), Helper("b")]
    bridge(*agents).set_mcp_logging_level("error")
    assert [agent.levels for agent in agents] == [["error"], ["error"]]


def test_it_appears_as_a_server_of_its_own() -> None:
    assert bridge().get_mcp_server_info() == {"name": "GAIA bridge", "version": "2.0.0"}
    assert bridge(name="mine", version="1").get_mcp_server_info() == {"name": "mine", "version": "1"}


@pytest.mark.parametrize(("name", "namespace"), [("CodeAgent", "code"), ("Agent", "agent"), ("Notes", "notes")])
def test_a_namespace_is_the_name_of_the_class_in_short(name: str, namespace: str) -> None:
    assert namespace_of(type(name, (), {})()) == namespace
