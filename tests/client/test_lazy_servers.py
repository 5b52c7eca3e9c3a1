"""Servers that are started by their first use and stopped when they are idle. All of them are real."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp import MCPConfig
from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.supervision.events import ServerState
from gaia.testing import FakeServer
from tests.servers.answers import text
from tests.servers.processes import is_alive
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.process

Json = dict[str, Any]
FaultServer = Callable[..., Json]


def written(tmp_path: Path, entry: Json) -> MCPConfig:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"it": entry}}))
    return MCPConfig(file)


def test_a_server_that_is_known_is_listed_and_not_started(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    server = {**fault_server(state_file=state), "lazy": True}
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
        listed = manager.list_tools()
        assert read_state(state).starts == 1, "it had to be asked"
    with MCPClientManager(written(tmp_path, server)) as manager, ThreadPoolExecutor(8) as threads:
        manager.load_from_config()
        assert manager.list_tools() == listed
        assert manager.wait_ready(PATIENCE)
        (status,) = manager.status()
        assert (status.state, status.pid, status.protocol_version) == (ServerState.EXITED, None, "2025-11-25")
        assert read_state(state).starts == 1
        results = threads.map(lambda number: manager.call_tool("mcp_it_echo", {"text": str(number)}), range(8))
        assert [text(result) for result in results] == [str(number) for number in range(8)]
        assert read_state(state).starts == 2, "concurrent first uses start it once"
        assert (manager.status()[0].state, manager.status()[0].restarts) == (ServerState.READY, 0)


def test_what_is_known_follows_the_server(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    later = {"tools": [{"name": "later"}]}
    server = {**fault_server(state_file=state, by_start={"2": later, "3": later}), "lazy": True}
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
        assert "later" not in [tool.name for tool in manager.list_tools()]
        assert not manager.call_tool("mcp_it_pid").is_error
        assert "later" in [tool.name for tool in manager.list_tools()]
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
        assert "later" in [tool.name for tool in manager.list_tools()]
        assert read_state(state).starts == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 2}', '{"tools": 3}'])
def test_a_memory_that_cannot_be_used_is_as_good_as_none(
    fault_server: FaultServer, tmp_path: Path, content: str
) -> None:
    state = tmp_path / "state"
    server = {**fault_server(state_file=state), "lazy": True}
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
    (file,) = (Path.home() / ".gaia" / "known_servers").glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(content)
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
        assert read_state(state).starts == 2
        assert manager.list_tools()
    assert json.loads(file.read_text())["version"] == 1


def test_a_start_at_which_the_tools_could_not_be_listed_is_not_remembered(
    fault_server: FaultServer, tmp_path: Path
) -> None:
    broken = {"faults": [{"on": "tools/list", "error": {"code": -32603, "message": "not now"}}]}
    server = {**fault_server(by_start={"1": broken}, state_file=tmp_path / "state"), "lazy": True}
    for _ in range(2):
        with MCPClientManager(written(tmp_path, server)) as manager:
            manager.load_from_config()
            listed = manager.list_tools()
    assert listed, "nothing would start it, if it had no tools for ever"


def test_at_rest_its_tools_follow_what_is_applied() -> None:
    server = FakeServer("it", [{"name": "look"}, {"name": "push"}])
    other = FakeServer("it", [{"name": "pull"}])
    with MCPClientManager({"it": {**server, "lazy": True}}) as manager:
        manager.stop_server("it")
        assert manager.restart("it")
        assert server.starts == 1
        manager.apply({"it": {**server, "lazy": True, "disabledTools": ["push"]}})
        assert [tool.name for tool in manager.list_tools()] == ["look"]
        assert server.starts == 1
        manager.apply({"it": {**other, "lazy": True}})
        assert [tool.name for tool in manager.list_tools()] == ["pull"], "another server has to be asked"


def test_in_memory_nothing_is_written(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with MCPClientManager({"it": {**fault_server(state_file=state), "lazy": True}}) as manager:
        assert read_state(state).starts == 1
        manager.stop_server("it")
        assert manager.restart("it")
        assert read_state(state).starts == 1, "it is remembered, though"
        assert not manager.call_tool("mcp_it_pid").is_error
    assert not (Path.home() / ".gaia").exists()


def test_an_idle_server_is_stopped_until_the_next_call(
    fault_server: FaultServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = {**fault_server(state_file=tmp_path / "state"), "idleStop": 0.1}
    with MCPClientManager({"it": server}) as manager:
        first = text(manager.call_tool("mcp_it_pid"))
        assert wait_until(lambda: manager.status()[0].state is ServerState.EXITED)
        assert "server_idle" in caplog.text
        assert wait_until(lambda: not is_alive(int(first)))
        assert manager.wait_ready(PATIENCE)
        assert text(manager.call_tool("mcp_it_pid")) != first


def test_no_call_fails_while_a_server_is_stopped_again_and_again(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    server = {**fault_server(state_file=state), "idleStop": 0.02, "protocol": "handshake"}
    with MCPClientManager({"it": server}) as manager, ThreadPoolExecutor(2) as threads:

        def call(thread: int) -> list[str]:
            made: list[str] = []
            # Each waits at times until the server is stopped, so that calls come at that very moment, too.
            while read_state(state).starts < 8:
                made.append(f"{thread}-{len(made)}")
                assert text(manager.call_tool("mcp_it_echo", {"text": made[-1]}, timeout=PATIENCE)) == made[-1]
                if len(made) % 3 == thread:
                    wait_until(lambda: manager.status()[0].state is not ServerState.READY)
            return made

        made = [one for tags in threads.map(call, range(2)) for one in tags]
    assert Counter(call.arguments["text"] for call in read_state(state).calls) == Counter(made)


def test_a_call_waits_for_the_start_no_longer_than_it_may(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    slow = {"2": {"start_delay": 300.0}}
    server = {**fault_server(state_file=state, by_start=slow), "lazy": True, "timeout": 300.0}
    with MCPClientManager({"it": server}) as manager:
        manager.stop_server("it")
        assert manager.restart("it")
        result = manager.call_tool("mcp_it_pid", timeout=0.3)
        assert (result["error_type"], result["delivery"]) == ("timeout", "not_sent")


def test_one_that_cannot_be_started_any_more_is_tried_again_when_it_is_needed(
    fault_server: FaultServer, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    server = {
        **fault_server(state_file=state, by_start={"2": {"exit_at_start": {"code": 3}}}),
        "lazy": True,
        "protocol": "handshake",
        "restart": {"initialDelay": 0.05},
    }
    with MCPClientManager({"it": server}) as manager:
        manager.stop_server("it")
        assert manager.restart("it")
        failed = manager.call_tool("mcp_it_pid")
        assert failed["error_type"] == "server_unavailable"
        assert "code 3" in failed["error"]
        assert wait_until(lambda: manager.status()[0].state is ServerState.EXITED)
        assert read_state(state).starts == 2
        assert not manager.call_tool("mcp_it_pid").is_error


def test_a_client_by_itself_rests_too(fault_server: FaultServer) -> None:
    with MCPClient.from_config("it", {**fault_server(), "lazy": True, "idleStop": 0.1}) as client:
        assert wait_until(lambda: client.state is ServerState.EXITED)
        assert not client.call_tool("echo", {"text": "x"}).is_error
