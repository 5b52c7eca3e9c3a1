"""Servers with replicas, as applications use them. All servers are real."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from gaia.mcp import MCPClient, MCPClientManager
from gaia.mcp.aio import AsyncMCPClient
from gaia.mcp.errors import NotOffered
from gaia.mcp.gateway import Gateway
from gaia.mcp.supervision.events import ServerState, StateChanged
from gaia.mcp.transports.http import HttpTransport
from gaia.testing import FakeServer
from tests.client.test_applied_configurations import calling
from tests.gateway.running import running
from tests.recorder import Recorder
from tests.servers.answers import text
from tests.servers.http_server import ScriptedServer
from tests.servers.processes import is_alive
from tests.servers.state_file import read_state
from tests.tracing import Metering, Tracing, attributes_of
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.process

Json = dict[str, Any]
Server = Callable[..., Json]


def is_ready(client: MCPClient, count: int) -> bool:
    """Whether so many replicas are ready, and no other one is there."""
    return wait_until(lambda: [one.state for one in client.status.replicas] == [ServerState.READY] * count)


def replicated(server: Json, replicas: int = 3) -> Json:
    return {**server, "replicas": replicas, "stateless": True}


def client_of(manager: MCPClientManager) -> MCPClient:
    client = manager.get_client("it")
    assert client is not None
    return client


def test_calls_at_once_are_spread(fault_server: Server, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with (
        MCPClient.from_config("it", replicated(fault_server(state_file=state))) as client,
        ThreadPoolExecutor(3) as pool,
    ):
        assert is_ready(client, 3)
        sleeping = [pool.submit(client.call_tool, "sleep", {"seconds": 0.5}) for _ in range(3)]
        assert wait_until(lambda: [one.in_flight for one in client.status.replicas] == [1, 1, 1])
        assert not any(one.result(PATIENCE).is_error for one in sleeping)
        assert len({one.pid for one in client.status.replicas}) == 3
    assert wait_until(lambda: not any(map(is_alive, read_state(state).pids)))


def test_another_number_is_applied_without_a_gap_and_without_a_restart(fault_server: Server, tmp_path: Path) -> None:
    state = tmp_path / "state"
    server = fault_server(state_file=state)
    with MCPClientManager({"it": replicated(server, 2)}) as manager:
        client = client_of(manager)
        assert is_ready(client, 2)
        before = {one.replica: one.pid for one in client.status.replicas}
        with calling(manager, "it"):
            assert manager.apply({"it": replicated(server, 4)}).replaced == ("it",)
            assert is_ready(client, 4)
            assert before.items() <= {one.replica: one.pid for one in client.status.replicas}.items()
            assert manager.apply({"it": replicated(server, 1)}).failed == {}
            assert is_ready(client, 1)
        assert manager.apply({"it": replicated(server, 1)}).unchanged == ("it",)
        assert (client.status.restarts, client.status.recyclings) == (0, 0)
        assert wait_until(lambda: sum(map(is_alive, read_state(state).pids)) == 1)


def test_a_server_gets_replicas_and_loses_them_without_a_gap(fault_server: Server, tmp_path: Path) -> None:
    old, new, last = (fault_server(state_file=tmp_path / name) for name in ("old", "new", "last"))
    with MCPClientManager({"it": old}) as manager:
        client, events = client_of(manager), Recorder()
        manager.subscribe(events)
        with calling(manager, "it"):
            assert manager.apply({"it": replicated(new, 3)}).replaced == ("it",)
            assert is_ready(client, 3)
            assert wait_until(lambda: not any(map(is_alive, read_state(tmp_path / "old").pids)))
            broken = {**fault_server(exit_at_start={"code": 7}), "disabledTools": ["echo"]}
            assert "code 7" in manager.apply({"it": broken}).failed["it"], "the replicas go on"
            assert manager.apply({"it": last}).replaced == ("it",)
        assert client.status.replicas == ()
        assert wait_until(lambda: not any(map(is_alive, read_state(tmp_path / "new").pids)))
        assert client is client_of(manager)
        assert [event for event in events.of(StateChanged) if event.server == "it"] == []
        assert manager.apply({"it": replicated({**last, "disabledTools": ["echo"]}, 2)}).failed == {}
        assert manager.call_tool("mcp_it_echo", {"text": "x"}).is_error, "filters change with it"
        assert "mcp_it_echo" not in {tool.namespaced_name for tool in manager.list_tools()}


def test_calls_that_wait_go_on_at_what_takes_the_place_of_a_server_that_is_away() -> None:
    def tool() -> str:
        """Answer."""
        return "here"

    away = FakeServer("it", tools=[tool])
    with MCPClientManager({"it": away}) as manager:
        away.fail_starts(4)
        away.crash()
        client = client_of(manager)
        assert wait_until(lambda: client.status.state is ServerState.RESTARTING)
        waiting = client.submit_tool("tool")
        assert wait_until(lambda: client.status.queued == 1)
        entry = {**FakeServer("it", tools=[tool]), "replicas": 2, "stateless": True}
        assert manager.apply({"it": entry}).failed == {}
        assert text(waiting.result(PATIENCE)) == "here"


def test_another_configuration_reaches_all_without_a_gap(fault_server: Server, tmp_path: Path) -> None:
    old, new = (fault_server(state_file=tmp_path / name) for name in ("old", "new"))
    with MCPClientManager({"it": replicated(old, 2)}) as manager:
        assert is_ready(client_of(manager), 2)
        with calling(manager, "it"):
            assert manager.apply({"it": replicated(new, 3)}).replaced == ("it",)
        assert is_ready(client_of(manager), 3)
        assert wait_until(lambda: not any(map(is_alive, read_state(tmp_path / "old").pids)))
        assert len(read_state(tmp_path / "new").pids) == 3


def test_scaling_is_for_servers_that_are_stateless(fault_server: Server) -> None:
    with MCPClient.from_config("it", fault_server()) as client, pytest.raises(NotOffered, match="stateless"):
        client.scale(2)
    with pytest.raises(ValueError, match="stateless"):
        MCPClient("it", HttpTransport("http://127.0.0.1:1"), replicas=2)


async def test_it_is_scaled_before_it_is_connected_and_by_a_task(fault_server: Server) -> None:
    client = AsyncMCPClient.from_config("it", replicated(fault_server(), 1))
    await client.scale(2)
    async with client:
        assert await asyncio.to_thread(is_ready, client.sync, 2)
        await client.scale(3)
        assert await asyncio.to_thread(is_ready, client.sync, 3)
        with pytest.raises(ValueError, match="from 1"):
            await client.scale(0)
        async with client.pinned() as handle, client.pinned() as other:
            mine = text(await handle.call_tool("pid"))
            assert mine != text(await other.call_tool("pid"))
            assert text(await handle.call_tool("pid")) == mine
            os.kill(int(mine), signal.SIGKILL)
            assert (await handle.call_tool("sleep", {"seconds": 5.0}))["error_type"] == "session_lost"
            assert not (await other.call_tool("pid")).is_error


def test_the_sessions_of_a_url_are_replicas() -> None:
    with ScriptedServer().serving() as server:
        transport = HttpTransport(server.url)
        with MCPClient("it", transport, replicas=2, stateless=True) as client:
            assert is_ready(client, 2)
            for _ in range(2):
                assert not client.call_tool("echo", {"text": "x"}).is_error
            client.scale(1)
            assert is_ready(client, 1)
            assert not client.call_tool("echo", {"text": "x"}).is_error


def test_spans_and_figures_are_those_of_each_replica(
    fault_server: Server, tracing: Tracing, metering: Metering
) -> None:
    with MCPClient.from_config("it", {**replicated(fault_server(), 2), "env": {"TOKEN": "token-0815"}}) as client:
        assert is_ready(client, 2)
        os.kill(client.status.replicas[0].pid or 0, signal.SIGKILL)
        assert wait_until(lambda: client.status.replicas[0].restarts == 1)
        own = {"gaia__mcp__server__name": "it", "gaia__mcp__replica": 1}
        assert metering.value("gaia.mcp.server.restarts", **own) == 1
        assert metering.value("gaia.mcp.client.calls.in_flight", **own) == 0
        secret = {"text": "token-0815"}
        assert not client.call_tool("echo", secret).is_error
    call = attributes_of(tracing.call)
    assert "token-0815" not in str(call)
    assert "****" in str(call) or "gen_ai.tool.call.arguments" in call
    starts = tracing.wait_for("gaia.mcp.start it", 2)
    assert {(span.attributes or {})["gaia.mcp.replica"] for span in starts} == {1, 2}


async def test_behind_a_gateway_calls_are_spread_and_sessions_may_have_instances(
    fault_server: Server, tmp_path: Path
) -> None:
    shared = replicated(fault_server(state_file=tmp_path / "shared"), 2)
    own = {**replicated(fault_server(state_file=tmp_path / "own"), 2), "instances": "per-session"}

    def has_started(name: str, count: int) -> bool:
        return wait_until(lambda: len(read_state(tmp_path / name).pids) >= count)

    gateway = Gateway({"it": shared, "own": own})
    async with running(gateway) as url, Client(f"{url}/mcp", mode="legacy") as client:
        assert await asyncio.to_thread(is_ready, client_of(gateway.manager), 2)
        sleeping = asyncio.create_task(client.call_tool("it_sleep", {"seconds": 1.0}))
        assert await asyncio.to_thread(wait_until, lambda: read_state(tmp_path / "shared").calls != ())
        beside = (await client.call_tool("it_pid")).content[0].text
        await sleeping
        assert beside != (await client.call_tool("it_pid")).content[0].text
        pids = {(await client.call_tool("own_pid")).content[0].text for _ in range(3)}
        assert len(pids) == 1, "the session stays with its process"
        # Two replicas of the shared one, that of the session, and a spare: an instance has no replicas.
        assert await asyncio.to_thread(has_started, "own", 4)
        assert len(read_state(tmp_path / "own").pids) == 4


def test_replicas_run_where_they_are_placed(demo_server: Json) -> None:
    entry = {**replicated(demo_server, 2), "placement": {"engine": "process"}}
    with MCPClient.from_config("it", entry) as client:
        assert is_ready(client, 2)
        places = [one.placement for one in client.status.replicas]
        assert len({None if place is None else place.host_pid for place in places} - {None}) == 2
        with client.pinned() as handle, client.pinned() as other:
            assert handle.placement != other.placement
            assert handle.call_tool("crash")["delivery"] == "unknown"
            # The host has restarted the server, and the connection goes on.
            assert handle.call_tool("counter")["error_type"] == "session_lost"
            assert not other.call_tool("counter").is_error
