"""The servers behind the gateway."""

import asyncio

from gaia.mcp.gateway import Gateway
from gaia.testing import FakeServer
from tests.waiting import PATIENCE


def one() -> str:
    """One."""
    return "1"


async def test_they_are_in_the_order_of_the_configuration_whether_they_start_or_not() -> None:
    broken = FakeServer("broken")
    broken.fail_starts(times=1_000)

    async with Gateway({"broken": broken, "a": FakeServer("a", tools=[one])}) as gateway:
        servers = gateway._servers
        settled = asyncio.Event()
        servers.when(lambda: all(map(servers.settled, servers.of(servers.names()))), settled.set, PATIENCE)
        await asyncio.wait_for(settled.wait(), PATIENCE)
        assert servers.names() == ["broken", "a"]
        assert servers.get("none") is None
        known = servers.get("a")
        assert known is servers.get("a")
        assert known is not None
        assert "tools" in known.capabilities


async def test_what_does_not_come_is_not_waited_for_longer_than_said() -> None:
    async with Gateway({}) as gateway:
        over = asyncio.Event()
        gateway._servers.when(lambda: False, over.set, 0.01)
        await asyncio.wait_for(over.wait(), PATIENCE)
        over.clear()
        gateway._servers.when(lambda: False, over.set, 600)
    assert over.is_set(), "the end of the gateway ends it"


async def test_the_version_grows_with_what_there_is_to_list() -> None:
    server = FakeServer("a", tools=[one])

    async with Gateway({"a": server}) as gateway:
        await asyncio.to_thread(gateway.manager.wait_ready, PATIENCE)
        before = gateway._servers.version
        server.tools.remove("one")
        async with asyncio.timeout(PATIENCE):
            while gateway._servers.version == before:
                await asyncio.sleep(0.005)
