"""Servers that the process engine places: real hosts of this machine, with short leases."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from gaia.mcp.client import MCPClient
from tests.waiting import wait_until

DEMO = {"command": sys.executable, "args": ["-m", "gaia.mcp.demo_server"]}

LEASE = 1.0


def placed(entry: dict[str, Any] = DEMO, **placement: Any) -> dict[str, Any]:
    return {**entry, "placement": {"engine": "process", "lease": LEASE, **placement}}


def processes_of(client: MCPClient) -> list[psutil.Process]:
    """The host, and everything that it has started."""
    placement = client.status.placement
    assert placement is not None
    host = psutil.Process(placement.host_pid)
    return [host, *host.children(recursive=True)]


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        # Between the two.
        return True


def are_gone(processes: list[psutil.Process]) -> bool:
    return wait_until(lambda: all(map(has_ended, processes)))


PROGRAM = """
import json, sys
from gaia.mcp.client import MCPClient
client = MCPClient.from_config("demo", json.loads(sys.argv[1]))
assert client.connect(), client.last_error
for line in sys.stdin:
    result = client.call_tool("add", {"a": 1, "b": 2}, timeout=20)
    print(json.dumps([client.status.placement.host_pid, result.is_error]), flush=True)
client.disconnect()
"""


class Program:
    """Another program with a placed server."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(entry)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self) -> list[Any]:
        """The host of the server, and whether the call has failed."""
        assert self.process.stdin is not None and self.process.stdout is not None  # noqa: PT018
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer: list[Any] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None  # noqa: PT018
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def program() -> Iterator[Callable[[dict[str, Any]], Program]]:
    programs: list[Program] = []

    def start(entry: dict[str, Any]) -> Program:
        programs.append(Program(entry))
        return programs[-1]

    yield start
    for each in programs:
        each.end()


Start = Callable[[dict[str, Any]], Program]


def all_of(host: int) -> list[psutil.Process]:
    process = psutil.Process(host)
    return [process, *process.children(recursive=True)]
