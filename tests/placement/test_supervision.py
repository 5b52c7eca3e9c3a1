"""The client supervises a placed server as any other: what its entry says of starts and processes is about hosts."""

import socket
from collections.abc import Callable

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from tests.placement.conftest import are_gone, placed, processes_of
from tests.tracing import Tracing
from tests.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

Connect = Callable[..., MCPClient]


def host_of(client: MCPClient) -> int | None:
    placement = client.status.placement
    return None if placement is None else placement.host_pid


def adds(client: MCPClient) -> bool:
    return client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}


def test_a_fresh_host_takes_over_without_a_gap(connect: Connect) -> None:
    client = connect(placed())
    processes = processes_of(client)
    assert client.restart()
    assert host_of(client) != processes[0].pid
    assert are_gone(processes)
    assert adds(client)


def test_a_stand_by_takes_over(connect: Connect) -> None:
    client = connect(placed(), standby=True)

    def standby() -> int | None:
        status = client.status.standby
        return status.pid if status is not None and status.state == "ready" else None

    assert wait_until(lambda: standby() is not None)
    waiting = standby()
    processes_of(client)[0].kill()
    assert wait_until(lambda: client.status.pid == waiting)
    assert adds(client)


def test_an_idle_server_has_no_host_until_the_next_call(connect: Connect) -> None:
    client = connect(placed(), idleStop=0.2)
    processes = processes_of(client)
    assert are_gone(processes)
    assert wait_until(lambda: host_of(client) is None)
    assert adds(client)
    assert host_of(client) not in (None, processes[0].pid)


def test_a_lazy_server_that_is_known_is_placed_by_the_first_call() -> None:
    entry = {"demo": {**placed(), "lazy": True}}
    with MCPClientManager(entry) as manager:
        client = manager.get_client("demo")
        assert client is not None
        client.disconnect()
        assert client.connect()
        assert host_of(client) is None
        assert adds(client)
        assert host_of(client) is not None


def test_a_used_server_is_replaced_by_a_fresh_host(connect: Connect) -> None:
    client = connect(placed(), maxCalls=3)
    processes = processes_of(client)
    assert all(adds(client) for _ in range(4))
    assert are_gone(processes)
    assert client.status.recyclings == 1
    assert adds(client)


def test_each_replica_has_a_host(connect: Connect) -> None:
    client = connect(placed(), replicas=2, stateless=True)

    def hosts() -> set[int]:
        places = (replica.placement for replica in client.status.replicas)
        return {place.host_pid for place in places if place is not None}

    assert wait_until(lambda: len(hosts()) == 2)
    assert adds(client)
    client.scale(1)
    assert wait_until(lambda: len(client.status.replicas) == len(hosts()) == 1)
    assert adds(client)


def test_spans_are_those_of_a_server_over_http_and_name_the_machine(connect: Connect, tracing: Tracing) -> None:
    client = connect(placed())
    assert adds(client)
    client.disconnect()
    span = tracing.only("tools/call add")
    attributes = span.attributes or {}
    assert attributes["network.transport"] == "tcp"
    assert attributes["network.protocol.name"] == "http"
    assert attributes["server.address"] == "127.0.0.1"
    assert attributes["gaia.mcp.placement.node"] == socket.gethostname()


def test_a_server_that_is_never_restarted_ends_with_its_host(connect: Connect) -> None:
    client = connect(placed(), restart={"restart": "never"})
    processes = processes_of(client)
    assert client.call_tool("crash", {}).is_error
    assert are_gone(processes)
    assert wait_until(lambda: host_of(client) is None)
    assert client.call_tool("add", {"a": 1, "b": 2}).is_error
