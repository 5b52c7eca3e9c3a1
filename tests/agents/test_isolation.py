"""Two agents in one process whose servers have the same name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gaia.agents.base.llm import LLMSettings
from gaia.agents.base.tools import _TOOL_REGISTRY
from gaia.mcp import MCPClientMixin
from tests.servers.scripted_llm import Reply, scripted_llm
from tests.silent_agent import SilentAgent


class PlainAgent(SilentAgent, MCPClientMixin):
    def __init__(self, config_file: Any, **settings: Any) -> None:
        config_file.write_text("{}")
        super().__init__(config_file=str(config_file), **settings)


class SpecAgent(PlainAgent):
    """Registers as the specification's extension point shows: straight into the registry of the process."""

    def _register_mcp_tools(self, client: Any) -> None:
        for tool in client.list_tools():
            entry = tool.to_gaia_format(client.name)
            _TOOL_REGISTRY[entry["name"]] = entry | {"function": client.create_tool_wrapper(tool)}


def pid_of(result: Any) -> str:
    return str(result.get("data", result)["content"][0]["text"])


def test_each_calls_its_own_server_and_closes_without_the_other(
    tmp_path: Any, fault_server: Callable[..., dict[str, Any]]
) -> None:
    for cls in (PlainAgent, SpecAgent):
        one, other = (cls(tmp_path / f"{cls.__name__}-{number}.json") for number in (1, 2))
        try:
            one.connect_mcp_server("s", fault_server(tools=[{"name": "mine"}]))
            other.connect_mcp_server("s", fault_server(tools=[{"name": "yours"}]))
            pids = [pid_of(agent._execute_tool("mcp_s_pid", {})) for agent in (one, other)]
            assert pids[0] != pids[1]
            assert "mcp_s_yours" not in one._tools_registry
            assert "mcp_s_mine" not in other.system_prompt
            assert {"mcp_s_mine", "mcp_s_yours", "mcp_s_pid"} <= _TOOL_REGISTRY.keys()
            one.close_mcp()
            assert pid_of(other._execute_tool("mcp_s_pid", {})) == pids[1]
            assert one._execute_tool("mcp_s_pid", {})["status"] == "error"
        finally:
            one.close_mcp()
            other.close_mcp()
        assert not [key for key in _TOOL_REGISTRY if key.startswith("mcp_s_")]


def test_a_model_is_offered_its_agents_tools_only(tmp_path: Any, fault_server: Callable[..., dict[str, Any]]) -> None:
    with scripted_llm(Reply(calls=[("mcp_s_yours", {})]), Reply("Not mine.")) as endpoint:
        llm = LLMSettings(endpoint.base_url, "scripted")
        one, other = PlainAgent(tmp_path / "1.json", llm=llm), PlainAgent(tmp_path / "2.json")
        try:
            one.connect_mcp_server("s", fault_server(tools=[{"name": "mine"}], only_tools=True))
            other.connect_mcp_server("s", fault_server(tools=[{"name": "yours"}], only_tools=True))
            (call,) = one.run("Go.").tool_calls
        finally:
            one.close_mcp()
            other.close_mcp()
    assert [entry["function"]["name"] for entry in endpoint.requests[0]["tools"]] == ["mcp_s_mine"]
    assert "Unknown tool" in json.loads(call.content)["error"]
