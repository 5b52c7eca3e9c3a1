"""Prompts: their names, their list, and getting them."""

from __future__ import annotations

import asyncio

from gaia.testing import FakeServer
from tests.gateway.lines import asking


def greet(name: str) -> str:
    """Greet."""
    return f"Hello {name}"


def test_those_of_several_servers_are_listed_and_got() -> None:
    servers = {"a": FakeServer("a", prompts=[greet]), "b": FakeServer("b", prompts=[greet], protocol="2026-07-28")}

    async def use() -> None:
        async with asking(servers) as lines:
            listed = await lines.ask("prompts/list")
            assert [prompt["name"] for prompt in listed["prompts"]] == ["a_greet", "b_greet"]
            assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
            got = await lines.ask("prompts/get", {"name": "b_greet", "arguments": {"name": "Ada"}})
            assert got["messages"][0]["content"]["text"] == "Hello Ada"

    asyncio.run(use())


def test_one_that_does_not_exist_is_said_to_be_unknown() -> None:
    async def use() -> None:
        async with asking({"a": FakeServer("a", prompts=[greet])}) as lines:
            error = await lines.ask("prompts/get", {"name": "greet"})
            assert (error["code"], error["message"]) == (-32602, "Unknown prompt: greet")

    asyncio.run(use())
