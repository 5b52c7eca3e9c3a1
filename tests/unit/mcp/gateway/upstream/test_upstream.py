"""Requests are passed on with all that the engine does for a call: filters, restarts, delivery, deadlines."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from gaia.mcp.errors import CallTimeout, JsonRpcError, NotConnected, ServerCrashed, ToolDenied
from gaia.mcp.gateway.upstream.upstream import Upstream
from gaia.testing import FakeServer
from tests.gateway.client_of_upstream import Requester, call_of, upstream_of

REVISIONS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


def echo(text: str) -> str:
    """Say it again."""
    return text


def fail() -> str:
    """Fail."""
    raise ValueError("it did")


@REVISIONS
def test_a_result_is_passed_on_as_bytes(revision: str) -> None:
    async def use() -> None:
        async with upstream_of(FakeServer("one", tools=[echo, fail], protocol=revision)) as upstream:
            sent = Requester().send(upstream, "tools/call", call_of("echo", text="höre \n zu"))
            assert await sent.text() == "höre \n zu"
            assert (await sent.relayed()).is_error is False
            failed = await Requester().send(upstream, "tools/call", call_of("fail")).relayed()
            assert failed.is_error
            assert failed.error is None

    asyncio.run(use())


@REVISIONS
def test_every_method_can_be_passed_on(revision: str) -> None:
    async def use() -> None:
        async with upstream_of(FakeServer("one", resources={"file:///a": "A"}, protocol=revision)) as upstream:
            read = await Requester().send(upstream, "resources/read", {"uri": "file:///a"}).result()
            assert read["contents"][0]["text"] == "A"
            error = (await Requester().send(upstream, "resources/read", {"uri": "file:///b"}).relayed()).error
            assert isinstance(error, JsonRpcError), "the server's own"

    asyncio.run(use())


def test_a_tool_that_a_filter_denies_never_reaches_the_server() -> None:
    async def use() -> None:
        server = FakeServer("one", tools=[echo, fail])
        async with upstream_of({**server, "disabledTools": ["fail"]}) as upstream:
            requester = Requester().send(upstream, "tools/call", call_of("fail"))
            assert isinstance((await requester.relayed()).error, ToolDenied)
            assert requester.call is None
        assert server.calls == []

    asyncio.run(use())


def test_a_call_that_was_written_is_lost_with_the_server_and_says_so() -> None:
    async def use() -> None:
        server = FakeServer("one", tools=[echo])
        async with upstream_of(server) as upstream:
            server.crash(tool="echo")
            error = (await Requester().send(upstream, "tools/call", call_of("echo", text="a")).relayed()).error
            assert isinstance(error, ServerCrashed)
            assert error.delivery == "unknown"
            after = Requester().send(upstream, "tools/call", call_of("echo", text="after"))
            assert await after.text() == "after", "it waits for the next start"

    asyncio.run(use())


def test_a_deadline_ends_a_call() -> None:
    async def use() -> None:
        server = FakeServer("one", tools=[echo])
        async with upstream_of({**server, "timeout": 0.2}) as upstream:
            server.hang(tool="echo")
            error = (await Requester().send(upstream, "tools/call", call_of("echo", text="a")).relayed()).error
            assert isinstance(error, CallTimeout)

    asyncio.run(use())


def test_a_server_that_is_disconnected_refuses() -> None:
    async def use() -> Upstream:
        async with upstream_of(FakeServer("one", tools=[echo])) as upstream:
            pass
        error = (await Requester().send(upstream, "tools/call", call_of("echo", text="a")).relayed()).error
        assert isinstance(error, NotConnected)
        return upstream

    asyncio.run(use())


def test_what_cannot_be_written_is_the_clients_fault() -> None:
    async def use() -> None:
        async with upstream_of(FakeServer("one", tools=[echo])) as upstream:
            params = {"name": "echo", "arguments": orjson.Fragment(b'{"text":1e999}'), "_meta": {"far": 10**30}}
            error = (await Requester().send(upstream, "tools/call", params).relayed()).error
            assert isinstance(error, JsonRpcError)
            assert (error.code, error.delivery) == (-32602, "not_sent")

    asyncio.run(use())


def test_the_server_is_told_what_this_client_can_do() -> None:
    async def use() -> None:
        server = FakeServer("one", tools=[echo], protocol="2026-07-28")
        async with upstream_of(server) as upstream:
            for capabilities in ({}, {"elicitation": {}}):
                requester = Requester(capabilities=capabilities)
                await requester.send(upstream, "tools/call", call_of("echo", text="a")).result()
            metas = [call.meta for call in server.calls]
            key = "io.modelcontextprotocol/clientCapabilities"
            assert [meta[key] for meta in metas] == [{}, {"elicitation": {}}]
            assert (
                orjson.loads(orjson.dumps(metas[0]["io.modelcontextprotocol/clientInfo"]))["name"] == "GAIA MCP Client"
            )

    asyncio.run(use())
