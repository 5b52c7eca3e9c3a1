"""A process that waits, started and greeted, takes over from one that was killed: with real processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import StandbyStatus
from tests.chaos.ledger import Ledger
from tests.servers.answers import text
from tests.servers.processes import is_alive, wait_for_end
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there are no such signals"),
]

Json = dict[str, Any]
FaultServer = Callable[..., Json]
Connect = Callable[..., MCPClient]

MANY = {"maxRestarts": 100_000, "initialDelay": 0.001, "maxDelay": 0.001, "jitter": 0.0}
SAFE = {"name": "echo", "annotations": {"readOnlyHint": True}}


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def standby(client: MCPClient) -> StandbyStatus:
    """Wait until a stand-by waits; return its status."""
    found: list[StandbyStatus] = []

    def waits() -> bool:
        status = client.status.standby
        if status is not None and status.state == "ready":
            found.append(status)
        return bool(found)

    assert wait_until(waits, PATIENCE), client.status
    return found[-1]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def server(fault_server: FaultServer, state: Path) -> Json:
    return {**fault_server(state_file=state), "standby": True, "restart": MANY}


@pytest.mark.slow
def test_a_call_after_a_kill_is_answered_by_a_process_that_had_started_before(
    fault_server: FaultServer, state: Path, connect: Connect
) -> None:
    client = connect({**fault_server(state_file=state, start_delay=1.5), "standby": True})
    waiting = standby(client)
    assert read_state(state).pids == (client.status.pid, waiting.pid)
    kill(client.status.pid)
    # The call may have gone to the process that was killed, which no caller can know.
    answers = [client.call_tool("pid", timeout=PATIENCE) for _ in range(2)]
    answer = next(answer for answer in answers if "error_type" not in answer)
    assert int(text(answer)) == waiting.pid
    assert client.status.pid == waiting.pid
    assert client.status.restarts == 1
    assert client.status.generation == 2


def test_it_gets_no_call_before(server: Json, state: Path, connect: Connect) -> None:
    client = connect(server)
    standby(client)
    for number in range(20):
        assert text(client.call_tool("echo", {"text": str(number)})) == str(number)
    assert {call.start for call in read_state(state).calls} == {1}


@pytest.mark.slow
def test_calls_of_several_threads_during_a_hundred_kills(server: Json, state: Path, connect: Connect) -> None:
    client = connect(server)
    ledger, kills = Ledger("standby"), 100
    begin, end = threading.Barrier(4), threading.Barrier(4)

    def make_calls() -> None:
        for _ in range(kills):
            begin.wait(PATIENCE)
            for _ in range(5):
                ledger.call(client, "echo", {}, safe=False, timeout=PATIENCE)
            end.wait(PATIENCE)

    threads = [threading.Thread(target=make_calls) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(kills):
            waiting, pid = standby(client).pid, client.status.pid
            begin.wait(PATIENCE)
            kill(pid)
            assert wait_until(lambda waiting=waiting: client.status.pid == waiting, PATIENCE)  # type: ignore[misc]
            end.wait(PATIENCE)
    except BaseException:
        begin.abort()
        end.abort()
        raise
    finally:
        for thread in threads:
            thread.join()
    client.disconnect()
    recorded = read_state(state)
    ledger.check(recorded.calls, PATIENCE)
    assert len(ledger.entries) == 3 * 5 * kills
    assert ledger.outcomes().keys() <= {"ok", "server_crashed"}
    assert ledger.outcomes()["ok"] > ledger.outcomes()["server_crashed"]
    assert client.status.restarts == kills
    assert not [pid for pid in recorded.pids if is_alive(pid)]


def test_safe_calls_of_several_threads_are_all_answered(
    fault_server: FaultServer, state: Path, connect: Connect
) -> None:
    client = connect({**fault_server(state_file=state, tools=[SAFE]), "standby": True, "restart": MANY})
    standby(client)
    ledger = Ledger("safe")
    threads = [
        threading.Thread(
            target=lambda: [ledger.call(client, "echo", {}, safe=True, timeout=PATIENCE) for _ in range(20)]
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    kill(client.status.pid)
    for thread in threads:
        thread.join()
    client.disconnect()
    ledger.check(read_state(state).calls, PATIENCE)
    assert ledger.outcomes() == {"ok": 60}


def test_the_standby_is_killed_first(server: Json, connect: Connect) -> None:
    client = connect(server)
    first = client.status.pid
    lost = standby(client)
    kill(lost.pid)
    assert wait_until(lambda: standby(client).pid != lost.pid, PATIENCE)
    assert (client.status.pid, client.status.restarts, client.status.last_error) == (first, 0, None)
    waiting = standby(client)
    kill(first)
    assert wait_until(lambda: client.status.pid == waiting.pid, PATIENCE)


def test_both_are_killed_at_once(server: Json, connect: Connect) -> None:
    client = connect(server)
    pids = {client.status.pid, standby(client).pid}
    for pid in pids:
        kill(pid)
    assert wait_until(lambda: client.state is ServerState.READY and client.status.pid not in pids, PATIENCE)
    assert text(client.call_tool("echo", {"text": "back"}, timeout=PATIENCE)) == "back"


def test_the_standby_is_killed_while_it_takes_over(server: Json, connect: Connect) -> None:
    client = connect(server)
    waiting = standby(client).pid

    def kill_again(event: object) -> None:
        if getattr(event, "new", None) is ServerState.RESTARTING:
            unsubscribe()
            kill(waiting)

    unsubscribe = client.subscribe(kill_again)
    kill(client.status.pid)
    assert waiting is not None
    assert wait_for_end(waiting)
    assert wait_until(lambda: client.state is ServerState.READY and client.status.pid != waiting, PATIENCE)
    assert wait_until(
        lambda: client.call_tool("echo", {"text": "back"}, timeout=PATIENCE).get("error_type") is None, PATIENCE
    )


@pytest.mark.parametrize("fault", [{"freeze": True}, {"close_stdout": True}], ids=["hang", "closed output"])
def test_other_losses(fault_server: FaultServer, connect: Connect, fault: Json) -> None:
    config = fault_server(start_delay=0.3, faults=[{"tool": "echo", **fault}])
    client = connect({**config, "standby": True}, healthInterval=60, healthTimeout=0.2)
    lost, waiting = client.status.pid, standby(client).pid
    client.call_tool("echo", {"text": "hello"}, timeout=0.5)
    assert wait_until(lambda: client.status.pid == waiting, PATIENCE)
    assert int(text(client.call_tool("pid", timeout=PATIENCE))) == waiting
    assert lost is not None
    assert wait_for_end(lost)


def test_disconnecting_ends_both(server: Json, state: Path, connect: Connect) -> None:
    client = connect(server)
    standby(client)
    client.disconnect()
    assert client.status.standby is None
    pids = read_state(state).pids
    assert len(pids) == 2
    assert not [pid for pid in pids if is_alive(pid)]


def test_disconnecting_ends_one_that_is_being_started(fault_server: FaultServer, state: Path, connect: Connect) -> None:
    client = connect({**fault_server(state_file=state, start_delay=0.2), "standby": True})
    assert wait_until(lambda: client.status.standby is not None and client.status.standby.pid is not None, PATIENCE)
    client.disconnect()
    assert not [pid for pid in read_state(state).pids if is_alive(pid)]


def test_a_forked_child_leaves_both_alone(server: Json, connect: Connect) -> None:
    client = connect(server)
    before = (client.status.pid, standby(client).pid)
    pid = os.fork()
    if pid == 0:
        try:
            client.disconnect()
        finally:
            os._exit(0 if client.status.standby is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (client.status.pid, standby(client).pid) == before
    assert text(client.call_tool("echo", {"text": "still there"})) == "still there"


def test_in_a_manager(server: Json) -> None:
    with MCPClientManager({"one": server, "other": {**server, "standby": False}}) as manager:
        client = manager.get_client("one")
        assert client is not None
        standby(client)
        statuses = {status.name: status.standby for status in manager.status()}
        assert statuses["other"] is None
        assert statuses["one"] is not None
