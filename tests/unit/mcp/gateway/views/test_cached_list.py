"""Lists of a server, kept while it restarts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.views.cached_list import CachedList
from gaia.testing import FakeServer
from tests.waiting import PATIENCE


def one() -> str:
    """One."""
    return "1"


def two() -> str:
    """Two."""
    return "2"


@asynccontextmanager
async def prompts_of(server: FakeServer) -> AsyncIterator[CachedList]:
    async with Gateway({"a": server}) as gateway:
        await asyncio.to_thread(gateway.manager.wait_ready, PATIENCE)
        known = gateway._servers.get("a")
        assert known is not None
        yield known.prompts


async def fetched(known: CachedList) -> list[str]:
    done = asyncio.Event()
    known.when_fetched(done.set)
    await asyncio.wait_for(done.wait(), PATIENCE)
    return [item["name"] for item in known.items]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_it_follows_the_server(revision: str) -> None:
    server = FakeServer("a", prompts=[one], protocol=revision)

    async with prompts_of(server) as known:
        assert not known.is_known
        assert await fetched(known) == ["one"]
        server.prompts.add(two)
        async with asyncio.timeout(PATIENCE):
            while len(known.items) < 2:
                await asyncio.sleep(0.005)
        assert await fetched(known) == ["one", "two"]


async def test_it_is_kept_while_the_server_is_down() -> None:
    server = FakeServer("a", prompts=[one])

    async with prompts_of(server) as known:
        await fetched(known)
        server.fail_starts(times=1_000)
        server.crash()
        assert await fetched(known) == ["one"]


async def test_a_server_that_cannot_list_leaves_nothing_waiting() -> None:
    server = FakeServer("a", prompts=[one])
    server.fail_starts(times=1_000)

    async with Gateway({"a": server}) as gateway:
        known = gateway._servers.get("a")
        assert known is not None
        assert await fetched(known.prompts) == []
