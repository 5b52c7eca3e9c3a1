"""A detached server on a Ray cluster, and what the command line shows of it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from gaia.mcp.client import MCPClient
from tests.cluster.conftest import SmallCluster
from tests.waiting import wait_until

pytest.importorskip("ray", reason="Ray is not installed, or has no wheel for this Python")

Entry = Callable[..., dict[str, Any]]

CLUSTER_PATIENCE = 60.0
LEASE = 4.0

PROGRAM = """
import json, sys
from gaia.mcp.client import MCPClient
client = MCPClient.from_config("shared", json.loads(sys.argv[1]))
assert client.connect(), client.last_error
print(client.status.pid, flush=True)
sys.stdin.readline()
client.disconnect()
"""


@pytest.fixture
def entry(placed: Entry) -> dict[str, Any]:
    return placed(lifetime="detached", lease=LEASE)


@pytest.fixture
def another_program(entry: dict[str, Any], cluster: SmallCluster) -> Iterator["subprocess.Popen[str]"]:
    """A program of its own that uses the server; its first line says which process that is."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps(entry)],
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        yield program
        program.kill()


def pid_told_by(program: "subprocess.Popen[str]") -> int:
    assert program.stdout is not None
    return int(program.stdout.readline())


def command(cluster: SmallCluster, *words: str) -> Any:
    argv = [sys.executable, "-m", "gaia.cli.main", "mcp", *words, "--ray", cluster.address, "--json"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=CLUSTER_PATIENCE)
    return json.loads(run.stdout)


def drivers(cluster: SmallCluster) -> list[str]:
    (host,) = command(cluster, "list")["servers"]
    return sorted(user["driver"] for user in host["users"])


def is_gone(pid: int) -> bool:
    return wait_until(lambda: not psutil.pid_exists(pid), CLUSTER_PATIENCE)


def test_programs_share_one_process_until_the_last_has_left(
    entry: dict[str, Any], another_program: "subprocess.Popen[str]", cluster: SmallCluster
) -> None:
    client = MCPClient.from_config("shared", entry)
    with client:
        pid = client.status.pid
        assert pid == pid_told_by(another_program)
        assert pid is not None
        assert len(drivers(cluster)) == 2
        another_program.communicate("leave\n", CLUSTER_PATIENCE)
        assert len(drivers(cluster)) == 1
        assert client.call_tool("add", {"a": 1, "b": 2})["structuredContent"] == {"sum": 3}
    assert not psutil.pid_exists(pid)
    assert command(cluster, "list") == {"servers": []}


def test_a_program_that_is_killed_is_not_counted_any_more(
    entry: dict[str, Any], another_program: "subprocess.Popen[str]", cluster: SmallCluster
) -> None:
    pid = pid_told_by(another_program)
    assert command(cluster, "placement", "shared")["runs"]
    another_program.kill()
    # It was the last one, so its actor ends, too.
    assert is_gone(pid)
    assert wait_until(lambda: command(cluster, "list") == {"servers": []}, CLUSTER_PATIENCE)


def test_it_is_stopped_on_the_command_line(
    entry: dict[str, Any], another_program: "subprocess.Popen[str]", cluster: SmallCluster
) -> None:
    pid = pid_told_by(another_program)
    assert command(cluster, "placement", "shared", "--stop") == {"server": "shared", "stopped": True, "users": 1}
    assert is_gone(pid)
    document = command(cluster, "placement", "shared")
    assert (document["runs"], document["reason"]) == (False, "no program has placed it")


@pytest.mark.process
@pytest.mark.slow
def test_the_demo_shows_a_lost_node_and_leaves_nothing() -> None:
    argv = [sys.executable, "-m", "gaia.cli.main", "mcp", "demo", "--ray", "--json"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=3 * CLUSTER_PATIENCE)
    # Nothing of Ray's is among it.
    document = json.loads(run.stdout)
    assert [step["name"] for step in document["steps"] if not step["ok"]] == []
    assert [step["name"] for step in document["steps"]] == [
        "cluster",
        "place",
        "call",
        "lose",
        "recover",
        "repeat",
        "call_again",
        "stop",
    ]
    steps = {step["name"]: step for step in document["steps"]}
    assert steps["lose"]["node_id"] not in (steps["lose"]["lost"], None)
    assert not [pid for pid in steps["stop"]["pids"] if psutil.pid_exists(pid)]
