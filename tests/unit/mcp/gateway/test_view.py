"""What is seen at one path by clients with one profile."""

from __future__ import annotations

import asyncio

from gaia.mcp.client.tool_filter import ToolFilter
from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.profile import Profile
from gaia.mcp.gateway.view import View
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
