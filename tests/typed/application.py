"""An application as a type checker sees it. The project's run of mypy checks this program; nothing runs it.

Settings of mypy for this file (see pyproject.toml) refuse every expression whose type contains `Any`.
"""

from __future__ import annotations

from typing import assert_type

import gaia
import gaia.mcp
from gaia.mcp import (
    AudioContent,
    CallFuture,
    ContentBlock,
    Delivery,
    EmbeddedResource,
    ImageContent,
    MCPClient,
    MCPClientManager,
    MCPTool,
    ResourceContents,
    ResourceLink,
    TextContent,
    ToolResult,
)


def results(manager: MCPClientManager, client: MCPClient, tool: MCPTool) -> None:
    arguments: dict[str, str] = {"zone": "UTC"}
    for result in (
        manager.call_tool("mcp_time_now", arguments),
        client.call_tool("now"),
        manager.submit_tool("mcp_time_now").result(),
        client.submit_tool("now").result(),
        client.create_tool_wrapper(tool)(zone="UTC"),
    ):
        assert_type(result, ToolResult)


def members(result: ToolResult) -> list[str]:
    assert_type(result.is_error, bool)
    assert_type(result.error, str | None)
    assert_type(result.text, str)
    assert_type(result.raise_for_error(), ToolResult)
    assert_type(result.content, list[ContentBlock])
    assert_type(result["content"], list[ContentBlock])
    assert_type(result["isError"], bool)
    assert_type(result["error"], str)
    assert_type(result["error_type"], str)
    assert_type(result["delivery"], Delivery)
    return [described(block) for block in result.content]


def described(block: ContentBlock) -> str:
    """A type checker tells the blocks apart by their type."""
    if block["type"] == "text":
        assert_type(block, TextContent)
        return block["text"]
    if block["type"] == "resource":
        assert_type(block, EmbeddedResource)
        contents: ResourceContents = block["resource"]
        return contents.get("text", contents["uri"])
    if block["type"] == "resource_link":
        assert_type(block, ResourceLink)
        return block.get("title", block["name"])
    assert_type(block, ImageContent | AudioContent)
    return block["mimeType"]


def structured(result: ToolResult) -> float:
    value = result.structured
    if isinstance(value, dict) and isinstance(celsius := value.get("celsius"), float):
        return celsius
    raise ValueError("no temperature")


def misspelt() -> None:
    """The names that are loaded on first use are known, and others are not."""
    print(gaia.Consol)  # type: ignore[attr-defined, misc]
    print(gaia.mcp.McpClient)  # type: ignore[attr-defined, misc]


def later(future: CallFuture) -> str:
    return future.result(timeout=5).text
