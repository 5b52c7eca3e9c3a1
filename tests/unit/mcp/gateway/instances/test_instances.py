"""The pool of the processes of one server, in which the servers live in this program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.errors import Overloaded
from gaia.mcp.gateway.instances.instances import InstancePool
from gaia.mcp.gateway.upstream.upstream import Upstream
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
        made.append((InstancePool(manager, shared, Upstream), manager))
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
    one, other = pool.upstream("one"), pool.upstream("other")
    assert pool.upstream("one") is one
    assert len({one.client, other.client, manager.get_client("it")}) == 3
    assert works(one.client)
    assert works(other.client)
    assert [tool.name for tool in one.client.list_tools()] == ["echo"]
    assert [status.name for status in manager.status()] == ["it"]


def test_a_spare_is_started_and_given_to_the_next_owner(make_pool: MakePool) -> None:
    pool, _ = make_pool()
    first = pool.upstream("one").client
    (spare,) = [client for client in pool.clients() if client is not first]
    assert wait_until(lambda: spare.state is ServerState.READY)
    assert first.state is ServerState.EXITED, "it has had no call"
    assert pool.upstream("other").client is spare
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
        client = pool.upstream("one").client
        assert pool.clients() == [client]
        assert works(client)
    assert works(pool.upstream("other").client)
    assert len(pool.clients()) == 3


def test_a_server_that_was_removed_a_moment_ago_has_no_instances(make_pool: MakePool) -> None:
    pool, manager = make_pool()
    manager.remove_server("it")
    with pytest.raises(Overloaded, match="not running"):
        pool.upstream("one")
    assert pool.clients() == []


def test_an_instance_ends_with_its_owner_and_goes_to_no_other(make_pool: MakePool) -> None:
    pool, _ = make_pool()
    client = pool.upstream("one").client
    assert works(client)
    pool.release("one")
    pool.release("one")
    assert is_closed(client)
    assert len(pool) == 0
    assert pool.upstream("one").client is not client


def test_there_are_at_most_so_many(make_pool: MakePool) -> None:
    pool, _ = make_pool(maxInstances=2)
    clients = [pool.upstream(owner).client for owner in ("one", "other")]
    assert all(map(works, clients))
    with pytest.raises(Overloaded, match=r"2 instances.*maxInstances"):
        pool.upstream("third")
    assert len(pool.clients()) == 2, "without a spare"
    pool.release("one")
    assert works(pool.upstream("third").client)


def test_the_one_at_rest_that_was_not_used_for_longest_gives_way(make_pool: MakePool) -> None:
    pool, _ = make_pool(maxInstances=3, idleStop=0.01)
    clients = {owner: pool.upstream(owner).client for owner in ("a", "b", "c")}
    pool.upstream("a")
    for client in clients.values():
        assert wait_until(lambda client=client: client.state is ServerState.EXITED)  # type: ignore[misc]
    pool.upstream("d")
    assert is_closed(clients["b"])
    assert len(pool) == 3


def test_a_lazy_server_has_no_spare(make_pool: MakePool) -> None:
    pool, _ = make_pool(lazy=True)
    client = pool.upstream("one").client
    assert pool.clients() == [client]
    assert works(client)


def test_a_pool_that_is_closed_makes_no_more(make_pool: MakePool) -> None:
    pool, _ = make_pool()
    clients = [pool.upstream("one").client, *pool.clients()]
    for end in pool.close(at_once=True):
        end()
    assert all(client.state is ServerState.CLOSED for client in clients)
    with pytest.raises(Overloaded, match="being stopped"):
        pool.upstream("other")
    assert pool.close() == []


def test_instances_follow_the_entry_of_their_server(make_pool: MakePool) -> None:
    pool, manager = make_pool()
    client = pool.upstream("one").client
    assert works(client)
    entry = manager.config.get_server("it")
    assert manager.apply({"it": {**entry, "disabledTools": ["echo"]}}).replaced == ("it",)
    assert pool.upstream("one").client is client
    assert wait_until(lambda: client.call_tool("echo", {"text": "x"}).get("error_type") == "denied")
    assert pool.upstream("other").client.list_tools() == []


def test_figures_of_instances_count_also_when_they_have_ended(make_pool: MakePool) -> None:
    pool, manager = make_pool()
    shared = manager.get_client("it")
    assert shared is not None
    before = pool.status(shared.status)
    assert (before.instances, before.restarts) == (0, 0)
    one, other = pool.upstream("one").client, pool.upstream("other").client
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
    pool._identity_of, pool._most_each = lambda owner: str(owner).partition("/")[0], lambda: most
    clients = [pool.upstream(f"ann/{number}").client for number in range(expected)]
    for client in clients:
        assert works(client)
    with pytest.raises(Overloaded, match=rf"client 'ann' has {expected} instances .* raise \"instancesPerClient\""):
        pool.upstream("ann/more")
    assert works(pool.upstream("bob/1").client)
    clients[0].disconnect()
    assert pool.upstream("ann/more"), "its own that does not run makes room"
    with pytest.raises(Overloaded):
        pool.upstream("ann/0")
