"""What happens to the program that uses the servers, while it uses them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos.hosts import RunningHost
from tests.chaos.profile import Profile
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="about signals, limits and forks"), pytest.mark.slow]


class TestItsEnd:
    @pytest.fixture
    def start(self, starts_processes: None, chaos: Profile, tmp_path: Path) -> Iterator[Callable[[str], RunningHost]]:
        hosts: list[RunningHost] = []

        def start(start_fault: str) -> RunningHost:
            hosts.append(RunningHost(tmp_path, chaos.seed, start_fault))
            hosts[-1].wait_for_calls(5)
            return hosts[-1]

        yield start
        for host in hosts:
            host.close()

    @pytest.mark.parametrize(
        ("number", "start_fault"),
        [
            (signal.SIGKILL, "child_in_a_session"),
            (signal.SIGTERM, "ignores_sigterm"),
            (signal.SIGHUP, "daemon"),
        ],
    )
    def test_by_a_signal(self, start: Callable[[str], RunningHost], number: int, start_fault: str) -> None:
        host = start(start_fault)
        host.signal(number)
        assert host.wait() == -number
        assert host.left_behind() == []
        assert host.repeated() == []

    def test_by_leaving_in_the_middle_of_calls(self, start: Callable[[str], RunningHost]) -> None:
        host = start("daemon")
        host.send("leave")
        assert host.wait() == 7
        assert host.left_behind() == []
        assert host.repeated() == []

    def test_by_an_interrupt_of_the_thread_that_calls(self, start: Callable[[str], RunningHost]) -> None:
        host = start("well")
        assert host.tell("call") == {"calling": True}
        host.wait_for_calls(5)
        host.signal(signal.SIGINT)
        report = host.hear()
        assert report["interrupted"]
        assert report["wrong"] == []
        assert host.wait() != 0
        assert host.left_behind() == []


CHURN = """
import logging

# What becomes of servers that end in the middle of their start is not the subject.
logging.getLogger("gaia").addHandler(logging.NullHandler())

import sys, threading
from gaia.mcp import demo_server
from gaia.mcp.client import MCPClient
from gaia.mcp.transports.stdio import StdioTransport

connected = threading.Semaphore(0)

def come_and_go():
    while True:
        client = MCPClient("demo", StdioTransport(sys.executable, ["-I", "-S", demo_server.__file__]))
        client.connect()
        connected.release()
        client.disconnect()

for _ in range(3):
    threading.Thread(target=come_and_go, daemon=True).start()
for _ in range(6):
    connected.acquire()
"""


@pytest.mark.process
def test_its_end_while_servers_come_and_go(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", CHURN], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


# What a host survives. Each of these happens to a host in the middle of its calls, and ends with `give_back`.


def sleeps_together_with_its_servers(host: RunningHost) -> None:
    # There is no guard while it is being replaced.
    guards = filter(None, [host.tell("guard")["guard"]])
    processes = (host.process.pid, *guards, *host.running_servers())
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGSTOP:
            # Longer than the deadlines of the calls.
            time.sleep(1.2)


def sleeps_while_its_servers_die(host: RunningHost) -> None:
    host.signal(signal.SIGSTOP)
    host.kill_servers()
    host.signal(signal.SIGCONT)


def sees_the_time_of_day_jump(host: RunningHost) -> None:
    host.tell("take_time")
    host.kill_servers()
    host.wait_for_calls(10)


def forks(host: RunningHost) -> None:
    for _ in range(3):
        assert host.tell("fork") == {"child": 0}
        host.wait_for_calls(3)


def assert_refuses_servers(host: RunningHost, reason: str) -> None:
    refused = host.tell("add_server")
    assert refused["error"] == "ServerUnavailable"
    assert reason in refused["message"]


def has_no_descriptors_left(host: RunningHost) -> None:
    host.tell("take_descriptors")
    host.kill_servers()
    host.wait_for_reason("Too many open files")
    assert_refuses_servers(host, "Too many open files")


def cannot_start_threads(host: RunningHost) -> None:
    host.tell("take_threads")
    host.kill_servers()
    host.wait_for_reason("no thread")
    assert_refuses_servers(host, "no thread")


def finds_the_disk_full(host: RunningHost) -> None:
    before = host.configuration.read_bytes()
    host.tell("take_disk")
    refused = host.tell("add_server")
    assert refused["error"] == "ConfigError"
    assert "File too large" in refused["message"]
    assert sorted(refused["servers"]) == ["one", "two"]
    assert host.configuration.read_bytes() == before


def may_not_write_its_configuration(host: RunningHost) -> None:
    before = host.configuration.read_bytes()
    host.tell("take_folder")
    refused = host.tell("save_server")
    assert refused["error"] == "ConfigError"
    assert "cannot be saved" in refused["message"]
    assert host.configuration.read_bytes() == before


def loses_its_guard(host: RunningHost) -> None:
    guard = host.tell("guard")["guard"]
    if guard is not None:
        # It may be replaced in this moment.
        with suppress(ProcessLookupError):
            os.kill(guard, signal.SIGKILL)
    host.kill_servers()
    assert wait_until(lambda: host.tell("guard")["guard"] not in (None, guard))


SURVIVED = (
    sleeps_together_with_its_servers,
    sleeps_while_its_servers_die,
    sees_the_time_of_day_jump,
    forks,
    has_no_descriptors_left,
    cannot_start_threads,
    finds_the_disk_full,
    may_not_write_its_configuration,
    loses_its_guard,
)


@pytest.mark.process
@pytest.mark.timeout(600)
def test_what_it_survives(chaos: Profile, tmp_path: Path) -> None:
    """One thing after the other, in any order. Its log goes nowhere all the while: that disk is full, too."""
    with open("/dev/full", "wb") as full:
        host = RunningHost(tmp_path, chaos.seed, stderr=full.fileno())
    try:
        for trouble in random.Random(chaos.seed).sample(SURVIVED, len(SURVIVED)):
            host.wait_for_calls(3)
            trouble(host)
            host.tell("give_back")
            recovery = host.tell("recover")
            assert recovery["recovered"], "\n".join([trouble.__name__, str(recovery["states"]), *recovery["stacks"]])
        report = host.tell("finish")
        assert report["wrong"] == []
        assert report["calls"] > 50
        assert host.left_behind() == []
    finally:
        host.close()
