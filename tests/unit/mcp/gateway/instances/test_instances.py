"""The pool of the processes of one server, in which the servers live in this program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.errors import Overloaded
from gaia.mcp.gateway.instances.handles import Handle
from gaia.mcp.gateway.instances.instances import InstancePool
from gaia.mcp.supervision.events import ServerState
from gaia.testing import FakeServer
from tests.waiting import wait_until

MakePool = Callable[..., "tuple[InstancePool, MCPClientManager]"]


def echo(text: str) -> str:
    """Say it again."""
    return text


@pytest.fixture
def make_pool() -> Iterator[MakePool]:
    """A pool of the server ``it``, whose entry has the given keys."""
    made: list[tuple[InstancePool, MCPClientManager]] = []

    def make(**keys: Any) -> tuple[InstancePool, MCPClientManager]:
        manager = MCPClientManager({"it": {**FakeServer("it", tools=[echo]), "instances": "per-session", **keys}})
        manager.load_from_config()
        shared = manager.get_client("it")
        assert shared is not None
        made.append((InstancePool(manager, shared), manager))
        return made[-1]

    yield make
    for pool, manager in made:
        for end in pool.close(at_once=True):
            end()
        manager.disconnect_all()


def is_closed(client: MCPClient) -> bool:
    return wait_until(lambda: client.state is ServerState.CLOSED)


def works(client: MCPClient) -> bool:
    return client.call_tool("echo", {"text": "x"}).text == "x"


def test_an_owner_keeps_its_instance(make_pool: MakePool) -> None:
    pool, manager = make_pool()
    one, other = pool.client_of("one"), pool.client_of("other")
    assert pool.client_of("one") is one
    assert len({one, other, manager.get_client("it")}) == 3
    assert works(one)
    assert works(other)
    assert [tool.name for tool in one.list_tools()] == ["echo"]
    assert [status.name for status in manager.status()] == ["it"]


def test_a_spare_is_started_and_given_to_the_next_owner(make_pool: MakePool) -> None:
    pool, _ = make_pool()
    first = pool.client_of("one")
    (spare,) = [client for client in pool.clients() if client is not first]
    assert wait_until(lambda: spare.state is ServerState.READY)
    assert first.state is ServerState.EXITED, "it has had no call"
    assert pool.client_of("other") is spare
    assert spare not in pool.clients()[2:]


def test_an_owner_has_its_instance_if_there_can_be_no_spare(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, manager = make_pool()
    make, made = manager._engine.factory.new_instance, itertools.count()

    def only_one(*arguments: Any) -> MCPClient:
        if next(made):
            raise RuntimeError("can't start new thread")
        return make(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(manager._engine.factory, "new_instance", only_one)
        client = pool.client_of("one")
        assert pool.clients() == [client]
        assert works(client)
    assert works(pool.client_of("other"))
    assert len(pool.clients()) == 3


def test_a_server_that_was_removed_a_moment_ago_has_no_instances(make_pool: MakePool) -> None:
    pool, manager = make_pool()
    manager.remove_server("it")
    with pytest.raises(Overloaded, match="not running"):
        pool.client_of("one")
    assert pool.clients() == []


def test_an_instance_ends_with_its_owner_and_goes_to_no_other(make_pool: MakePool) -> None:
    pool, _ = make_pool()
    client = pool.client_of("one")
    assert works(client)
    pool.release("one")
    pool.release("one")
    assert is_closed(client)
    assert len(pool) == 0
    assert pool.client_of("one") is not client


def test_there_are_at_most_so_many(make_pool: MakePool) -> None:
    pool, _ = make_pool(maxInstances=2)
    clients = [pool.client_of(owner) for owner in ("one", "other")]
    assert all(map(works, clients))
    with pytest.raises(Overloaded, match=r"2 instances.*maxInstances"):
        pool.client_of("third")
    assert len(pool.clients()) == 2, "without a spare"
    pool.release("one")
    assert works(pool.client_of("third"))


def test_the_one_at_rest_that_was_not_used_for_longest_gives_way(make_pool: MakePool) -> None:
    pool, _ = make_pool(maxInstances=3, idleStop=0.01)
    clients = {owner: pool.client_of(owner) for owner in ("a", "b", "c")}
    pool.client_of("a")
    for client in clients.values():
        assert wait_until(lambda client=client: client.state is ServerState.EXITED)  # type: ignore[misc]
    pool.client_of("d")
    assert is_closed(clients["b"])
    assert len(pool) == 3


def test_a_lazy_server_has_no_spare(make_pool: MakePool) -> None:
    pool, _ = make_pool(lazy=True)
    client = pool.client_of("one")
    assert pool.clients() == [client]
    assert works(client)


def test_a_pool_that_is_closed_makes_no_more(make_pool: MakePool) -> None:
    pool, _ = make_pool()
    clients = [pool.client_of("one"), *pool.clients()]
    for end in pool.close(at_once=True):
        end()
    assert all(client.state is ServerState.CLOSED for client in clients)
    with pytest.raises(Overloaded, match="being stopped"):
        pool.client_of("other")
    assert pool.close() == []


def test_instances_follow_the_entry_of_their_server(make_pool: MakePool) -> None:
    pool, manager = make_pool()
    client = pool.client_of("one")
    assert works(client)
    entry = manager.config.get_server("it")
    assert manager.apply({"it": {**entry, "disabledTools": ["echo"]}}).replaced == ("it",)
    assert pool.client_of("one") is client
    assert wait_until(lambda: client.call_tool("echo", {"text": "x"}).get("error_type") == "denied")
    assert pool.client_of("other").list_tools() == []


def test_figures_of_instances_count_also_when_they_have_ended(make_pool: MakePool) -> None:
    pool, manager = make_pool()
    shared = manager.get_client("it")
    assert shared is not None
    before = pool.status(shared.status)
    assert (before.instances, before.restarts) == (0, 0)
    one, other = pool.client_of("one"), pool.client_of("other")
    assert works(one)
    assert works(other)
    one.restart()
    assert works(one)
    found = pool.status(shared.status)
    assert found.instances == 3, "with the spare"
    assert found.calls >= before.calls + 3
    assert found.recyclings == before.recyclings + 1
    pool.release("one")
    assert is_closed(one)
    ended = pool.status(shared.status)
    assert ended.instances == 2
    assert ended.calls >= found.calls
    assert ended.recyclings == found.recyclings
    assert pool.owner_of(other) == "other"
    assert pool.owner_of(one) is None


@pytest.mark.parametrize(("most", "expected"), [(None, 2), (1, 1)])
def test_a_client_has_half_of_the_instances_or_what_it_may_have(
    make_pool: MakePool, most: int | None, expected: int
) -> None:
    pool, _ = make_pool(maxInstances=4)
    pool._most_each = lambda: most
    more = Handle("more", "ann")
    owners = [Handle(str(number), "ann") for number in range(expected)]
    clients = [pool.client_of(owner) for owner in owners]
    for client in clients:
        assert works(client)
    with pytest.raises(Overloaded, match=rf"client 'ann' has {expected} instances .* raise \"instancesPerClient\""):
        pool.client_of(more)
    assert works(pool.client_of(Handle("1", "bob")))
    clients[0].disconnect()
    assert pool.client_of(more), "its own that does not run makes room"
    with pytest.raises(Overloaded):
        pool.client_of(owners[0])
