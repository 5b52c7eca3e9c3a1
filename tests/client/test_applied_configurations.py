"""Another configuration for a manager that runs, while callers call: no call fails. All servers are real."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp import MCPConfig
from gaia.mcp.aio import AsyncMCPClientManager
from gaia.mcp.client import MCPClientManager
from gaia.mcp.errors import ConfigError
from gaia.mcp.supervision.events import ServerState, ToolsChanged
from gaia.mcp.tools.tool_result import ToolResult
from gaia.testing import FakeServer
from tests.recorder import Recorder
from tests.servers.answers import text
from tests.servers.processes import is_alive
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.process

Json = dict[str, Any]
Server = Callable[..., Json]


class Callers:
    """Threads that call tools all the while, each call with a text of its own."""

    def __init__(self) -> None:
        self.results: dict[str, ToolResult] = {}
        self.enough = threading.Event()

    def call(self, manager: MCPClientManager, server: str, thread: int) -> None:
        number = 0
        while not self.enough.is_set():
            number += 1
            tag = f"{server}-{thread}-{number}"
            self.results[tag] = manager.call_tool(f"mcp_{server}_echo", {"text": tag}, timeout=PATIENCE)

    def done(self) -> int:
        return len(self.results)


@contextmanager
def calling(manager: MCPClientManager, *servers: str) -> Iterator[Callers]:
    """Two callers of each server in the block; after it, all of their calls were answered, each with its own text."""
    callers = Callers()
    with ThreadPoolExecutor(2 * len(servers)) as threads:
        running = [threads.submit(callers.call, manager, server, thread) for server in servers for thread in range(2)]
        try:
            assert wait_until(lambda: callers.done() > 4)
            yield callers
            seen = callers.done()
            assert wait_until(lambda: callers.done() > seen + 4)
        finally:
            callers.enough.set()
        for one in running:
            one.result(PATIENCE)
    assert {tag: text(result) for tag, result in callers.results.items()} == {tag: tag for tag in callers.results}


def pids(manager: MCPClientManager) -> dict[str, int | None]:
    return {status.name: status.pid for status in manager.status()}


def test_only_what_has_changed_is_touched_and_no_call_fails(fault_server: Server, tmp_path: Path) -> None:
    same, old = fault_server(state_file=tmp_path / "same"), fault_server(state_file=tmp_path / "old")
    gone, new = fault_server(state_file=tmp_path / "gone"), fault_server(state_file=tmp_path / "new")
    with MCPClientManager({"same": same, "it": old, "gone": gone}) as manager:
        before = pids(manager)
        with calling(manager, "same", "it") as callers:
            applied = manager.apply({"more": fault_server(), "same": {**same, "timeout": 30.0}, "it": new})
        assert (applied.unchanged, applied.started, applied.replaced, applied.removed) == (
            ("same",),
            ("more",),
            ("it",),
            ("gone",),
        )
        assert (applied.failed, applied.pending) == ({}, ())
        after = pids(manager)
        assert list(after) == ["more", "same", "it"], "in the order of the configuration"
        assert after["same"] == before["same"]
        assert after["it"] != before["it"]
        assert manager.call_tool("mcp_gone_echo", {"text": "x"})["error_type"] == "unknown_tool"
        assert {tool.namespaced_name for tool in manager.list_tools()} >= {"mcp_more_echo", "mcp_it_echo"}
        (status,) = [status for status in manager.status() if status.name == "it"]
        assert (status.restarts, status.last_recycling) == (0, "recycled: reconfigured")
        assert not any(map(is_alive, read_state(tmp_path / "gone").pids))
        assert wait_until(lambda: not any(map(is_alive, read_state(tmp_path / "old").pids)))
        made = Counter(
            call.arguments["text"] for name in ("same", "old", "new") for call in read_state(tmp_path / name).calls
        )
        assert made == Counter(list(callers.results)), "each call was made once"
        assert read_state(tmp_path / "new").starts == 1


def test_one_that_cannot_start_leaves_the_old_one_and_says_why(fault_server: Server) -> None:
    old, broken = fault_server(), fault_server(exit_at_start={"code": 7, "stderr": "no licence"})
    with MCPClientManager({"it": old}) as manager:
        before = pids(manager)
        with calling(manager, "it"):
            applied = manager.apply({"it": {**broken, "disabledTools": ["echo"]}})
        assert applied.replaced == ()
        assert "code 7" in applied.failed["it"]
        assert pids(manager) == before
        assert not manager.call_tool("mcp_it_echo", {"text": "x"}).is_error, "the old filters hold, too"
        assert "it" in manager.apply({"it": {**broken, "disabledTools": ["echo"]}}).failed, "it is tried again"
        assert manager.apply({"it": old}).unchanged == ("it",)


@pytest.mark.parametrize("wrong", [{"command": 3}, {"comand": "x"}, {"command": "x", "maxCalls": 0}])
def test_an_invalid_configuration_changes_nothing(fault_server: Server, wrong: Json) -> None:
    with MCPClientManager({"it": fault_server()}) as manager:
        before, config = pids(manager), manager.config
        with pytest.raises(ConfigError, match="server 'bad'"):
            manager.apply({"new": fault_server(), "bad": wrong})
        with pytest.raises(ConfigError, match="expected"):
            manager.apply("mcp_servers.json")  # type: ignore[arg-type]
        assert (pids(manager), manager.config) == (before, config)
        manager.apply({"it": fault_server(), "bad": {**wrong, "disabled": True}})
        assert pids(manager) == before


def test_a_call_under_way_finishes_in_the_process_that_has_it(fault_server: Server, tmp_path: Path) -> None:
    states = [tmp_path / "changed", tmp_path / "removed", tmp_path / "new"]
    changed, removed, new = (fault_server(state_file=state) for state in states)
    with MCPClientManager({"it": changed, "gone": removed}) as manager, ThreadPoolExecutor(3) as threads:
        slow = [threads.submit(manager.call_tool, f"mcp_{name}_sleep", {"seconds": 1.0}) for name in ("it", "gone")]
        assert wait_until(lambda: all(len(read_state(state).calls) == 1 for state in states[:2]))
        applied = manager.apply({"it": new})
        assert (applied.replaced, applied.removed) == (("it",), ("gone",))
        assert [one.result(PATIENCE).is_error for one in slow] == [False, False]
        assert not any(is_alive(pid) for pid in read_state(states[1]).pids)


def test_a_call_that_does_not_end_is_ended_when_the_time_to_drain_is_over(fault_server: Server, tmp_path: Path) -> None:
    server = {**fault_server(state_file=tmp_path / "state", faults=[{"hang": True}]), "drainTimeout": 0.2}
    with MCPClientManager({"it": server}) as manager, ThreadPoolExecutor(1) as thread:
        hung = thread.submit(manager.call_tool, "mcp_it_echo", {"text": "x"}, timeout=300.0)
        assert wait_until(lambda: len(read_state(tmp_path / "state").calls) == 1)
        assert manager.apply({}).removed == ("it",)
        result = hung.result(PATIENCE)
        assert (result["error_type"], result["delivery"]) == ("server_crashed", "unknown")
        assert "0.2 s" in result["error"]


def test_disconnecting_does_not_wait_for_those_that_were_removed(fault_server: Server, tmp_path: Path) -> None:
    server = {**fault_server(state_file=tmp_path / "state", faults=[{"hang": True}]), "drainTimeout": 3600.0}
    with ThreadPoolExecutor(1) as thread, MCPClientManager({"it": server}) as manager:
        hung = thread.submit(manager.call_tool, "mcp_it_echo", {"text": "x"}, timeout=300.0)
        assert wait_until(lambda: len(read_state(tmp_path / "state").calls) == 1)
        assert manager.apply({}, timeout=0).pending == ("it",)
        assert wait_until(lambda: not manager.status())
    assert hung.result(PATIENCE).is_error
    assert not any(map(is_alive, read_state(tmp_path / "state").pids))


def test_calls_that_wait_for_a_server_that_is_down_go_to_the_new_process(fault_server: Server, tmp_path: Path) -> None:
    state = tmp_path / "state"
    crash = {"nth": [1], "crash": "before_answer"}
    old = {
        **fault_server(state_file=state, faults=[crash], by_start={"2": {"start_delay": 300.0}}),
        "timeout": 300.0,
        "protocol": "handshake",
    }
    with MCPClientManager({"it": old}) as manager, ThreadPoolExecutor(1) as thread:
        heard = Recorder()
        manager.subscribe(heard)
        assert manager.call_tool("mcp_it_echo", {"text": "x"}).is_error
        waiting = thread.submit(manager.call_tool, "mcp_it_pid", timeout=PATIENCE)
        assert wait_until(lambda: read_state(state).starts == 2 and manager.status()[0].queued == 1)
        assert manager.apply({"it": fault_server()}).replaced == ("it",)
        assert text(waiting.result(PATIENCE)) == str(manager.status()[0].pid)
        assert not any(map(is_alive, read_state(state).pids))


def test_one_that_was_never_ready_is_started_with_the_new_entry(fault_server: Server) -> None:
    broken = {**fault_server(exit_at_start={"code": 1}), "protocol": "handshake"}
    with MCPClientManager({"it": broken}) as manager:
        assert manager.status()[0].state is ServerState.FAILED
        assert manager.apply({"it": fault_server()}).replaced == ("it",)
        assert manager.wait_ready(PATIENCE)
        assert not manager.call_tool("mcp_it_echo", {"text": "x"}).is_error
        assert [status.state for status in manager.status()] == [ServerState.READY]


def test_filters_routes_and_events_follow(fault_server: Server) -> None:
    server = {**fault_server(), "disabledTools": ["pid"]}
    with MCPClientManager({"it": server}) as manager:
        heard = Recorder()
        manager.subscribe(heard)
        client = manager.get_client("it")
        with calling(manager, "it"):
            manager.apply({"it": {**server, "disabledTools": ["sleep"]}})
        assert manager.get_client("it") is client
        assert not manager.call_tool("mcp_it_pid").is_error
        assert manager.call_tool("mcp_it_sleep", {"seconds": 0})["error_type"] == "denied"
        assert heard.wait_for(ToolsChanged, server="it", added=("pid",), removed=("sleep",))


def test_the_pins_are_those_of_the_file_that_the_entry_is_in(
    fault_server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def configuration(name: str, **scenario: Any) -> MCPConfig:
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"mcpServers": {"it": {**fault_server(**scenario), "pinTools": "block"}}}))
        return MCPConfig(file)

    lock = tmp_path / "lock.json"
    changed = [{"name": "echo", "description": "Something else"}]
    with MCPClientManager(configuration("b", tools=changed), tool_lock_file=lock) as manager:
        manager.load_from_config()
    with MCPClientManager(configuration("a"), tool_lock_file=lock) as manager:
        manager.load_from_config()
        assert not manager.call_tool("mcp_it_echo", {"text": "x"}).is_error
        caplog.set_level(logging.INFO)
        assert manager.apply(configuration("b")).replaced == ("it",)
        assert manager.call_tool("mcp_it_echo", {"text": "x"})["error_type"] == "not_approved"
        assert manager.config.config_file == tmp_path / "b.json"
    assert "config_applied" in caplog.text


def test_configurations_that_are_applied_at_once_follow_one_another(fault_server: Server) -> None:
    entries = [{**fault_server(), "maxPending": number} for number in range(1, 5)]
    with MCPClientManager({"it": fault_server()}) as manager, ThreadPoolExecutor(4) as threads:
        applied = list(threads.map(lambda entry: manager.apply({"it": entry}), entries))
        assert [one.replaced for one in applied] == [("it",)] * 4
        assert manager.status()[0].recyclings == 4


def test_a_stopped_server_stays_stopped(fault_server: Server, tmp_path: Path) -> None:
    with MCPClientManager({"it": fault_server()}) as manager:
        manager.stop_server("it")
        manager.apply({"it": fault_server(state_file=tmp_path / "state")})
        assert manager.status()[0].state is ServerState.CLOSED
        assert manager.restart("it")
        assert read_state(tmp_path / "state").starts == 1


def test_a_task_applies_it_too(fault_server: Server) -> None:
    async def main() -> None:
        async with AsyncMCPClientManager({"it": fault_server()}) as manager:
            applied = await manager.apply({"it": {**fault_server(), "timeout": 7}})
            assert applied.replaced == ("it",)
            assert not (await manager.call_tool("mcp_it_echo", {"text": "x"})).is_error

    asyncio.run(main())


def test_what_is_applied_last_holds_while_an_earlier_change_is_under_way(fault_server: Server) -> None:
    old, new = fault_server(), fault_server(start_delay=0.2)
    with MCPClientManager({"it": old}) as manager:
        assert manager.apply({"it": new}, timeout=0).pending == ("it",)
        applied = manager.apply({"it": old})
        assert (applied.unchanged, applied.replaced) == ((), ("it",))
        client = manager.get_client("it")
        assert client is not None
        assert client._engine.entry is not None
        assert client._engine.entry.args == old["args"]
        assert manager.apply({"it": old}).unchanged == ("it",)


def test_a_server_comes_back_while_it_finishes_the_calls_from_before_its_removal(
    fault_server: Server, tmp_path: Path
) -> None:
    server = fault_server(state_file=tmp_path / "state")
    with MCPClientManager({"it": server}) as manager:
        before = pids(manager)
        call = manager.submit_tool("mcp_it_sleep", {"seconds": 600})
        assert wait_until(lambda: len(read_state(tmp_path / "state").calls) == 1)
        assert manager.apply({}, timeout=0).pending == ("it",)
        assert manager.apply({"it": server}).started == ("it",)
        assert pids(manager)["it"] not in (None, before["it"])
        assert not manager.call_tool("mcp_it_echo", {"text": "x"}).is_error
        call.cancel()


def test_the_time_of_one_does_not_wait_for_another_that_is_applied(
    fault_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, begun, goes_on = fault_server(), threading.Event(), threading.Event()
    with MCPClientManager({}) as manager, ThreadPoolExecutor(1) as threads:

        def start(*_: object) -> str:
            begun.set()
            goes_on.wait(PATIENCE)
            return "it was not started"

        monkeypatch.setattr(manager._engine.configured, "_start", start)
        first = threads.submit(manager.apply, {"one": one})
        assert begun.wait(PATIENCE)
        applied = manager.apply({"one": one, "two": one}, timeout=0)
        assert (applied.unchanged, applied.pending) == (("one",), ("two",))
        assert not first.done()
        goes_on.set()
        assert "one" in first.result(PATIENCE).failed


def test_what_was_applied_before_everything_is_disconnected_starts_nothing_after_it(
    fault_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = MCPClientManager({})
    begin = manager._engine.configured._begin_changes

    def disconnected_first(*arguments: Any) -> list[str]:
        manager.disconnect_all()
        return begin(*arguments)

    monkeypatch.setattr(manager._engine.configured, "_begin_changes", disconnected_first)
    applied = manager.apply({"it": fault_server(state_file=tmp_path / "state")})
    assert (applied.started, list(applied.failed)) == ((), ["it"])
    assert not (tmp_path / "state").exists()
    assert manager._engine.registry.client_of("it") is None


@pytest.mark.parametrize("drain", [-1.0, float("inf"), float("nan"), None, "1"])
def test_a_time_to_drain_that_is_no_duration_is_refused_and_stops_nothing(drain: Any) -> None:
    with MCPClientManager({"it": FakeServer("it")}) as manager:
        client = manager._engine.registry.client_of("it")
        assert client is not None
        for stop in (client.disconnect, client._engine.request_disconnect):
            with pytest.raises(ValueError, match="drain"):
                stop(drain=drain)
        assert client.state is ServerState.READY
