"""What is seen at one path by clients with one profile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.profile import Profile
from gaia.mcp.gateway.views import view as view_module
from gaia.mcp.gateway.views.view import View, expanded, matches
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.testing import FakeServer, FakeTool
from tests.waiting import PATIENCE


def look() -> str:
    """Look."""
    return ""


def change() -> str:
    """Change."""
    return ""


def servers() -> dict[str, FakeServer]:
    tools = [FakeTool(look, annotations={"readOnlyHint": True}), change]
    resources = {"x:open": "", "x:secret": ""}
    return {name: FakeServer(name, tools=tools, prompts=[look, change], resources=resources) for name in ("a", "b")}


async def seen(profile: Profile, server: str | None = None) -> dict[str, list[str]]:
    async with Gateway(servers()) as gateway:
        await asyncio.to_thread(gateway.manager.wait_ready, PATIENCE)
        view = View(gateway._servers, gateway._changes, server, profile)
        for when in (view.when_prompts_known, view.when_resources_known):
            known = asyncio.Event()
            when(known.set)
            await asyncio.wait_for(known.wait(), PATIENCE)
        assert [one.name for one in view.servers()] == [one for one in ("a", "b") if view.sees(one)]
        return {
            "tools": list(view.tools().routes),
            "prompts": list(view.prompts().routes),
            "resources": list(view.resources().routes),
            "owners": [one.name for one in view.servers_of_resource("x:secret")],
        }


def test_a_profile_filters_everything() -> None:
    profile = Profile(
        "p",
        servers=("a",),
        prompts=ToolFilter(["look"], ()),
        resources=ToolFilter(None, ["x:secret"]),
        read_only=True,
    )
    assert asyncio.run(seen(profile)) == {
        "tools": ["a_look"],
        "prompts": ["a_look"],
        "resources": ["x:open"],
        "owners": [],
    }


def test_one_server_has_its_own_names() -> None:
    found = asyncio.run(seen(Profile("p"), "b"))
    assert (found["tools"], found["prompts"], found["owners"]) == (["look", "change"], ["look", "change"], ["b"])


def test_names_do_not_depend_on_what_is_seen() -> None:
    everything = asyncio.run(seen(Profile("p")))
    part = asyncio.run(seen(Profile("p", servers=("b",))))
    assert set(part["tools"]) < set(everything["tools"])
    assert set(part["prompts"]) < set(everything["prompts"])
    assert everything["owners"] == ["a"]


@pytest.mark.process
async def test_a_session_opens_before_a_list_is_answered_without_a_server_that_does_not_start(
    fault_server: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "_OPENING_SECONDS", 0.01)
    monkeypatch.setattr(view_module, "_START_SECONDS", 10 * PATIENCE)
    silent = fault_server(faults=[{"on": "initialize", "freeze": True}, {"on": "server/discover", "freeze": True}])

    async with Gateway({"silent": silent}) as gateway:
        view = View(gateway._servers, gateway._changes, None, Profile("p"))
        opened, settled = asyncio.Event(), asyncio.Event()
        view.when_opening(opened.set)
        await asyncio.wait_for(opened.wait(), PATIENCE)
        view.when_settled(settled.set)
        assert not settled.is_set()


def test_clients_that_wait_ten_seconds_for_their_first_list_get_it() -> None:
    assert view_module._OPENING_SECONDS + view_module._START_SECONDS <= 8


@pytest.mark.process
async def test_a_server_that_does_not_start_is_waited_for_once(
    fault_server: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "_START_SECONDS", 0.01)
    silent = fault_server(faults=[{"on": "initialize", "freeze": True}, {"on": "server/discover", "freeze": True}])

    async with Gateway({"silent": silent}) as gateway:
        view = View(gateway._servers, gateway._changes, None, Profile("p"))
        first, second = asyncio.Event(), asyncio.Event()
        view.when_settled(first.set)
        assert not first.is_set()
        await asyncio.wait_for(first.wait(), PATIENCE)
        view.when_settled(second.set)
        assert second.is_set()


async def test_a_listed_tool_that_the_manager_has_no_route_to_yet_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Gateway(servers()) as gateway:
        await asyncio.to_thread(gateway.manager.wait_ready, PATIENCE)
        view = View(gateway._servers, gateway._changes, None, Profile("p"))
        assert view._find_unlisted_tool("a_look") is None
        monkeypatch.setattr(gateway.manager._engine.registry, "routes", {})
        found = view._find_unlisted_tool("a_look")
        assert found is not None
        assert (found[0].name, found[1]) == ("a", "look")
        assert view._find_unlisted_tool("a_nothing") is None
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("file:///{path}", "file:///a", True),
        ("file:///{path}", "http://a", False),
        ("db://{table}/rows/{id}", "db://users/rows/7", True),
        ("db://{table}/rows/{id}", "db://users/7", False),
        ("db://{table}.json", "db://users.json", True),
        ("db://{table}.json", "db://users.xml", False),
        ("ab{x}ba", "aba", False),
        ("plain://uri", "plain://uri", True),
        ("plain://uri", "plain://other", False),
    ],
)
def test_the_fixed_parts_have_to_stand_in_the_uri_in_their_order(template: str, uri: str, expected: bool) -> None:
    assert matches(template, uri) is expected


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("file:///{+path}", "file:///a/b%20c"),
        ("file:///etc{/path}", "file:///etc/a/b%20c"),
        ("db://{table}/rows{?id,path}", "db:///rows?id=7?path=a/b%20c"),
        ("db://{id:3}.{path*}{other}", "db://7.a/b%20c"),
        ("db://x{.id}{#id}{;id}{}", "db://x.7#7;id=7"),
        ("plain://uri", "plain://uri"),
    ],
)
def test_a_template_with_values(template: str, uri: str) -> None:
    assert expanded(template, {"path": "a/b c", "id": "7"}) == uri
