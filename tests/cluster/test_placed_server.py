"""A server on a Ray cluster: what a user of a manager or a client sees of it, whatever happens to actors and nodes."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import gaia
from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.errors import ServerCrashed
from gaia.mcp.supervision.events import Event, Restarted, ServerState
from tests.cluster.small_cluster import SmallCluster
from tests.waiting import wait_until

pytest.importorskip("ray", reason="Ray is not installed, or has no wheel for this Python")

Connect = Callable[..., MCPClient]
Entry = Callable[..., dict[str, Any]]

KILLS = 3

LEASE = 3
"""Seconds; less than Ray takes to notice anything in this cluster."""

SERVERS = Path(__file__).parents[1] / "servers"
LEDGER_SERVER: dict[str, Any] = {
    "command": sys.executable,
    "args": ["-P", str(SERVERS / "ledger_server.py")],
    "env": {"PYTHONPATH": os.pathsep.join(map(str, (Path(gaia.__file__).parents[1], SERVERS.parents[1])))},
}

CLUSTER_PATIENCE = 60.0
"""Seconds in which Ray has noticed anything, and has started another actor, on a machine with other work."""


@pytest.fixture(autouse=True)
def _cluster(cluster: SmallCluster) -> None:
    pass


def with_ledger(ledger: Path) -> dict[str, Any]:
    """A server that writes each call into the file before it does anything else."""
    return {**LEDGER_SERVER, "args": [*LEDGER_SERVER["args"], str(ledger)]}


def is_gone(pid: int) -> bool:
    return wait_until(lambda: not psutil.pid_exists(pid), CLUSTER_PATIENCE)


def wait_ready(client: MCPClient) -> bool:
    return wait_until(client.is_connected, CLUSTER_PATIENCE)


def placement_of(client: MCPClient) -> Any:
    placement = client.status.placement
    assert placement is not None
    return placement


def hosts_of(client: MCPClient) -> int:
    """How many hosts it has had, while it has one."""
    placement = client.status.placement
    return 0 if placement is None else placement.hosts


def kill_host(client: MCPClient) -> None:
    psutil.Process(placement_of(client).host_pid).kill()


@contextlib.contextmanager
def stopped(processes: list[psutil.Process]) -> Iterator[None]:
    """Stop all processes, and let those go on in the end that are still there."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


class TestUse:
    def test_a_manager_needs_nothing_else(self, placed: Entry) -> None:
        manager = MCPClientManager({"demo": placed()})
        with manager:
            names = {tool.namespaced_name for tool in manager.list_tools()}
            assert "mcp_demo_add" in names
            assert manager.call_tool("mcp_demo_add", {"a": 1, "b": 2})["structuredContent"] == {"sum": 3}
            (status,) = manager.status()
            assert status.state is ServerState.READY
            assert status.placement is not None

    def test_progress_has_been_reported_when_a_call_returns(
        self, connect: Connect, placed: Entry, fault_server: Callable[..., dict[str, Any]]
    ) -> None:
        server = fault_server(faults=[{"tool": "echo", "progress": [{"progress": number} for number in range(5)]}])
        client = connect(placed(server))
        reports: list[float] = []
        client.call_tool("echo", {"text": "x"}, on_progress=lambda progress, *_: reports.append(progress))
        assert len(reports) == 5

    def test_a_call_is_cancelled_on_its_node(self, connect: Connect, placed: Entry) -> None:
        client = connect(placed())
        future = client.submit_tool("sleep", {"seconds": 30})
        assert wait_until(lambda: client.status.in_flight == 1)
        assert future.cancel()
        assert wait_until(lambda: client.status.in_flight == 0)
        assert client.call_tool("add", {"a": 1, "b": 1})["structuredContent"] == {"sum": 2}

    def test_a_deadline_ends_a_call(self, connect: Connect, placed: Entry) -> None:
        client = connect(placed())
        result = client.call_tool("sleep", {"seconds": 30}, timeout=0.2)
        assert (result["error_type"], result["delivery"]) == ("timeout", "unknown")

    def test_a_server_asks_a_person_at_the_driver(
        self, placed: Entry, fault_server: Callable[..., dict[str, Any]]
    ) -> None:
        question = {"method": "elicitation/create", "params": {"message": "ok?", "requestedSchema": {}}}
        asked: list[str] = []

        def answer(request: Any) -> dict[str, Any]:
            asked.append(request.message)
            return {"action": "accept", "content": {}}

        entry = placed(fault_server(faults=[{"tool": "client_answers", "server_requests": [question]}]))
        client = MCPClient.from_config("asking", entry, on_elicitation=answer)
        with client:
            answers = client.call_tool("client_answers")
            assert asked == ["ok?"]
            assert '"accept"' in str(answers)

    def test_a_crash_of_the_server_is_the_business_of_its_host(self, connect: Connect, placed: Entry) -> None:
        client = connect(placed())
        host = placement_of(client).host_pid
        result = client.call_tool("crash")
        assert (result["error_type"], result["delivery"]) == ("server_crashed", "unknown")
        assert client.call_tool("add", {"a": 1, "b": 1})["structuredContent"] == {"sum": 2}
        assert placement_of(client).host_pid == host
        # The host's events come after its answers.
        assert wait_until(lambda: client.status.restarts == 1)

    def test_no_thread_belongs_to_one_placed_server(self, connect: Connect, placed: Entry) -> None:
        connect(placed(resources={}), "first")
        before = {thread.name for thread in threading.enumerate()}
        connect(placed(resources={}), "second")
        added = {thread.name for thread in threading.enumerate()} - before
        # Threads of pools, which end when they are idle.
        assert {name for name in added if not any(pool in name for pool in ("steps", "checks"))} == set()


class TestLoss:
    def test_a_lost_actor_loses_no_call_that_waits(self, connect: Connect, placed: Entry, tmp_path: Path) -> None:
        ledger = tmp_path / "ledger"
        client = connect(placed(with_ledger(ledger)))
        events: list[Event] = []
        client.subscribe(events.append)
        written = client.submit_tool("hold", {"text": "it"}, timeout=CLUSTER_PATIENCE)
        assert wait_until(lambda: ledger.exists() and ledger.read_text() == "it\n")
        server = client.status.pid
        kill_host(client)
        error = written.exception(CLUSTER_PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        assert not client.call_tool("record", {"text": "next"}, timeout=CLUSTER_PATIENCE).is_error
        assert ledger.read_text() == "it\nnext\n"
        assert placement_of(client).hosts == 2
        assert client.status.generation == 2
        assert server is not None
        assert is_gone(server)
        assert wait_until(lambda: any(isinstance(event, Restarted) for event in events))

    def test_a_safe_call_is_repeated_once(self, connect: Connect, placed: Entry, tmp_path: Path) -> None:
        ledger = tmp_path / "ledger"
        client = connect(placed(with_ledger(ledger)))
        future = client.submit_tool("read", {"text": "it"}, timeout=CLUSTER_PATIENCE)
        assert wait_until(lambda: ledger.exists() and ledger.read_text() == "it\n")
        kill_host(client)
        assert not future.result(CLUSTER_PATIENCE).is_error
        assert ledger.read_text() == "it\nit\n"

    def test_a_lost_node_is_left(self, connect: Connect, placed: Entry, cluster: SmallCluster) -> None:
        client = connect(placed())
        first, server = placement_of(client).node_id, client.status.pid
        cluster.lose_node(first)
        assert wait_until(lambda: client.status.placement is None or placement_of(client).node_id != first, 30)
        assert client.call_tool("add", {"a": 1, "b": 1}, timeout=CLUSTER_PATIENCE)["structuredContent"] == {"sum": 2}
        assert placement_of(client).node_id != first
        assert server is not None
        assert is_gone(server)

    def test_a_node_that_was_cut_off_does_nothing_when_it_is_back(
        self, connect: Connect, placed: Entry, cluster: SmallCluster, tmp_path: Path
    ) -> None:
        ledger = tmp_path / "ledger"
        client = connect(placed(with_ledger(ledger), lease=LEASE))
        node, pids = placement_of(client).node_id, [client.status.pid, placement_of(client).host_pid]
        with stopped(cluster.processes_of(node)):
            # It is written to a host that does not read it before its lease is over.
            lost = client.submit_tool("record", {"text": "late"}, timeout=CLUSTER_PATIENCE)
            error = lost.exception(CLUSTER_PATIENCE)
            assert isinstance(error, ServerCrashed)
            assert error.delivery == "unknown"
            assert not client.call_tool("record", {"text": "next"}, timeout=CLUSTER_PATIENCE).is_error
            assert placement_of(client).node_id != node
        assert all(is_gone(pid) for pid in pids)
        assert not client.call_tool("record", {"text": "last"}).is_error
        assert ledger.read_text().splitlines() == ["next", "last"]
        cluster.lose_node(node)

    def test_a_host_that_stood_still_for_longer_than_its_lease_gives_its_server_up(
        self, connect: Connect, placed: Entry, tmp_path: Path
    ) -> None:
        ledger = tmp_path / "ledger"
        client = connect(placed(with_ledger(ledger), lease=LEASE))
        host, server = placement_of(client).host_pid, client.status.pid
        assert server is not None
        with stopped([psutil.Process(host)]):
            written = client.submit_tool("record", {"text": "late"}, timeout=CLUSTER_PATIENCE)
            # Ray does not look whether an actor's process goes on.
            assert wait_until(lambda: client.state is ServerState.RESTARTING, CLUSTER_PATIENCE)
            assert "has not answered" in str(client.last_error)
            waiting = client.submit_tool("record", {"text": "next"}, timeout=CLUSTER_PATIENCE)
            assert psutil.pid_exists(server)
        assert is_gone(server)
        assert is_gone(host)
        assert not waiting.result(CLUSTER_PATIENCE).is_error
        late = written.exception(CLUSTER_PATIENCE)
        assert ledger.read_text().splitlines().count("late") == (0 if late else 1)
        assert ledger.read_text().splitlines().count("next") == 1


class TestLedger:
    """What callers were told, and what a server has written down before it did anything else."""

    def test_nothing_is_lost_or_doubled_while_actors_are_killed(
        self, connect: Connect, placed: Entry, tmp_path: Path
    ) -> None:
        ledger = tmp_path / "ledger"
        client = connect({**placed(with_ledger(ledger)), "timeout": CLUSTER_PATIENCE})
        outcomes: dict[str, Any] = {}
        stop = threading.Event()

        def call(caller: int) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                text = f"{caller}-{number}"
                outcomes[text] = client.call_tool("record", {"text": text})

        callers = [threading.Thread(target=call, args=(caller,)) for caller in range(16)]
        for caller in callers:
            caller.start()
        try:
            for _ in range(KILLS):
                before = len(outcomes)
                assert wait_until(lambda before=before: len(outcomes) > before + 100, CLUSTER_PATIENCE)  # type: ignore[misc]
                hosts = placement_of(client).hosts
                kill_host(client)
                assert wait_until(lambda hosts=hosts: hosts_of(client) == hosts + 1, CLUSTER_PATIENCE)  # type: ignore[misc]
        finally:
            stop.set()
            for caller in callers:
                caller.join(CLUSTER_PATIENCE)
        written = Counter(ledger.read_text().splitlines())
        assert {text: count for text, count in written.items() if count > 1} == {}
        good = {text for text, outcome in outcomes.items() if not outcome.is_error}
        assert good <= written.keys()
        failed = {text: outcome for text, outcome in outcomes.items() if outcome.is_error}
        assert {outcome["error_type"] for outcome in failed.values()} <= {"server_crashed"}
        not_sent = {text for text, outcome in failed.items() if outcome["delivery"] == "not_sent"}
        assert not_sent & written.keys() == set()


class TestPlacement:
    def test_a_missing_resource_is_named(self, placed: Entry) -> None:
        client = MCPClient.from_config(
            "it", {**placed(resources={"gpu_of_dreams": 1}), "timeout": 2, "startTimeout": 2}
        )
        assert not client.connect()
        assert "'gpu_of_dreams'" in str(client.last_error)
        assert client.state is ServerState.FAILED
        client.disconnect()

    def test_it_is_placed_as_soon_as_the_resource_is_there(self, placed: Entry, cluster: SmallCluster) -> None:
        client = MCPClient.from_config("it", {**placed(resources={"rare": 1}), "timeout": 2, "startTimeout": 2})
        try:
            assert not client.connect(keep_trying=True)
            result = client.call_tool("add", {"a": 1, "b": 2})
            assert (result["error_type"], result["delivery"]) == ("server_unavailable", "not_sent")
            cluster.add_node(rare=1, browser=1)
            assert wait_ready(client)
            assert client.call_tool("add", {"a": 1, "b": 2})["structuredContent"] == {"sum": 3}
        finally:
            client.disconnect()

    def test_a_missing_command_is_reported(self, placed: Entry) -> None:
        client = MCPClient.from_config("it", placed({"command": "no-such-command"}))
        assert not client.connect()
        problem = str(client.last_error)
        assert problem.startswith(f"on node {socket.gethostname()}: the command 'no-such-command' was not found")


class TestEnd:
    def test_disconnect_waits_until_nothing_is_left(self, connect: Connect, placed: Entry) -> None:
        client = connect(placed())
        pids = [client.status.pid, placement_of(client).host_pid]
        client.disconnect()
        assert not psutil.pid_exists(pids[0])
        assert is_gone(pids[1])
        assert not [thread.name for thread in threading.enumerate() if thread.name == "mcp-cluster"]

    def test_a_driver_that_is_killed_leaves_nothing(self, placed: Entry, cluster: SmallCluster, tmp_path: Path) -> None:
        program = textwrap.dedent("""
            import json, sys, time
            from gaia.mcp.client import MCPClient
            client = MCPClient.from_config("it", json.loads(sys.argv[1]))
            assert client.connect(), client.last_error
            print(client.status.pid, client.status.placement.host_pid, flush=True)
            time.sleep(300)
        """)
        driver = subprocess.Popen(
            [sys.executable, "-c", program, json.dumps(placed())],
            env={**os.environ, "RAY_ADDRESS": cluster.address},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert driver.stdout is not None
        with driver.stdout:
            pids = [int(pid) for pid in driver.stdout.readline().split()]
            driver.kill()
            driver.wait()
        assert len(pids) == 2
        assert all(is_gone(pid) for pid in pids)


def test_ray_never_sees_a_secret(
    connect: Connect, placed: Entry, demo_server: dict[str, Any], cluster: SmallCluster
) -> None:
    secret = "s3cret-of-the-server"
    client = connect(placed({**demo_server, "env": {"API_KEY": secret}}))
    client.call_tool("add", {"a": 1, "b": 2})
    kill_host(client)
    assert wait_ready(client)
    logs = Path(cluster._cluster.head_node.get_session_dir_path()) / "logs"
    # The files of all nodes are below the folder of the first.
    found = [file for file in logs.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    assert found == []
