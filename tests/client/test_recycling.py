"""Fresh processes that take the place of servers that work: nothing of it is seen by callers. All servers are real."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.supervision import recycling
from gaia.mcp.supervision.events import Restarted
from gaia.mcp.tools.tool_result import ToolResult
from tests.recorder import Recorder
from tests.servers.answers import text
from tests.servers.processes import is_alive
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.process

Json = dict[str, Any]
FaultServer = Callable[..., Json]
LEAKS = """
import json, sys
kept = []
for line in sys.stdin:
    message = json.loads(line)
    method, answer = message["method"], {}
    if method == "initialize":
        info = {"name": "leaky", "version": "1"}
        answer = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        answer = {"tools": [{"name": "leak", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        kept.append(b"x" * (32 << 20))
        answer = {"content": [{"type": "text", "text": str(len(kept))}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
"""


@pytest.mark.timeout(120)
def test_a_stream_of_calls_over_20_recyclings_loses_and_doubles_none(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    server = {**fault_server(state_file=state), "maxCalls": 15, "protocol": "handshake"}
    results: dict[str, ToolResult] = {}
    with MCPClientManager({"it": server}) as manager:
        client = manager.get_client("it")
        assert client is not None
        enough = threading.Event()

        def call(thread: int) -> None:
            number = 0
            while not enough.is_set():
                number += 1
                tag = f"{thread}-{number}"
                results[tag] = manager.call_tool("mcp_it_echo", {"text": tag}, timeout=PATIENCE)
                if client.status.recyclings >= 20:
                    enough.set()

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(call, range(4)))
        status = client.status
        assert (status.restarts, status.last_recycling) == (0, "recycled: max_calls")
    assert {tag: text(result) for tag, result in results.items()} == {tag: tag for tag in results}
    ledger = read_state(state)
    assert Counter(one.arguments["text"] for one in ledger.calls) == Counter(list(results))
    assert ledger.starts >= 21
    assert not any(map(is_alive, ledger.pids))


def test_a_call_in_flight_is_answered_by_the_process_that_has_it(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with MCPClientManager({"it": fault_server(state_file=state)}) as manager, ThreadPoolExecutor(1) as thread:
        old = text(manager.call_tool("mcp_it_pid"))
        slow = thread.submit(manager.call_tool, "mcp_it_sleep", {"seconds": 1.0})
        assert wait_until(lambda: any(one.tool == "sleep" for one in read_state(state).calls))
        assert manager.restart("it")
        assert text(manager.call_tool("mcp_it_pid")) != old
        assert not slow.result(PATIENCE).is_error
        assert wait_until(lambda: not is_alive(int(old)))
        assert [one.start for one in read_state(state).calls if one.tool == "sleep"] == [1]


def test_a_call_that_hangs_gets_its_outcome_when_the_time_to_drain_is_over(
    fault_server: FaultServer, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    server = {**fault_server(state_file=state, faults=[{"tool": "echo", "hang": True}]), "drainTimeout": 0.2}
    with MCPClientManager({"it": server}) as manager, ThreadPoolExecutor(1) as thread:
        hung = thread.submit(manager.call_tool, "mcp_it_echo", {"text": "x"}, timeout=300.0)
        assert wait_until(lambda: len(read_state(state).calls) == 1)
        assert manager.restart("it")
        result = hung.result(PATIENCE)
        assert result["error_type"] == "server_crashed"
        assert result["delivery"] == "unknown"
        assert "0.2 s" in result["error"]
        assert wait_until(lambda: not is_alive(read_state(state).pids[0]))


def test_a_fresh_process_that_does_not_start_leaves_the_old_one(
    fault_server: FaultServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    by_start = {"2": {"exit_at_start": {"code": 3}}}
    server = {**fault_server(state_file=state, by_start=by_start), "protocol": "handshake"}
    with MCPClientManager({"it": server}) as manager:
        old = text(manager.call_tool("mcp_it_pid"))
        assert not manager.restart("it")
        (status,) = manager.status()
        assert (status.state.value, status.recyclings) == ("ready", 0)
        assert "no fresh process could take its place" in str(status.last_error)
        assert "code 3" in str(status.last_error)
        assert "server_not_replaced" in caplog.text
        assert text(manager.call_tool("mcp_it_pid")) == old
        assert manager.restart("it")
        assert text(manager.call_tool("mcp_it_pid")) != old


def test_a_server_that_leaks_memory_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(recycling, "_SECONDS_BETWEEN_LOOKS", 0.1)
    monkeypatch.setattr("gaia.mcp.transports.process._FRESH_SECONDS", 0.0)
    script = tmp_path / "leaks.py"
    script.write_text(LEAKS)
    server = {
        "command": sys.executable,
        "args": ["-I", "-S", str(script)],
        "maxMemory": "100M",
        "protocol": "handshake",
        "restart": {"stableAfter": 0.1},
    }
    with MCPClientManager({"it": server}) as manager:
        heard = Recorder()
        manager.subscribe(heard)
        old = manager.status()[0].pid
        for _ in range(4):
            assert not manager.call_tool("mcp_it_leak").is_error
        assert wait_until(lambda: manager.status()[0].recyclings == 1)
        (status,) = manager.status()
        assert (status.state.value, status.restarts) == ("ready", 0)
        assert status.last_recycling == "recycled: max_memory"
        assert status.pid != old
        assert wait_until(lambda: old is not None and not is_alive(old))
        assert wait_until(lambda: len(heard.of(Restarted)) == 1)
        assert heard.of(Restarted)[0].reason == "recycled: max_memory"
    assert "recycled: max_memory" in caplog.text


def test_a_client_by_itself_has_a_fresh_process_too(fault_server: FaultServer) -> None:
    with MCPClient.from_config("it", fault_server()) as client:
        old = client.status.pid
        assert client.restart()
        assert client.status.pid not in (old, os.getpid(), None)
    assert client.restart(), "one that was disconnected is connected"
    assert client.is_connected()
    client.disconnect()


def test_restarts_that_are_wanted_at_once_share_a_fresh_process(fault_server: FaultServer, tmp_path: Path) -> None:
    server = fault_server(state_file=tmp_path / "state", by_start={"2": {"start_delay": 1.0}})
    with MCPClientManager({"it": server}) as manager, ThreadPoolExecutor(4) as threads:
        assert all(threads.map(lambda _: manager.restart("it"), range(4)))
        assert manager.status()[0].recyclings >= 1


def test_one_that_is_stopped_meanwhile_is_not_started_again(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    server = fault_server(state_file=state, by_start={"2": {"start_delay": 60.0}})
    with MCPClientManager({"it": server}) as manager, ThreadPoolExecutor(1) as thread:
        restarted = thread.submit(manager.restart, "it")
        assert wait_until(lambda: read_state(state).starts == 2)
        manager.stop_server("it")
        assert not restarted.result(PATIENCE)
        assert manager.status()[0].state.value == "closed"
        assert not any(map(is_alive, read_state(state).pids))
