"""What clients see: filtered, under names that stay, in lists that are encoded once."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.profile import Profile
from gaia.mcp.gateway.messages import RequestRefused
from gaia.mcp.gateway.views import view as view_module
from gaia.mcp.gateway.views.cached_list import CachedList
from gaia.mcp.gateway.views.upstream_servers import UpstreamServer
from gaia.mcp.gateway.views.view import MergedList, View, expanded, matches
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
        "p", servers=("a",), prompts=ToolFilter(["look"], ()), resources=ToolFilter(None, ["x:secret"]), read_only=True
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
        view.when_opening(opened.set, None)
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


async def test_a_listed_tool_that_the_manager_has_no_route_to_yet_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Gateway(servers()) as gateway:
        await asyncio.to_thread(gateway.manager.wait_ready, PATIENCE)
        view = View(gateway._servers, gateway._changes, None, Profile("p"))
        assert view.find_unlisted_tool("a_look") is None
        monkeypatch.setattr(gateway.manager._engine.registry, "routes", {})
        found = view.find_unlisted_tool("a_look")
        assert found is not None
        assert (found[0].name, found[1]) == ("a", "look")
        assert view.find_unlisted_tool("a_nothing") is None
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


SERVER = cast("UpstreamServer", object())


class Part:
    def __init__(self, ttl_ms: int, *, is_public: bool, is_offered: bool = True) -> None:
        self.ttl_ms, self.is_public, self.is_offered = ttl_ms, is_public, is_offered


def merged(*parts: Part, items: int = 1) -> MergedList:
    found = MergedList("prompts", 1)
    for part in parts:
        found.note(cast("CachedList", part))
    for number in range(items):
        found.add(f"p{number}", SERVER, "own", {"name": f"p{number}"})
    return found


def page(found: MergedList, cursor: str | None = None) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(found.page(cursor, stateless=True))
    return result


@pytest.mark.parametrize(
    ("parts", "ttl", "scope"),
    [
        ([], 0, "private"),
        ([Part(500, is_public=True), Part(300, is_public=True)], 300, "public"),
        ([Part(500, is_public=True), Part(0, is_public=True)], 0, "public"),
        ([Part(500, is_public=True), Part(300, is_public=False)], 300, "private"),
        ([Part(500, is_public=True), Part(0, is_public=False, is_offered=False)], 500, "public"),
    ],
)
def test_it_may_be_kept_as_long_as_each_part_and_by_whom_each_part_may(parts: list[Part], ttl: int, scope: str) -> None:
    result = page(merged(*parts))
    assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (ttl, scope, "complete")


def test_clients_of_the_handshake_era_are_told_nothing_of_that() -> None:
    assert json.loads(merged().page(None, stateless=False)) == {"prompts": [{"name": "p0"}]}


def test_long_lists_have_pages() -> None:
    found, names, cursor = merged(items=2_500), [], None
    while True:
        result = page(found, cursor)
        names += [item["name"] for item in result["prompts"]]
        cursor = result.get("nextCursor")
        if cursor is None:
            break
    assert names == [f"p{number}" for number in range(2_500)]


@pytest.mark.parametrize("cursor", ["", "0", "17", "3000", "-1000", "x", "1000000000000"])
def test_a_cursor_of_another_list_is_refused(cursor: str) -> None:
    with pytest.raises(RequestRefused):
        merged(items=2_500).page(cursor, stateless=True)


def test_marked_arguments_are_known_and_invalid_marks_are_left_aside() -> None:
    found = MergedList("tools", 1)
    region = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    found.add("good", SERVER, "good", {"name": "good", "inputSchema": region})
    found.add("bad", SERVER, "bad", {"name": "bad", "inputSchema": {"x-mcp-header": "Region"}})
    assert found.marks == {"good": {("region",): "Region"}}
