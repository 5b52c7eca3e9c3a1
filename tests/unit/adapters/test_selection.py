from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from gaia.adapters.selection import ToolSelection, once_per_tool
from gaia.mcp import ConfigError, MCPClientManager, MCPTool
from gaia.mcp.aio import AsyncMCPClientManager
from gaia.testing import FakeServer


def look_up(text: str) -> str:
    return text


def delete(text: str) -> str:
    return f"deleted {text}"


@pytest.fixture
def servers() -> dict[str, FakeServer]:
    return {name: FakeServer(name, tools=[look_up, delete]) for name in ("a", "a_b")}


@pytest.fixture
def manager(servers: dict[str, FakeServer]) -> Iterator[MCPClientManager]:
    with MCPClientManager(servers) as manager:
        manager.require()
        yield manager


def names(selection: ToolSelection) -> list[str | None]:
    return [tool.namespaced_name for tool in selection.list_tools()]


class TestTools:
    def test_a_selection_has_the_tools_of_its_servers_that_are_not_excluded(self, manager: MCPClientManager) -> None:
        assert len(names(ToolSelection(manager))) == 4
        # The name of a server is no prefix of another's.
        assert names(ToolSelection(manager, servers=["a"])) == ["mcp_a_look_up", "mcp_a_delete"]
        assert names(ToolSelection(manager, servers=["*"], tools=["look_*"], exclude=["mcp_a_b_*"])) == [
            "mcp_a_look_up"
        ]
        assert names(ToolSelection(manager, tools=[])) == []

    @pytest.mark.parametrize("keyword", ["tools", "servers", "exclude", "approve"])
    def test_a_lone_text_is_no_list_of_patterns(self, manager: MCPClientManager, keyword: str) -> None:
        with pytest.raises(ConfigError, match=rf"{keyword}: expected a list of patterns"):
            ToolSelection(manager, **{keyword: "get_*"})  # type: ignore[arg-type]

    def test_a_selection_takes_no_further_options(self, manager: MCPClientManager) -> None:
        selection = ToolSelection(manager)

        assert ToolSelection.of(selection) is selection
        with pytest.raises(ValueError, match="tools: give this to the ToolSelection"):
            ToolSelection.of(selection, tools=["look_up"])

    def test_a_tool_outside_of_it_is_not_called(
        self, manager: MCPClientManager, servers: dict[str, FakeServer]
    ) -> None:
        readers = ToolSelection(manager, exclude=["delete"])

        for result in (
            readers.call("mcp_a_delete", {"text": "x"}),
            asyncio.run(readers.call_async("mcp_a_delete", {"text": "x"})),
            readers.call("mcp_a_unknown", {}),
        ):
            assert (result["error_type"], result["delivery"]) == ("denied", "not_sent")
        assert readers.call("mcp_a_look_up", {"text": "x"}).text == "x"
        assert [call.tool for call in servers["a"].calls] == ["look_up"]


class TestCalls:
    def test_both_kinds_of_managers_are_called_in_both_ways(self, manager: MCPClientManager) -> None:
        for each in (manager, AsyncMCPClientManager.over(manager)):
            selection = ToolSelection.of(each)
            assert selection.manager is manager
            assert selection.call("mcp_a_look_up", {"text": "a"}).text == "a"
            assert asyncio.run(selection.call_async("mcp_a_look_up", '{"text": "b"}')).text == "b"

    def test_arguments_that_cannot_be_read_are_a_failed_call(self, manager: MCPClientManager) -> None:
        selection = ToolSelection(manager)
        for result in (
            selection.call("mcp_a_look_up", "[]"),
            asyncio.run(selection.call_async("mcp_a_look_up", "[]")),
        ):
            assert (result["error_type"], result["delivery"]) == ("invalid_arguments", "not_sent")

    def test_a_tool_is_safe_by_its_annotations(self) -> None:
        safe = {"name": "read", "annotations": {"readOnlyHint": True}}
        with MCPClientManager({"a": FakeServer("a", tools=[safe, delete])}) as manager:
            manager.require()
            selection = ToolSelection(manager)
            assert selection.is_safe("mcp_a_read")
            assert not selection.is_safe("mcp_a_delete")
            assert not selection.is_safe("mcp_a_unknown")


class TestApproval:
    @pytest.mark.parametrize("answer", [True, False, "yes", None])
    def test_only_true_approves(self, manager: MCPClientManager, answer: Any) -> None:
        selection = ToolSelection(manager, approve=["delete"], on_approval=lambda *_: answer)

        for result in (
            selection.call("mcp_a_delete", {"text": "x"}),
            asyncio.run(selection.call_async("mcp_a_delete", {"text": "x"})),
        ):
            assert result.is_error is (answer is not True)

    def test_a_call_without_approval_is_refused_where_nobody_can_be_asked(self, manager: MCPClientManager) -> None:
        selection = ToolSelection(manager, approve=lambda _, arguments: arguments == {"text": "all"})

        assert selection.asks("mcp_a_delete", {"text": "all"})
        assert selection.call("mcp_a_delete", {"text": "all"})["error_type"] == "denied"
        assert selection.call("mcp_a_delete", {"text": "all"}, approved=True).text == "deleted all"
        assert selection.call("mcp_a_delete", {"text": "one"}).text == "deleted one"

    def test_a_person_who_is_asked_on_an_event_loop_does_not_block_it(self, manager: MCPClientManager) -> None:
        asked, thread = asyncio.Event(), threading.get_ident()

        async def awaited(*_: object) -> bool:
            await asked.wait()
            return True

        def blocking(*_: object) -> bool:
            return threading.get_ident() != thread

        async def main() -> None:
            first = ToolSelection(manager, approve=["*"], on_approval=awaited)
            call = asyncio.create_task(first.call_async("mcp_a_delete", {"text": "x"}))
            other = ToolSelection(manager, approve=["*"], on_approval=blocking)
            assert not (await other.call_async("mcp_a_delete", {"text": "y"})).is_error
            asked.set()
            assert (await call).text == "deleted x"

        asyncio.run(main())

    def test_a_coroutine_function_cannot_be_asked_by_a_call_that_blocks(self, manager: MCPClientManager) -> None:
        async def on_approval(*_: object) -> bool:
            return True

        selection = ToolSelection(manager, approve=["*"], on_approval=on_approval)
        with pytest.raises(TypeError, match="on_approval is a coroutine function"):
            selection.call("mcp_a_delete", {"text": "x"})


class TestDefinitions:
    def test_what_was_made_is_kept_until_the_tools_change(
        self, manager: MCPClientManager, servers: dict[str, FakeServer]
    ) -> None:
        made: list[list[str]] = []

        def make(_: ToolSelection, tools: list[MCPTool]) -> int:
            made.append([tool.name for tool in tools])
            return len(made)

        selection = ToolSelection(manager, servers=["a"])
        assert [selection.cached(make) for _ in range(3)] == [1, 1, 1]
        manager.remove_server("a_b")
        assert selection.cached(make) == 2
        manager.remove_server("a")
        assert selection.cached(make) == 3
        assert made == [["look_up", "delete"]] * 2 + [[]]

    def test_agents_with_equal_options_share_a_selection_for_as_long_as_one_uses_it(
        self, manager: MCPClientManager
    ) -> None:
        first = ToolSelection.shared(manager, tools=["look_*"])

        assert ToolSelection.shared(manager, tools=["look_*"]) is first
        assert ToolSelection.shared(manager, tools=["delete"]) is not first
        assert ToolSelection.shared(first) is first
        forgotten = weakref.ref(first)
        del first
        gc.collect()
        assert forgotten() is None

    def test_each_tool_is_made_once_and_forgotten_with_it(self) -> None:
        class Made:
            pass

        made = once_per_tool(lambda _: Made())
        tool, other = MCPTool("a", "", {}), MCPTool("a", "", {})
        first = made(tool)

        assert made(tool) is first
        # Equal, but not the same: 1 and True are equal, too.
        assert made(other) is not first
        forgotten = weakref.ref(first)
        del first, tool
        gc.collect()
        assert forgotten() is None


def test_instructions_are_those_of_the_servers_of_the_selected_tools() -> None:
    servers = {name: FakeServer(name, tools=[look_up], instructions=f"Use {name}.") for name in ("a", "b")}
    servers["c"] = FakeServer("c", tools=[look_up])
    with MCPClientManager(servers) as manager:
        manager.require()
        assert ToolSelection(manager, servers=["b", "c"]).instructions() == (
            "Instructions of the MCP server 'b':\nUse b."
        )
