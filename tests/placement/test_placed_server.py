"""A placed server is used as any other, and nothing of it is left afterwards."""

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaia.mcp.client import MCPClient, MCPClientManager
from tests.placement.conftest import DEMO, all_of, are_gone, placed, processes_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

Connect = Callable[..., MCPClient]

ASKING = {
    "command": sys.executable,
    "args": [str(Path(__file__).parents[1] / "servers" / "asking_server.py")],
    "protocol": "handshake",
}


def test_a_placed_server_is_called_and_leaves_nothing(connect: Connect) -> None:
    client = connect(placed())
    processes, progress = processes_of(client), []
    assert "add" in {tool.name for tool in client.list_tools()}
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    client.call_tool("sleep", {"seconds": 0.2}, on_progress=lambda *step: progress.append(step[0]))
    assert progress
    placement = client.status.placement
    assert placement is not None
    assert (placement.id, placement.pid) == (str(placement.host_pid), client.status.pid)
    client.disconnect()
    assert are_gone(processes)
    assert client.status.placement is None


def test_a_call_may_take_longer_than_the_timeout_of_the_entry(connect: Connect) -> None:
    client = connect({**placed(), "timeout": 0.5, "startTimeout": 30})
    assert client.call_tool("sleep", {"seconds": 1.0}, timeout=30).is_error is False
    assert client.call_tool("sleep", {"seconds": 5.0})["error_type"] == "timeout"


def test_questions_of_a_placed_server_reach_the_application() -> None:
    pytest.importorskip("mcp")
    answers: Any = {
        "on_elicitation": lambda _: {"action": "accept", "content": {"name": "Ada", "age": 36}},
        "on_sampling": lambda _: {"model": "m", "role": "assistant", "content": {"type": "text", "text": "Paris"}},
        "roots": ["file:///work"],
    }
    with MCPClientManager({"asking": placed(ASKING)}, **answers) as manager:
        client = manager.get_client("asking")
        assert client is not None
        assert client.call_tool("ask_form", {}).text == "Ada is 36"
        assert client.call_tool("ask_model", {}).text == "m: Paris"
        assert "file:///work" in client.call_tool("ask_roots", {}).text


def test_a_command_that_is_missing_there_is_told_with_the_machine() -> None:
    client = MCPClient.from_config("demo", placed({"command": "no-such-command-anywhere"}))
    assert not client.connect()
    assert client.last_error is not None
    assert "no-such-command-anywhere" in client.last_error
    assert socket.gethostname() in client.last_error
    client.disconnect()


def test_a_server_that_crashes_is_restarted_by_its_host(connect: Connect) -> None:
    client = connect(placed())
    host, before = processes_of(client)[0].pid, client.status.pid
    assert client.call_tool("crash", {}).is_error
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    assert processes_of(client)[0].pid == host
    assert wait_until(lambda: client.status.pid not in (None, before))


def test_a_handle_never_reaches_the_process_that_follows_its_own(connect: Connect) -> None:
    client = connect(placed(lease=60))
    with client.pinned() as handle:
        assert handle.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
        assert client.status.pid is not None
        psutil.Process(client.status.pid).kill()
        # The host has restarted the server, which the program learns from the next heartbeat only.
        assert wait_until(lambda: client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3})
        for _ in range(2):
            lost = handle.call_tool("add", {"a": 1, "b": 2})
            assert (lost["error_type"], lost["delivery"]) == ("session_lost", "not_sent")
        assert handle.is_lost


def test_a_host_that_is_killed_is_replaced(connect: Connect) -> None:
    client = connect(placed())
    processes = processes_of(client)
    processes[0].kill()
    assert are_gone(processes)
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}


def test_a_safe_call_of_each_host_that_is_killed_is_repeated(connect: Connect) -> None:
    client = connect(placed())
    for _ in range(4):
        host, *_ = processes_of(client)
        call = client.submit_tool("sleep", {"seconds": 0.3})
        assert wait_until(lambda: client.status.in_flight == 1)
        host.kill()
        assert call.result(10.0).text == "slept 0.3 s"


def test_no_secret_is_in_the_arguments_or_the_environment_of_a_host(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRELATED_SECRET", "secret-of-the-program")
    client = connect(placed({**DEMO, "env": {"API_KEY": "secret-of-the-server"}}))
    host, *others = processes_of(client)
    shown = " ".join([*host.cmdline(), *host.environ().values()])
    assert "secret-of" not in shown
    assert not any("secret-of-the-program" in other.environ().values() for other in others)
    transport: Any = client.transport
    assert transport._presented.address.token not in shown


FORKING = """
import json, os, sys, time
from gaia.mcp.client import MCPClient
client = MCPClient.from_config("demo", json.loads(sys.argv[1]))
assert client.connect(), client.last_error
child = os.fork()
if child == 0:
    client.disconnect()
    os.write(1, b"left\\n")
    time.sleep(600)
assert not client.call_tool("add", {"a": 1, "b": 2}).is_error
print(child, client.status.placement.host_pid, flush=True)
sys.stdin.read()
"""


def test_a_host_answers_nobody_without_its_token(connect: Connect) -> None:
    host = processes_of(connect(placed()))[0]
    (port,) = (one.laddr.port for one in host.net_connections("inet") if one.status == psutil.CONN_LISTEN)
    for method, path in (("POST", "/lease"), ("DELETE", "/lease"), ("POST", "/mcp/demo")):
        for headers in ({}, {"Authorization": "Bearer another"}):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request(method, path, b"{}", {"Content-Type": "application/json", **headers})
            assert connection.getresponse().status == 401
            connection.close()


def test_a_forked_child_neither_ends_nor_keeps_the_host() -> None:
    argv = [sys.executable, "-c", FORKING, json.dumps(placed(lease=3600))]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        lines = [program.stdout.readline(), program.stdout.readline()]
        child, host = (int(word) for word in next(line for line in lines if line != "left\n").split())
        try:
            processes = all_of(host)
            program.kill()
            assert are_gone(processes)
        finally:
            psutil.Process(child).kill()
