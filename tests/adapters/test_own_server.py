"""A server that is written with the SDK runs in memory, with either version of the SDK, and with FastMCP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gaia.mcp import MCPClientManager
from gaia.testing import FakeServer

pytest.importorskip("mcp", reason="the SDK is not installed")

import pydantic

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


class Pages(pydantic.BaseModel):
    pages: int


def kinds() -> dict[str, Any]:
    """The classes of servers that are installed, by their modules."""
    found = {}
    for module, name in (
        ("mcp.server.fastmcp", "FastMCP"),
        ("mcp.server.mcpserver", "MCPServer"),
        ("fastmcp", "FastMCP"),
    ):
        try:
            found[module] = getattr(__import__(module, fromlist=[name]), name)
        except (ImportError, AttributeError):
            continue
    return found


@pytest.fixture(params=kinds())
def own(request: pytest.FixtureRequest) -> Any:
    kind = kinds()[request.param]
    context = __import__(request.param, fromlist=["Context"]).Context
    server = kind("notes", instructions="Ask first.")

    async def count(steps: int, ctx: Any) -> dict[str, int]:
        for step in range(steps):
            await ctx.report_progress(step + 1, steps)
        return {"steps": steps}

    async def ask(ctx: Any) -> str:
        answer = await ctx.elicit("How many?", Pages)
        return f"{answer.data.pages} pages"

    for function in (count, ask):
        function.__annotations__["ctx"] = context
        server.tool()(function)

    @server.tool()
    def fail() -> str:
        """Always fails."""
        raise ValueError("no such note")

    @server.resource("notes://all")
    def everything() -> str:
        return "one note"

    @server.prompt()
    def summarize(topic: str) -> str:
        return f"Summarize {topic}."

    return server


def test_its_functions_are_called_under_supervision(own: Any) -> None:
    server = FakeServer.from_server(own)
    reports: list[Any] = []

    with MCPClientManager({"notes": server}) as manager:
        manager.require()
        result = manager.call_tool(
            "mcp_notes_count", {"steps": 2}, on_progress=lambda progress, total, _: reports.append((progress, total))
        )
        failed = manager.call_tool("mcp_notes_fail")
        server.crash(tool="count", after=True)
        crashed = manager.call_tool("mcp_notes_count", {"steps": 1})
        client = manager.get_client("notes")
        assert client is not None
        assert client.instructions == "Ask first."
        assert client.read_resource("notes://all")["contents"][0]["text"] == "one note"
        assert client.get_prompt("summarize", {"topic": "x"})["messages"][0]["content"]["text"] == "Summarize x."

    assert result.structured == {"steps": 2}
    assert reports == [(1, 2), (2, 2)]
    # The SDK tells or hides the exception's text, by its version.
    assert failed.is_error
    assert "error_type" not in failed
    assert (crashed["error_type"], crashed["delivery"]) == ("server_crashed", "unknown")


def test_its_questions_go_to_the_application(own: Any) -> None:
    servers = {"notes": FakeServer.from_server(own)}

    with MCPClientManager(servers, on_elicitation=lambda request: request.accept({"pages": 3})) as manager:
        manager.require()
        assert manager.call_tool("mcp_notes_ask").text == "3 pages"


def test_it_is_made_within_an_event_loop(own: Any) -> None:
    async def main() -> list[str]:
        return list(FakeServer.from_server(own).tools)

    assert sorted(asyncio.run(main())) == ["ask", "count", "fail"]


def test_what_is_no_server_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a FastMCP"):
        FakeServer.from_server(object())
