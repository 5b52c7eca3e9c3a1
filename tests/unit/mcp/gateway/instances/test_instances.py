"""The processes of one server that are not shared, and the handles that name them."""

import itertools
import json
from collections.abc import Callable, Hashable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.errors import Overloaded
from gaia.mcp.gateway.access.checks import Checks
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.clients.pending_request import PendingRequest
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.gateway.instances.handles import HANDLE_KEY, Handle, Handles, UnknownHandle, with_handle
from gaia.mcp.gateway.instances.instances import InstancePool
from gaia.mcp.gateway.messages import RequestRefused
from gaia.mcp.gateway.views.upstream_servers import UpstreamServer
from gaia.mcp.gateway.views.view import View
from gaia.mcp.supervision.events import ServerState
from gaia.testing import FakeServer
from tests.unit.mcp.gateway.clients.test_pending_request import Replies
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


def test_a_lazy_server_has_no_spare_and_one_that_was_removed_a_moment_ago_no_instances(make_pool: MakePool) -> None:
    pool, manager = make_pool(lazy=True)
    client = pool.client_of("one")
    assert pool.clients() == [client]
    assert works(client)
    pool, manager = make_pool()
    manager.remove_server("it")
    with pytest.raises(Overloaded, match="not running"):
        pool.client_of("one")
    assert pool.clients() == []


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
    pool.most_each = lambda: most
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


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.ended: list[Handle] = []

    def handles(self, most: int = 3, most_each: int = 3) -> Handles:
        return Handles(lambda: self.now, self.ended.append, lambda: most_each, most=most, idle_seconds=100.0)


def test_a_handle_is_for_the_client_that_got_it_and_cannot_be_guessed() -> None:
    handles = Time().handles()
    handle = handles.use("new", "ann")
    assert handles.use(handle.text, "ann") is handle
    for given, identity in ((handle.text, "bob"), (handle.text, ""), ("guessed", "ann"), (7, "ann"), ("", "ann")):
        with pytest.raises(RequestRefused, match="no such handle"):
            handles.use(given, identity)
    assert handles.use("new", "ann").text != handle.text
    assert len(handle.text) >= 32


def test_one_that_is_not_used_expires() -> None:
    time = Time()
    handles = time.handles()
    handle = handles.use("new", "")
    time.now = 500.0
    handles.expire()
    assert time.ended == [], "a request uses it"
    handles.done(handle)
    time.now = 599.0
    handles.done(handles.use(handle.text, ""))
    time.now = 699.0
    with pytest.raises(RequestRefused, match="expired"):
        handles.use(handle.text, "")
    assert time.ended == [handle]


def test_one_whose_long_request_has_just_ended_does_not_keep_another_one() -> None:
    time = Time()
    handles = time.handles()
    busy, unused = handles.use("new", ""), handles.use("new", "")
    handles.done(unused)
    time.now = 90.0
    handles.done(busy)
    time.now = 110.0
    handles.expire()
    assert time.ended == [unused]


def test_another_one_ends_the_one_that_was_not_used_for_longest() -> None:
    time = Time()
    handles = time.handles(most=2)
    one, other = handles.use("new", ""), handles.use("new", "")
    with pytest.raises(RequestRefused, match="too many"):
        handles.use("new", "")
    for handle in (one, other):
        handles.done(handle)
    handles.done(handles.use(one.text, ""))
    handles.use("new", "")
    assert time.ended == [other]
    assert len(handles) == 2
    handles.end(other)
    assert time.ended == [other], "it has ended only once"


def test_a_client_that_asks_for_many_loses_its_own() -> None:
    time = Time()
    handles = time.handles(most=4, most_each=2)
    of_ann = handles.use("new", "ann")
    handles.done(of_ann)
    of_bob = [handles.use("new", "bob") for _ in range(2)]
    with pytest.raises(RequestRefused, match="too many"):
        handles.use("new", "bob")
    for handle in of_bob:
        handles.done(handle)
    of_bob += [handles.use("new", "bob") for _ in range(2)]
    assert time.ended == of_bob[:2]
    handles.done(of_bob[2])
    for client in ("cleo", "dan"):
        handles.use("new", client)
    assert time.ended == of_bob[:3], "the client with the most makes room for others"
    assert handles.use(of_ann.text, "ann") is of_ann


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({}, {}),
        ({"content": []}, {"content": []}),
        ({"content": [], "_meta": {"a": 1}}, {"content": []}),
        ({"content": [{"type": "text", "text": '"_meta"'}]}, {"content": [{"type": "text", "text": '"_meta"'}]}),
        ({"_meta": 3}, {}),
    ],
)
def test_a_result_tells_the_handle(result: dict[str, object], expected: dict[str, object]) -> None:
    handle = Handle("h", "")
    told = json.loads(with_handle(b" " + json.dumps(result).encode(), handle))
    meta = told.pop("_meta")
    assert told == expected
    given = result.get("_meta")
    assert meta == {**(given if isinstance(given, dict) else {}), HANDLE_KEY: "h"}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (rb'{"\u005fmeta":{"gaia.mcp/instances":"other","a":1}}', rb'{"_meta":{"gaia.mcp/instances":"h","a":1}}'),
        (b'{"_meta":{},"large":1e999}', b'{"_meta":{"gaia.mcp/instances":"h"},"large":1e999}'),
        (
            b'{"_meta":{},"deep":' + b"[" * 500 + b"]" * 500 + b"}",
            b'{"_meta":{"gaia.mcp/instances":"h"},"deep":' + b"[" * 500 + b"]" * 500 + b"}",
        ),
    ],
)
def test_a_server_cannot_keep_the_handle_from_a_client(result: bytes, expected: bytes) -> None:
    assert with_handle(result, Handle("h", "")) == expected


class Owners:
    """Requests, and the owners of the processes that they go to."""

    def __init__(self, most_each: int = 9) -> None:
        self.checks = Checks()
        self.handles = Handles(lambda: 0.0, lambda _: None, lambda: most_each)

    def request(self, identity: str = "", session: str | None = None, handle: str | None = None) -> PendingRequest:
        client = Principal(identity)
        of_session = None if session is None else Session(session, cast("View", self), client)
        meta = {} if handle is None else {HANDLE_KEY: handle}
        return PendingRequest(1, "tools/call", {}, meta, Replies(), cast("View", self), of_session, client)


def owner_of(request: PendingRequest, instances: str = "per-session") -> tuple[Hashable, Handle | None]:
    return request.owner_at(cast("UpstreamServer", SimpleNamespace(instances_kind=instances)))


def test_per_client_it_is_the_client() -> None:
    owners = Owners()
    one, _ = owner_of(owners.request("ann", "s1"), "per-client")
    assert owner_of(owners.request("ann", "s2"), "per-client")[0] == one
    assert owner_of(owners.request("ann", handle="new"), "per-client") == (one, None)
    assert owner_of(owners.request("bob", "s1"), "per-client")[0] != one


def test_per_session_it_is_the_session() -> None:
    request = Owners().request("ann", "s1", handle="new")
    assert owner_of(request) == (request.session, None)
    assert owner_of(request, "shared") == (None, None)


def test_without_a_session_it_is_the_client_or_its_handle() -> None:
    owners = Owners()
    common, _ = owner_of(owners.request("ann"))
    assert owner_of(owners.request("ann")) == (common, None)
    first = owners.request("ann", handle="new")
    owner, handle = owner_of(first)
    assert owner is handle
    assert handle is not None
    assert handle.under_way == 1
    first.succeed(b"{}")
    assert handle.under_way == 0
    assert owner_of(owners.request("ann", handle=handle.text)) == (handle, None)
    with pytest.raises(UnknownHandle, match="no such handle"):
        owner_of(owners.request("bob", handle=handle.text))
    assert owners.checks.refusals.counts == {"unknown_handle": 1}


def test_a_request_that_goes_to_several_servers_gets_one_handle() -> None:
    request = Owners(most_each=1).request("ann", handle="new")
    owner, handle = owner_of(request)
    assert owner_of(request) == (owner, handle)
    assert handle is not None
    assert handle.under_way == 1
