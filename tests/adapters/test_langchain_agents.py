"""An agent of `langchain.agents` follows the servers' lists of tools."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gaia.mcp import MCPClientManager

pytest.importorskip("langchain", reason="LangChain is not installed: pip install langchain")

from langchain.agents import create_agent

from gaia.adapters.langchain_agents import MCPToolsMiddleware
from tests.adapters.scripted_langchain import Run, run_async, run_sync, scripted


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
