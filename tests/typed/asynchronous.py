"""An asyncio program, adapters of agent frameworks and tests without servers, as a type checker sees them.

The project's run of mypy checks this program strictly; nothing runs it. Entries of servers are of any JSON, so `Any` is
allowed here, and the types of what comes back are asserted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict, assert_type

import gaia.testing
from gaia.adapters import anthropic, openai
from gaia.adapters.results import Shown, content_for_model, text_for_model
from gaia.mcp import Event, MCPClientManager, MCPTool, ToolResult
from gaia.mcp.aio import AsyncMCPClient, AsyncMCPClientManager
from gaia.testing import FakeCall, FakeClock, FakeServer, record, replay


async def on_progress(done: float, total: float | None, message: str | None) -> None:
    """A coroutine function reports progress as well as a function does."""


async def calls(manager: AsyncMCPClientManager, client: AsyncMCPClient) -> ToolResult:
    arguments: dict[str, str] = {"zone": "UTC"}
    assert_type(await manager.call_tool("mcp_time_now", arguments, timeout=5), ToolResult)
    assert_type(await client.call_tool("now", on_progress=on_progress), ToolResult)
    tools: list[MCPTool] = await manager.list_tools()
    return await manager.call_tool(tools[0].namespaced_name or tools[0].name)


async def life(servers: dict[str, dict[str, str]]) -> list[Event]:
    async with AsyncMCPClientManager(servers) as manager:
        assert_type(manager, AsyncMCPClientManager)
        assert_type(manager.sync, MCPClientManager)
        assert_type(AsyncMCPClientManager.over(manager.sync), AsyncMCPClientManager)
        return [event async for event in manager.events()]


def shown(result: ToolResult) -> str:
    parts: list[Shown] = content_for_model(result, safe_to_repeat=True)
    first = parts[0]
    return first["text"] if first["type"] == "text" else f"{first['mimeType']}: {text_for_model(result)}"


class ToolParam(TypedDict, total=False):
    """As the packages ``openai`` and ``anthropic`` have it: their definitions, messages and items are typed dicts."""

    type: Literal["function"]


class MessageParam(TypedDict):
    role: Literal["tool"]
    content: str


async def models_own_types(manager: AsyncMCPClientManager, call: object) -> list[MessageParam]:
    tools: list[ToolParam] = openai.openai_tools(manager, "responses") + anthropic.anthropic_tools(manager)
    messages: list[MessageParam] = [{"role": "tool", "content": f"{len(tools)} tools"}]
    messages += [openai.run_tool_call(manager, call), await openai.run_tool_call_async(manager, call)]
    messages += [anthropic.run_tool_call(manager, call), await anthropic.run_tool_call_async(manager, call)]
    return messages


def now(zone: str) -> str:
    """The time."""
    return zone


def faults() -> list[FakeCall]:
    clock = FakeClock()
    server = FakeServer("time", tools=[now], clock=clock)
    server.crash(tool="now", nth=2)
    server.delay(0.5)
    with MCPClientManager({"time": server}) as manager:
        assert_type(manager.call_tool("mcp_time_now", {"zone": "UTC"}), ToolResult)
    clock.advance(1)
    return server.calls


def cassettes(manager: MCPClientManager, awaited: AsyncMCPClientManager, file: Path) -> str:
    with record(awaited, file) as of_a_loop:
        assert_type(of_a_loop, AsyncMCPClientManager)
    with record(manager, file) as recorded:
        assert_type(recorded, MCPClientManager)
    with replay(file) as servers, MCPClientManager(servers) as replayed:
        return replayed.call_tool("mcp_time_now").text


def misspelt() -> None:
    """The names that are loaded on first use are known, and others are not."""
    print(gaia.testing.FakeSever)  # type: ignore[attr-defined]
