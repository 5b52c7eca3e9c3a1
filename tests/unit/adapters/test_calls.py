from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gaia.adapters.calls import call_tool, call_tool_async, is_safe, synchronous
from gaia.mcp import MCPClientManager
from gaia.mcp.aio import AsyncMCPClientManager


@pytest.fixture
def manager(demo_server: dict[str, Any]) -> Any:
    with MCPClientManager({"demo": demo_server}) as manager:
        manager.require("demo")
        yield manager


def test_both_kinds_of_managers_are_called_in_both_ways(manager: MCPClientManager) -> None:
    for each in (manager, AsyncMCPClientManager.over(manager)):
        assert synchronous(each) is manager
        assert call_tool(each, "mcp_demo_echo", {"text": "a"}).text == "a"
        assert asyncio.run(call_tool_async(each, "mcp_demo_echo", '{"text": "b"}')).text == "b"


def test_arguments_that_cannot_be_read_are_a_failed_call(manager: MCPClientManager) -> None:
    for result in (
        call_tool(manager, "mcp_demo_echo", "[]"),
        asyncio.run(call_tool_async(manager, "mcp_demo_echo", "[]")),
    ):
        assert (result["error_type"], result["delivery"]) == ("invalid_arguments", "not_sent")


def test_a_tool_is_safe_by_its_annotations(manager: MCPClientManager) -> None:
    assert is_safe(manager, "mcp_demo_echo")
    assert not is_safe(manager, "mcp_demo_counter")
    assert not is_safe(manager, "mcp_demo_unknown")
