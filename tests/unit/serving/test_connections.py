"""How many connections there are, and which of them makes room. See also `test_http_protocol`."""

import asyncio
from collections.abc import Hashable

from gaia.serving.connections import Connections, Phase
from gaia.serving.options import HttpOptions


class Connection:
    unread = 0

    def __init__(self, connections: Connections, phase: Phase, group: Hashable = None) -> None:
        self.group = group
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.phase = phase
        self.is_dropped = False
        self._connections = connections

    def look(self, now: float, seconds: float | None) -> None:
        """It is in time."""

    def drop(self) -> None:
        self.is_dropped = True
        self._connections.remove(self)


async def test_the_connection_with_the_least_makes_room() -> None:
    connections = Connections(HttpOptions(max_connections=4))
    order = (Phase.ANSWER, Phase.BODY, Phase.IDLE, Phase.HEAD)
    made = [Connection(connections, phase) for phase in order]
    assert all(map(connections.add, made))
    for victim in (3, 2, 1):
        assert connections.add(Connection(connections, Phase.ANSWER))
        assert [one.is_dropped for one in made] == [number >= victim for number in range(4)]
    assert not connections.add(Connection(connections, Phase.HEAD)), "all have complete requests"


async def test_an_address_has_a_quarter_of_the_places_for_connections_of_no_client() -> None:
    connections = Connections(HttpOptions(max_connections=8))
    made = [Connection(connections, Phase.IDLE, ("10.0.0.1",)) for _ in range(3)]
    assert all(map(connections.add, made))
    assert [one.is_dropped for one in made] == [True, False, False]
    proxied = [Connection(connections, Phase.IDLE) for _ in range(4)]
    assert all(map(connections.add, proxied))
    assert not any(one.is_dropped for one in proxied), "those of a proxy may be of many clients"


async def test_a_client_has_half_of_the_places_or_what_it_may_have() -> None:
    connections = Connections(HttpOptions(max_connections=8))

    def connection(phase: Phase = Phase.ANSWER) -> Connection:
        made = Connection(connections, phase)
        assert connections.add(made)
        return made

    busy, unused = [connection() for _ in range(3)], connection(Phase.IDLE)
    for one in (*busy, unused):
        assert connections.identify(one, "ann", None) is None
    one_more = connection()
    assert connections.identify(one_more, "ann", None) is None
    assert unused.is_dropped, "it waited for nothing, and made room"
    assert connections.identify(one_more, "ann", None) is None, "it is known already"
    late = connection()
    assert connections.identify(late, "ann", None) == 4
    assert connections.identify(late, "bob", 1) is None
    assert connections.identify(one_more, "bob", 1) == 1
    connections.remove(late)
    assert connections.identify(one_more, "bob", 1) is None, "behind a proxy, the next request is another client's"
    assert connections.counts["ann"] == 3
    gone = Connection(connections, Phase.HEAD)
    assert connections.identify(gone, "bob", 1) is None
    assert connections.counts["bob"] == 1


async def test_what_a_client_does_not_read_is_counted_on_all_of_its_connections() -> None:
    connections = Connections(HttpOptions())
    assert connections.unread_of("ann") == 0
    for client, unread in (("ann", 10), ("ann", 5), ("bob", 7)):
        one = Connection(connections, Phase.ANSWER, client)
        one.unread = unread
        connections.stalled[one] = None
    assert (connections.unread_of("ann"), connections.unread_of("bob")) == (15, 7)


async def test_the_group_with_the_most_makes_room() -> None:
    connections = Connections(HttpOptions(max_connections=20))
    made = [Connection(connections, Phase.IDLE, group) for group in ("ann", *("bob",) * 4, *(None,) * 15)]
    assert all(map(connections.add, made))
    assert connections.add(Connection(connections, Phase.IDLE, "cleo"))
    assert [one.group for one in made if one.is_dropped] == [None]


async def test_what_finds_no_room_waits_in_the_reserve_whose_oldest_makes_room_until_one_is_gone() -> None:
    connections = Connections(HttpOptions(max_connections=1))
    busy = Connection(connections, Phase.ANSWER)
    assert connections.add(busy)
    late = [Connection(connections, Phase.HEAD) for _ in range(33)]
    assert not any(map(connections.add, late))
    assert [one.is_dropped for one in late] == [True] + [False] * 32
    for one in late[1:]:
        connections.remove(one)
    assert not connections.reserve
    connections.remove(busy)
    assert connections.add(Connection(connections, Phase.HEAD))
