import asyncio
from typing import Any

import pytest

from gaia.mcp.aio.client import AsyncMCPClient
from gaia.mcp.cluster.transport import PlacedTransport
from gaia.mcp.cluster.wire import Launch
from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import NotConnected
from tests.hosts import LocalEngine
from tests.waiting import PATIENCE


def test_calls_stay_with_one_replica(demo_server: dict[str, Any]) -> None:
    engine = LocalEngine()
    asyncio.run(_use(engine, demo_server))
    engine.close()


async def _use(engine: LocalEngine, demo_server: dict[str, Any]) -> None:
    launch = Launch(command=demo_server["command"], args=demo_server["args"])
    transport = PlacedTransport(Placement(), PATIENCE, lambda: launch, lambda: engine)
    async with AsyncMCPClient("it", transport) as client:
        async with client.pinned() as handle:
            values = [(await handle.call_tool("counter"))["structuredContent"]["value"] for _ in range(2)]
            assert values == [1, 2]
            assert not handle.is_lost
        with pytest.raises(NotConnected, match="pinned"):
            await handle.read_resource("it://x")
        with pytest.raises(NotConnected, match="pinned"):
            await handle.get_prompt("x")
