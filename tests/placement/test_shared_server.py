"""Programs share one server by its name; the last one ends it."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.placement.process_engine import ProcessEngine
from tests.placement.conftest import DEMO, LEASE, Start, all_of, are_gone, placed, processes_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

Connect = Callable[..., MCPClient]


def shared(entry: dict[str, Any] = DEMO, **placement: Any) -> dict[str, Any]:
    return placed(entry, lifetime="detached", name="team/demo", **placement)


def files() -> list[Path]:
    return [file for file in (Path.home() / ".gaia" / "hosts").glob("*") if file.suffix == ".json"]


def test_the_last_program_ends_the_server(connect: Connect, program: Start) -> None:
    first, second = connect(shared()), connect(shared(), "other")
    third = program(shared())
    processes = processes_of(first)
    host = processes[0].pid
    assert processes_of(second)[0].pid == host
    assert third.call() == [host, False]
    assert [(one.name, one.id, one.is_shared) for one in ProcessEngine().list()] == [("team/demo", str(host), True)]
    first.disconnect()
    third.end()
    assert second.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    second.disconnect()
    assert are_gone(processes)
    assert files() == []
    assert ProcessEngine().list() == []


def test_a_host_that_has_just_ended_is_gone(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(shared())
    host = processes_of(client)[0]

    def terminate(process: psutil.Process) -> None:
        process.kill()
        process.wait()
        raise psutil.NoSuchProcess(process.pid)

    monkeypatch.setattr(psutil.Process, "terminate", terminate)
    assert ProcessEngine().end(str(host.pid))
    client.disconnect()


def test_ten_programs_share_one_server(connect: Connect, program: Start) -> None:
    programs = [program(shared()) for _ in range(2)]
    clients = [MCPClient.from_config(f"demo{number}", shared()) for number in range(8)]
    results: list[Any] = []

    def use(client: MCPClient) -> None:
        assert client.connect(), client.last_error
        calls = [client.call_tool("sleep", {"seconds": 0.02}, on_progress=lambda *_: None) for _ in range(5)]
        results.extend(call.is_error for call in calls)

    threads = [threading.Thread(target=use, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    hosts = {one.call()[0] for one in programs}
    for thread in threads:
        thread.join()
    assert results == [False] * 40
    assert hosts == {processes_of(client)[0].pid for client in clients}
    processes = processes_of(clients[0])
    for client in clients:
        client.disconnect()
    for one in programs:
        one.end()
    assert are_gone(processes)


def test_other_settings_are_refused_by_the_names_of_their_keys(connect: Connect) -> None:
    first = connect(shared({**DEMO, "env": {"KEY": "secret-1"}}))
    second = MCPClient.from_config("other", shared({**DEMO, "env": {"KEY": "secret-2"}, "cwd": "/"}))
    assert not second.connect()
    assert second.last_error is not None
    assert second.last_error.endswith("give all programs the same: cwd, env")
    second.disconnect()
    assert first.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}


def test_a_start_can_be_given_up() -> None:
    client = MCPClient.from_config(
        "demo", shared({"command": sys.executable, "args": ["-c", "import time; time.sleep(601)"]})
    )
    connecting = threading.Thread(target=client.connect)
    connecting.start()

    def servers() -> list[psutil.Process]:
        return [one for one in psutil.process_iter(["cmdline"]) if "time.sleep(601)" in str(one.info["cmdline"])]

    assert wait_until(lambda: servers() != [])
    processes = servers()
    client.disconnect()
    connecting.join()
    assert are_gone(processes)
    assert ProcessEngine().list() == []


def test_a_program_that_is_killed_is_not_waited_for(connect: Connect, program: Start) -> None:
    one = program(shared())
    processes = all_of(one.call()[0])
    client = connect(shared())
    one.process.kill()
    client.disconnect()
    assert are_gone(processes)


def test_a_program_that_was_stopped_goes_on_if_another_keeps_the_server(connect: Connect, program: Start) -> None:
    client = connect(shared())
    one = program(shared())
    host, _ = one.call()
    os.kill(one.process.pid, signal.SIGSTOP)
    threading.Event().wait(2 * LEASE)
    os.kill(one.process.pid, signal.SIGCONT)
    assert one.call() == [host, False]
    assert processes_of(client)[0].pid == host


def test_a_shared_host_that_was_stopped_is_replaced_once_it_goes_on(connect: Connect) -> None:
    first, second = connect(shared()), connect(shared(), "other")
    processes = processes_of(first)
    os.kill(processes[0].pid, signal.SIGSTOP)
    assert wait_until(lambda: not first.is_connected() and not second.is_connected())
    began = time.monotonic()
    os.kill(processes[0].pid, signal.SIGCONT)
    assert first.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    assert time.monotonic() - began < 3
    assert second.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    assert processes_of(first)[0].pid == processes_of(second)[0].pid != processes[0].pid
    assert are_gone(processes)
