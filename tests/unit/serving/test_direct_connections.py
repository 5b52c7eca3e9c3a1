"""How many connections there are, and which of them makes room. See also `test_direct_http`."""

from __future__ import annotations

import asyncio

from gaia.serving.direct_connections import DirectConnections
from gaia.serving.open_connections import Waiting
from gaia.serving.options import HttpOptions


class Connection:
    def __init__(self, connections: DirectConnections, waiting: Waiting) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.waiting = waiting
        self.is_dropped = False
        self._connections = connections

    def look(self, now: float, seconds: float | None) -> None:
        """It is in time."""

    def drop(self) -> None:
        self.is_dropped = True
        self._connections.remove(self)


def test_the_connection_with_the_least_makes_room() -> None:
    async def use() -> None:
        connections = DirectConnections(HttpOptions(max_connections=4))
        order = (Waiting.APPLICATION, Waiting.BODY, Waiting.NOTHING, Waiting.HEAD)
        made = [Connection(connections, waiting) for waiting in order]
        assert all(map(connections.add, made))
        for victim in (3, 2, 1):
            assert connections.add(Connection(connections, Waiting.APPLICATION))
            assert [one.is_dropped for one in made] == [number >= victim for number in range(4)]
        assert not connections.add(Connection(connections, Waiting.HEAD)), "all have complete requests"

    asyncio.run(use())
