"""Tools: their names, their list, and calls."""

from __future__ import annotations

import asyncio

import pytest

from gaia.mcp.gateway import Gateway
from gaia.mcp.protocol.gateway_answers import FAILURE_KEY
from gaia.testing import FakeServer, FakeTool
from tests.gateway.lines import Lines, asking


def read() -> str:
    """Read."""
    return "text"


def test_a_definition_is_listed_as_the_server_sent_it_under_its_name_here() -> None:
    tool = FakeTool(read, title="Read it", _meta={"vendor/x": 1})

    async def use() -> None:
        async with asking({"files": FakeServer("files", tools=[tool])}) as lines:
            (listed,) = (await lines.ask("tools/list"))["tools"]
            assert listed["name"] == "files_read"
            assert (listed["title"], listed["_meta"]) == ("Read it", {"vendor/x": 1})

    asyncio.run(use())


def test_names_that_two_servers_would_share_stay_apart() -> None:
    servers = {"a": FakeServer("a", tools=[{"name": "b_c"}]), "a_b": FakeServer("a_b", tools=[{"name": "c"}])}

    async def use() -> None:
        async with asking(servers) as lines:
            names = [tool["name"] for tool in (await lines.ask("tools/list"))["tools"]]
            assert len(set(names)) == 2
            assert all(len(name) <= 64 for name in names)
            for name in names:
                assert "content" in await lines.ask("tools/call", {"name": name, "arguments": {}})
        assert [len(server.calls) for server in servers.values()] == [1, 1]

    asyncio.run(use())


@pytest.mark.parametrize("stateless", [True, False])
def test_a_tool_that_does_not_exist_is_said_to_be_unknown(stateless: bool) -> None:
    async def use() -> None:
        async with asking({"files": FakeServer("files", tools=[read])}, stateless=stateless) as lines:
            await lines.ask("tools/list")
            error = await lines.ask("tools/call", {"name": "files_write"})
            assert (error["code"], error["message"]) == (-32602, "Unknown tool: files_write")
            assert (await lines.ask("tools/call"))["code"] == -32602

    asyncio.run(use())


def test_a_call_for_a_server_that_cannot_start_says_why_and_the_others_work() -> None:
    broken = FakeServer("broken", tools=[read])
    broken.fail_starts(times=1_000, reason="no such program")

    async def use() -> None:
        async with asking({"broken": broken, "files": FakeServer("files", tools=[read])}) as lines:
            assert [tool["name"] for tool in (await lines.ask("tools/list"))["tools"]] == ["files_read"]
            error = await lines.ask("tools/call", {"name": "broken_read"})
            assert error["data"] == {"server": "broken", "errorType": "server_unavailable", "delivery": "not_sent"}
            assert "the server has not received it" in error["message"]

    asyncio.run(use())


def test_a_call_that_the_server_did_not_survive_says_that_it_may_have_acted() -> None:
    server = FakeServer("files", tools=[read])
    server.crash(tool="read")

    async def use() -> None:
        async with asking({"files": server}) as lines:
            lost = await lines.ask("tools/call", {"name": "files_read"})
            assert (lost["isError"], lost["_meta"][FAILURE_KEY]["delivery"]) == (True, "unknown")
            again = await lines.ask("tools/call", {"name": "files_read"})
            assert again["content"][0]["text"] == "text"

    asyncio.run(use())


def test_the_list_is_known_while_the_server_is_down() -> None:
    server = FakeServer("files", tools=[read])

    async def use() -> None:
        gateway = Gateway({"files": server})
        async with asking(gateway) as lines:
            before = await lines.ask("tools/list")
            server.fail_starts(times=1_000)
            server.crash()
            other = Lines(gateway, stateless=True)
            assert await other.ask("tools/list") == before

    asyncio.run(use())
