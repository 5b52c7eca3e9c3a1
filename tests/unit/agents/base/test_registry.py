from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from gaia.agents.base import registry as registry_module
from gaia.agents.base.registry import ToolRegistry
from gaia.agents.base.tools import _TOOL_REGISTRY, get_tool_display_name, tool, viewed_through
from tests.waiting import PATIENCE

Registry = dict[str, dict[str, Any]]


def entry(name: str) -> dict[str, Any]:
    return {"name": name}


@pytest.fixture
def shared() -> Registry:
    return {"native": entry("native")}


class TestIsolation:
    def test_an_agent_sees_its_own_and_the_shared_tools_and_no_other_agents(self, shared: Registry) -> None:
        one, other = ToolRegistry(shared), ToolRegistry(shared)
        one["a"], other["b"] = entry("a"), entry("b")
        assert list(one) == ["native", "a"]
        assert list(other) == ["native", "b"]
        assert "b" not in one
        assert list(shared) == ["native", "a", "b"]

    def test_two_agents_with_a_tool_of_the_same_name_have_one_each(self, shared: Registry) -> None:
        one, other = ToolRegistry(shared), ToolRegistry(shared)
        first, second = one["x"], other["x"] = entry("first"), entry("second")
        assert (one["x"], other["x"]) == (first, second)
        assert shared["x"] is first

    def test_an_own_tool_comes_before_a_shared_one_and_does_not_replace_it(self, shared: Registry) -> None:
        one, other = ToolRegistry(shared), ToolRegistry(shared)
        one["native"] = entry("mine")
        assert one["native"] == entry("mine")
        assert other["native"] == shared["native"] == entry("native")
        del one["native"]
        assert one["native"] == entry("native")

    def test_what_others_wrote_straight_into_the_shared_registry_is_seen(self, shared: Registry) -> None:
        one = ToolRegistry(shared)
        shared["late"] = entry("late")
        assert "late" in one

    def test_registries_over_different_shared_ones_have_nothing_to_do_with_each_other(self, shared: Registry) -> None:
        elsewhere: Registry = {}
        one, other = ToolRegistry(shared), ToolRegistry(elsewhere)
        one["x"], other["x"] = entry("a"), entry("b")
        del one["x"]
        assert "x" not in shared
        assert elsewhere["x"] == entry("b")


class TestTheEndOfAnAgent:
    def test_the_garbage_collector_does_not_wait_for_a_thread_that_uses_a_registry(self, shared: Registry) -> None:
        one, other = ToolRegistry(shared), ToolRegistry(shared)
        one["x"] = entry("x")
        held, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            with registry_module._holding():
                held.set()
                assert go_on.wait(PATIENCE)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(PATIENCE)
        del one
        gc.collect()
        go_on.set()
        thread.join(PATIENCE)
        assert list(other) == ["native"]
        assert "x" not in shared


class TestTheSharedRegistry:
    def test_only_the_owner_takes_an_entry_out(self, shared: Registry) -> None:
        one, other = ToolRegistry(shared), ToolRegistry(shared)
        one["x"] = entry("first")
        with pytest.raises(KeyError):
            del other["x"]
        del one["x"]
        assert "x" not in shared

    def test_a_name_that_becomes_free_goes_to_the_agent_that_has_waited_longest(self, shared: Registry) -> None:
        views = [ToolRegistry(shared) for _ in range(3)]
        for number, view in enumerate(views):
            view["x"] = entry(str(number))
        del views[0]["x"]
        assert shared["x"] == entry("1")
        del views[2]["x"]
        assert shared["x"] == entry("1")
        del views[1]["x"]
        assert "x" not in shared

    def test_an_entry_that_is_replaced_is_replaced_there_too(self, shared: Registry) -> None:
        one = ToolRegistry(shared)
        one["x"] = entry("old")
        one["x"] = entry("new")
        assert shared["x"] == entry("new")

    def test_clearing_it_takes_no_agent_its_own_tools(self, shared: Registry) -> None:
        one = ToolRegistry(shared)
        one["x"] = entry("x")
        shared.clear()
        assert list(one) == ["x"]
        del one["x"]
        assert list(one) == []

    def test_an_agent_that_is_gone_leaves_nothing_there(self, shared: Registry) -> None:
        view = ToolRegistry(shared)
        view["x"] = entry("x")
        del view
        gc.collect()
        assert list(shared) == ["native"]

    def test_the_names_of_an_agent_that_is_gone_go_to_those_that_have_waited_longest(self, shared: Registry) -> None:
        gone, late, early = (ToolRegistry(shared) for _ in range(3))
        gone["x"], early["x"], late["x"] = entry("gone"), entry("early"), entry("late")
        del gone
        gc.collect()
        assert shared["x"] is early["x"]
        del early["x"]
        assert shared["x"] is late["x"]

    def test_what_other_code_wrote_in_the_place_of_an_own_entry_belongs_to_no_agent(self, shared: Registry) -> None:
        one, other = ToolRegistry(shared), ToolRegistry(shared)
        one["x"] = entry("mine")
        shared["x"] = entry("replaced")
        assert (one["x"], other["x"]) == (entry("mine"), entry("replaced"))
        del one["x"]
        assert one["x"] == shared["x"] == entry("replaced")

    def test_a_shared_tool_can_be_removed_through_a_view(self, shared: Registry) -> None:
        del ToolRegistry(shared)["native"]
        assert shared == {}

    def test_entries_written_there_can_be_adopted_and_are_the_agents_own_then(self, shared: Registry) -> None:
        one, other = ToolRegistry(shared), ToolRegistry(shared)
        other["y"] = {"server": "s"}
        shared["x"] = {"server": "s"}
        one.adopt(lambda about: about.get("server") == "s")
        assert (list(one), list(other)) == (["native", "x"], ["native", "y"])
        one.discard(lambda about: about.get("server") == "s")
        assert (list(one), list(shared)) == (["native"], ["native", "y"])


class TestNativeTools:
    @pytest.fixture(autouse=True)
    def _cleaned(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in list(_TOOL_REGISTRY):
            monkeypatch.delitem(_TOOL_REGISTRY, name)

    def test_what_an_agent_collects_stays_bound_to_it(self) -> None:
        views = [ToolRegistry(), ToolRegistry()]
        for number, view in enumerate(views):
            with view.collecting():
                tool(name="who", description="")(lambda number=number: number)
        assert [view["who"]["function"]() for view in views] == [0, 1]
        assert ToolRegistry()["who"]["function"]() == 1
        del _TOOL_REGISTRY["who"]

    def test_a_bound_tool_can_be_removed(self) -> None:
        view = ToolRegistry()
        with view.collecting():
            tool(name="who", description="")(lambda: None)
        del view["who"]
        assert "who" not in view
        assert "who" not in _TOOL_REGISTRY

    def test_names_are_shown_as_the_agent_at_work_knows_them(self) -> None:
        one, other = ToolRegistry(), ToolRegistry()
        one["mcp_x"] = {"_mcp_server": "first", "_mcp_tool_name": "x"}
        other["mcp_x"] = {"_mcp_server": "second", "_mcp_tool_name": "x"}
        with viewed_through(other):
            assert get_tool_display_name("mcp_x") == "x (second)"
        assert get_tool_display_name("mcp_x") == "x (first)"


def test_a_view_looks_like_a_dict(shared: Registry) -> None:
    view = ToolRegistry(shared)
    view["x"] = entry("x")
    assert dict(view) == view.copy() == {"native": entry("native"), "x": entry("x")}
    assert (len(view), list(view.keys()), list(view.items())[1]) == (2, ["native", "x"], ("x", entry("x")))
    assert list(view.values()) == [entry("native"), entry("x")]
    assert repr(view) == "<ToolRegistry native, x>"
    with pytest.raises(KeyError):
        view["absent"]


def test_the_views_of_keys_values_and_items_show_one_moment() -> None:
    registry = ToolRegistry({})
    registry["a"] = {"name": "a"}
    keys, values, items = registry.keys(), registry.values(), registry.items()
    registry["b"] = {"name": "b"}
    assert (list(keys), list(values), list(items)) == (["a"], [{"name": "a"}], [("a", {"name": "a"})])
    assert registry.keys() - keys == {"b"}


class Tool(dict[str, Any]):
    """An entry of an MCP server, with its place in the server's list."""

    def __init__(self, server: str, position: int) -> None:
        super().__init__(_mcp_server=server)
        self.position = position


class TestOrder:
    """Models cache prompts that begin alike, so the list of tools must not depend on which server is ready first."""

    def test_tools_of_servers_follow_the_native_ones_in_the_order_of_the_servers(self, shared: Registry) -> None:
        one = ToolRegistry(shared)
        one["late_2"], one["late_1"] = Tool("late", 1), Tool("late", 0)
        one["early"] = Tool("early", 0)
        one["written"] = entry("written")
        shared["native2"] = entry("native2")
        one.server_order = lambda: ["early", "late"]
        assert list(one) == ["native", "native2", "written", "early", "late_1", "late_2"]
        one.server_order = lambda: ["late"]
        assert list(one) == ["native", "native2", "written", "late_1", "late_2", "early"]
