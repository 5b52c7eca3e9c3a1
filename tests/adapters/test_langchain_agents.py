"""An agent of `langchain.agents` follows the servers' lists of tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp import MCPClientManager

pytest.importorskip("langchain", reason="LangChain is not installed: pip install langchain")

from langchain.agents import create_agent

from gaia.adapters.langchain_agents import MCPToolsMiddleware
from tests.adapters.scripted_langchain import STATE, Run, run_async, run_sync, scripted


@pytest.mark.parametrize("run", [run_sync, run_async])
def test_the_middleware_follows_the_list_of_tools(
    manager: MCPClientManager, run: Run, until_grown: Callable[[], None]
) -> None:
    model = scripted(("mcp_ledger_grow", {}), until_grown, ("mcp_ledger_grown_1", {}), ("mcp_ledger_nothing", {}))

    _, grown, unknown = run(create_agent(model, middleware=[MCPToolsMiddleware(manager)]))

    assert grown.status == "success"
    assert unknown.status == "error"
    # The model is told of its tools before it plays the script's next step.
    assert "mcp_ledger_grown_1" not in model.shown[0]
    assert "mcp_ledger_grown_1" in model.shown[2]


def test_instructions_of_the_servers_follow_the_system_prompt(demo_of: Callable[..., Any]) -> None:
    model = scripted()
    with demo_of("Ask before you delete.") as manager:
        middleware = MCPToolsMiddleware(manager, instructions=True)
        create_agent(model, middleware=[middleware], system_prompt="Help.").invoke(STATE)

    assert model.prompts[0].startswith("Help.")
    assert model.prompts[0].endswith("Ask before you delete.")
