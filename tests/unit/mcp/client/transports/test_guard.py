"""Servers die with their host, however it ends; and only with their own host."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaia.mcp.client.transports import StdioTransport
from gaia.mcp.client.transports.guard import MARK_VARIABLE, HostGuard, host_guard
from tests.servers.processes import is_alive
from tests.waiting import wait_until

Json = dict[str, Any]
Configure = Callable[..., Json]
PATIENCE = 20.0

pytestmark = pytest.mark.skipif(os.name == "nt", reason="about process groups and signals")

PRELUDE = """
import json, os, signal, sys, threading
from gaia.mcp.client.transports import StdioTransport
from gaia.mcp.client.transports.guard import host_guard

def say(**facts):
    print(json.dumps(facts), flush=True)

def connect():
    for transport in transports:
        assert transport.connect()
        transport.send_request("ping")
    say(servers=[transport._process.pid for transport in transports], guard=host_guard._process.pid)

def error_of(transport):
    try:
        transport.send_request("ping")
    except RuntimeError as error:
        return str(error)

def wait():
    sys.stdin.readline()

transports = [StdioTransport(**configuration) for configuration in json.loads(sys.argv[1])]
"""


class Host:
    """A process of its own that uses transports as its script says."""

    def __init__(self, script: str, servers: list[Json]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, json.dumps(servers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.pids: set[int] = set()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def hear(self) -> Json:
        """What the script says next."""
        facts: Json = json.loads(self._lines.get(timeout=PATIENCE))
        self.pids.update(facts.get("servers", []))
        return facts

    def go_on(self) -> None:
        """Let the script return from `wait`."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def kill(self, number: int = signal.SIGKILL) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pid in filter(is_alive, self.pids):
            os.kill(pid, signal.SIGKILL)
        self._reader.join(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def end(*pids: int) -> bool:
    """Whether all of them end, without anything more being done about it."""
    return wait_until(lambda: not any(map(is_alive, pids)), PATIENCE)


@pytest.fixture
def run_host(fault_server: Configure) -> Iterator[Callable[..., Host]]:
    """Run a script with transports to scripted servers that ignore the end of their input, unless told otherwise."""
    hosts = []

    def run_host(script: str, *scenarios: Json) -> Host:
        servers = [fault_server(**{"ignore_eof": True, **scenario}) for scenario in scenarios or ({},)]
        hosts.append(Host(script, servers))
        return hosts[-1]

    yield run_host
    for host in hosts:
        host.close()


@pytest.fixture
def guard(starts_processes: None) -> Iterator[HostGuard]:
    """A guard of its own, apart from the one that transports use."""
    guard = HostGuard()
    yield guard
    for pid in list(guard._protected):
        guard.release(pid)


def pid_of(guard: HostGuard) -> int:
    assert guard._process is not None
    return guard._process.pid


class TestHostDies:
    def test_when_it_is_killed_its_servers_die_even_those_that_want_to_stay(
        self, run_host: Callable[..., Host]
    ) -> None:
        host = run_host("connect(); wait()", {}, {"ignore_sigterm": True}, {"ignore_eof": False})
        facts = host.hear()
        host.kill()
        assert end(*facts["servers"], facts["guard"])

    @pytest.mark.parametrize("child", ["same_group", "own_session", "daemon"])
    def test_so_does_what_they_started(self, run_host: Callable[..., Host], child: str) -> None:
        script = """
connect()
response = transports[0].send_request("tools/call", {"name": "children"})
say(servers=json.loads(response["result"]["content"][0]["text"]))
wait()
"""
        host = run_host(script, {"child": child})
        servers, grandchildren = host.hear()["servers"], host.hear()["servers"]
        if child == "same_group" or Path("/proc/self/environ").exists():
            host.kill()
            assert end(*servers, *grandchildren)

    @pytest.mark.parametrize("ending", ["os._exit(3)", "sys.exit()", "os.kill(os.getpid(), signal.SIGTERM)"])
    def test_when_it_ends_without_a_goodbye_they_die_too(self, run_host: Callable[..., Host], ending: str) -> None:
        host = run_host(f"connect(); {ending}")
        facts = host.hear()
        host.wait()
        assert end(*facts["servers"], facts["guard"])

    def test_what_makes_a_host_leave_does_not_make_its_guard_leave(self, run_host: Callable[..., Host]) -> None:
        host = run_host("connect(); wait()")
        facts = host.hear()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(facts["guard"], number)
        host.kill()
        assert end(*facts["servers"], facts["guard"])

    def test_a_guard_that_was_killed_is_replaced_by_one_that_knows_all_servers(
        self, run_host: Callable[..., Host]
    ) -> None:
        script = """
last = transports.pop()
connect()
wait()
assert last.connect()
say(servers=[last._process.pid], guard=host_guard._process.pid)
wait()
"""
        host = run_host(script, {}, {})
        first = host.hear()
        os.kill(first["guard"], signal.SIGKILL)
        assert end(first["guard"])
        host.go_on()
        second = host.hear()
        assert second["guard"] != first["guard"]
        host.kill()
        assert end(*first["servers"], *second["servers"], second["guard"])

    def test_a_host_that_is_itself_a_server_takes_its_own_servers_along(
        self, fault_server: Configure, tmp_path: Path
    ) -> None:
        script = """
connect()
for line in sys.stdin:
    request = json.loads(line)
    pids = [transports[0]._process.pid, host_guard._process.pid]
    say(jsonrpc="2.0", id=request["id"], result={"pids": pids})
"""
        inner = [fault_server(ignore_eof=True, ignore_sigterm=True)]
        args = ["-c", PRELUDE + script, json.dumps(inner)]
        outer = StdioTransport(sys.executable, args, inherit_env=True)
        assert outer.connect()
        pids = outer.send_request("pids")["result"]["pids"]
        outer.disconnect()
        assert end(*pids)


class TestGuard:
    def test_it_comes_with_the_first_server_and_goes_with_the_last(self, fault_server: Configure) -> None:
        servers = [StdioTransport(**fault_server()) for _ in range(2)]
        assert host_guard._process is None
        for server in servers:
            assert server.connect()
        pid = pid_of(host_guard)
        assert is_alive(pid)
        servers[0].disconnect()
        assert pid_of(host_guard) == pid
        servers[1].disconnect()
        assert host_guard._process is None
        assert not is_alive(pid)

    def test_what_was_released_is_left_alone(self, guard: HostGuard, sleeper: subprocess.Popen[bytes]) -> None:
        """Its process id may be somebody else's by now."""
        guard.protect(sleeper.pid, "mark")
        pid = pid_of(guard)
        guard.release(sleeper.pid)
        assert not is_alive(pid)
        assert is_alive(sleeper.pid)

    def test_it_inherits_nothing_that_makes_it_a_stray_of_a_server(
        self, guard: HostGuard, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(MARK_VARIABLE, "mark-of-this-host")
        guard.protect(sleeper.pid, "mark")
        process = psutil.Process(pid_of(guard))
        assert wait_until(lambda: MARK_VARIABLE not in process.environ())
        assert os.getsid(process.pid) == process.pid

    def test_one_that_was_killed_is_replaced_when_there_is_news(
        self, guard: HostGuard, sleeper: subprocess.Popen[bytes]
    ) -> None:
        guard.protect(sleeper.pid, "mark")
        killed = pid_of(guard)
        os.kill(killed, signal.SIGKILL)
        psutil.Process(killed).wait(PATIENCE)
        guard.protect(sleeper.pid, "mark")
        assert pid_of(guard) != killed
        assert is_alive(pid_of(guard))

    def test_so_is_one_that_has_been_stopped_as_soon_as_it_can_be_told_no_more(
        self, guard: HostGuard, sleeper: subprocess.Popen[bytes]
    ) -> None:
        guard.protect(sleeper.pid, "mark")
        stopped = pid_of(guard)
        os.kill(stopped, signal.SIGSTOP)
        for _ in range(10_000):
            guard.protect(sleeper.pid, "mark")
            if pid_of(guard) != stopped:
                break
        assert is_alive(pid_of(guard))
        assert not is_alive(stopped)

    @pytest.mark.parametrize(("attribute", "value"), [("executable", ""), ("frozen", True)])
    def test_where_no_python_can_be_started_servers_run_without_it(
        self, fault_server: Configure, monkeypatch: pytest.MonkeyPatch, attribute: str, value: object
    ) -> None:
        server = StdioTransport(**fault_server())
        monkeypatch.setattr(sys, attribute, value, raising=False)
        assert server.connect()
        assert server.send_request("ping")["result"] == {}
        assert host_guard._process is None
        server.disconnect()

    def test_where_it_cannot_be_started_servers_run_without_it_and_the_log_says_so(
        self, fault_server: Configure, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = StdioTransport(**fault_server())
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        assert server.connect()
        server.disconnect()
        assert "guard_start_failed" in caplog.text


class TestFork:
    """A forked child has copies of everything, and no right to any of it."""

    def test_the_child_gets_a_clear_error_and_the_parent_goes_on(self, run_host: Callable[..., Host]) -> None:
        script = """
connect()
transport = transports[0]
child = os.fork()
if child == 0:
    say(connected=transport.is_connected(), error=error_of(transport))
    transport.disconnect()
    say(error=error_of(transport))
    os._exit(0)
os.waitpid(child, 0)
say(error=error_of(transport), connected=transport.is_connected())
transport.disconnect()
"""
        host = run_host(script, {"ignore_eof": False})
        host.hear()
        in_child = host.hear()
        assert in_child["connected"] is False
        assert "the server belongs to the parent process" in in_child["error"]
        assert "not running" in host.hear()["error"], "after disconnecting in the child"
        assert host.hear() == {"error": None, "connected": True}
        assert host.wait() == 0

    def test_nothing_that_the_child_writes_reaches_the_server_nor_any_file(self, run_host: Callable[..., Host]) -> None:
        script = """
connect()
transport = transports[0]
child = os.fork()
if child == 0:
    # Some of these get the numbers of the descriptors that the child has let go of.
    files = [open("file-%d" % number, "wb") for number in range(20)]
    transport._connection.notify("from/the/child")
    transport._connection.channel.close(0.0)
    os._exit(0)
os.waitpid(child, 0)
response = transport.send_request("tools/call", {"name": "received"})
received = json.loads(response["result"]["content"][0]["text"])
say(received=received, sizes=[os.path.getsize("file-%d" % number) for number in range(20)])
transport.disconnect()
"""
        host = run_host(script, {"ignore_eof": False})
        host.hear()
        facts = host.hear()
        assert "from/the/child" not in [message["method"] for message in facts["received"]]
        assert set(facts["sizes"]) == {0}
        assert host.wait() == 0

    def test_the_child_may_start_a_server_of_its_own_with_a_guard_of_its_own(
        self, run_host: Callable[..., Host]
    ) -> None:
        script = """
connect()
child = os.fork()
if child == 0:
    connect()
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
say(error=error_of(transports[0]))
wait()
"""
        host = run_host(script)
        parents, childs = host.hear(), host.hear()
        assert parents["guard"] != childs["guard"]
        assert parents["servers"] != childs["servers"]
        assert end(*childs["servers"], childs["guard"])
        assert host.hear() == {"error": None}
        host.kill()
        assert end(*parents["servers"], parents["guard"])

    def test_a_child_that_lives_on_does_not_hide_the_death_of_its_parent(self, run_host: Callable[..., Host]) -> None:
        script = """
connect()
child = os.fork()
if child == 0:
    say(child=os.getpid())
    wait()
    os._exit(0)
signal.pause()
"""
        host = run_host(script, {}, {"ignore_eof": False})
        facts, child = host.hear(), host.hear()["child"]
        host.kill()
        assert end(*facts["servers"], facts["guard"])
        assert is_alive(child)
        host.go_on()
        assert end(child)
