"""Transports to scripted servers, processes that lead a group of their own, and programs that use transports."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.mcp.protocol.framing import OversizedLine
from gaia.mcp.protocol.messages import encode_request
from gaia.mcp.rpc.channel import Frame
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.fork_server import fork_server
from gaia.mcp.transports.stdio_channel import StdioChannel
from tests.servers.processes import is_alive
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]
Configure = Callable[..., Json]
Start = Callable[..., StdioTransport]
MEGABYTE = 1024 * 1024
SECRET = "hunter2-hunter2"

posix = pytest.mark.skipif(os.name == "nt", reason="about process groups and signals")
linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no subreapers")
both_parents = pytest.mark.parametrize("parent", [pytest.param("reaper", marks=linux), "direct"], indirect=True)
direct = pytest.mark.parametrize("parent", ["direct"], indirect=True)


def call(transport: StdioTransport, tool: str, **arguments: Any) -> Any:
    """The text that a tool of the fault server returns; decoded where it is JSON."""
    response = transport.send_request("tools/call", {"name": tool, "arguments": arguments})
    text = response["result"]["content"][0]["text"]
    return text if tool == "echo" else json.loads(text)


class Listener:
    """What a channel tells, kept."""

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[bytes | OversizedLine] = queue.SimpleQueue()
        self.ended = threading.Event()
        self.awaits = False

    def awaits_answers(self) -> bool:
        return self.awaits

    def message_received(self, line: bytes | OversizedLine) -> None:
        self.lines.put(line)

    def channel_ended(self) -> None:
        self.ended.set()


OpenChannel = Callable[..., tuple[StdioChannel, Listener]]


def wait_until_serving(channel: StdioChannel, listener: Listener) -> None:
    """Return when the server answers, and its signal handlers are in place."""
    channel.send(Frame(encode_request(1, "ping", None)))
    listener.lines.get(timeout=PATIENCE)


@pytest.fixture
def start(fault_server: Configure, parent: str) -> Iterator[Start]:
    """Connect to a scripted server; `transport` are keywords for StdioTransport, all others make the scenario."""
    transports = []

    def start(transport: Json | None = None, **scenario: Any) -> StdioTransport:
        started = StdioTransport(**fault_server(**scenario), **(transport or {}))
        transports.append(started)
        assert started.connect()
        return started

    yield start
    for transport in transports:
        transport.disconnect()


@pytest.fixture
def open_channel(fault_server: Configure, parent: str) -> Iterator[OpenChannel]:
    """Open a channel to a scripted server that is ready; the test closes it, or the fixture does."""
    channels = []

    def open_channel(**scenario: Any) -> tuple[StdioChannel, Listener]:
        listener = Listener()
        channel = StdioTransport(**fault_server(**scenario)).open(listener, "test")
        channels.append(channel)
        wait_until_serving(channel, listener)
        return channel, listener

    yield open_channel
    for channel in channels:
        channel.close(0.0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers get little time to leave."""
    monkeypatch.setattr("gaia.mcp.transports.base._DEFAULT_GRACE", 0.1)
    monkeypatch.setattr("gaia.mcp.transports.process._TERMINATE_SECONDS", 0.1)


@pytest.fixture
def sleeper(starts_processes: None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group of its own, like a server."""
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"]
    process = subprocess.Popen(command, start_new_session=True)
    yield process
    process.kill()
    process.wait()


PRELUDE = """
import json, os, signal, sys, threading
from gaia.mcp.transports import StdioTransport, direct_process
from gaia.mcp.transports import fork_server as fork_server_module
from gaia.mcp.transports.fork_server import fork_server
from gaia.mcp.transports.direct_process import host_guard

fork_server._is_supported = fork_server._is_supported and "direct" not in sys.argv

# As always, but servers get little time to leave.
folder = os.path.dirname(direct_process.__file__)
for module, program in ((direct_process, "guard_process"), (fork_server_module, "fork_server_process")):
    code = f"import sys; sys.path.append(sys.argv[1]); import {program} as p; "
    code += "p._TERMINATE_SECONDS = p._HOST_CHECK_SECONDS = 0.2; p.main(int(sys.argv[2]))"
    module._ARGUMENTS = ["-I", "-S", "-c", code, folder]

def say(**facts):
    print(json.dumps(facts), flush=True)

def connect():
    for transport in transports:
        assert transport.connect()
        transport.send_request("ping")
    say(servers=[transport._process.pid for transport in transports], guard=guard())

def guard():
    return fork_server.pid or host_guard._process.pid

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

    def __init__(self, script: str, servers: list[Json], parent: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, json.dumps(servers), parent],
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


RunHost = Callable[..., Host]


def end(*pids: int) -> bool:
    """Whether all of them end, without anything more being done about it."""
    return wait_until(lambda: not any(map(is_alive, pids)), PATIENCE)


@pytest.fixture
def parent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whose children the servers are: "reaper" or "direct" (the host's own). The default is what the system has."""
    parent: str = getattr(request, "param", "reaper" if sys.platform == "linux" else "direct")
    if parent == "direct":
        monkeypatch.setattr(fork_server, "_is_supported", False)
    return parent


@pytest.fixture
def run_host(fault_server: Configure, parent: str) -> Iterator[RunHost]:
    """Run a script with transports to scripted servers that ignore the end of their input, unless told otherwise."""
    hosts = []

    def run_host(script: str, *scenarios: Json) -> Host:
        servers = [fault_server(**{"ignore_eof": True, **scenario}) for scenario in scenarios or ({},)]
        hosts.append(Host(script, servers, parent))
        return hosts[-1]

    yield run_host
    for host in hosts:
        host.close()
