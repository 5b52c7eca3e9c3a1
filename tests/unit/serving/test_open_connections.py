from __future__ import annotations

from gaia.serving.open_connections import OpenConnections, Waiting


class Connection:
    def __init__(self, waiting: Waiting, group: str = "") -> None:
        self.waiting = waiting
        self.group = group
        self.is_dropped = False

    def drop(self) -> None:
        self.is_dropped = True


def test_one_whose_request_is_furthest_from_complete_makes_room() -> None:
    connections = OpenConnections[Connection](3)
    kept = Connection(Waiting.APPLICATION)
    body, idle, head = (Connection(waiting) for waiting in (Waiting.BODY, Waiting.NOTHING, Waiting.HEAD))
    for connection in (kept, body, idle):
        assert connections.add(connection)
    for victim, newcomer in ((idle, head), (head, Connection(Waiting.APPLICATION)), (body, Connection(Waiting.BODY))):
        assert connections.add(newcomer)
        assert victim.is_dropped
        connections.remove(victim)
    assert not kept.is_dropped


def test_none_is_let_in_while_all_have_complete_requests() -> None:
    connections = OpenConnections[Connection](1)
    busy = Connection(Waiting.APPLICATION)
    assert connections.add(busy)
    assert not connections.add(Connection(Waiting.HEAD))
    connections.remove(busy)
    assert connections.add(Connection(Waiting.HEAD))


def test_the_group_with_the_most_makes_room() -> None:
    connections = OpenConnections[Connection](4)
    made = [Connection(Waiting.NOTHING, group) for group in ("ann", "bob", "bob", "bob")]
    assert all(map(connections.add, made))
    assert connections.counts == {"ann": 1, "bob": 3}
    assert connections.add(Connection(Waiting.NOTHING, "cleo"))
    assert [one.is_dropped for one in made] == [False, True, False, False]
