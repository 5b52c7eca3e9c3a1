"""The ssh engine, with a real sshd on the loopback interface."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.config.placement import Placement
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import StartFailed
from gaia.mcp.placement.ssh_engine import SshEngine
from tests.placement import small_sshd
from tests.placement.conftest import DEMO, LEASE, are_gone, processes_of
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(small_sshd.missing() is not None, reason=str(small_sshd.missing())),
]

Connect = Callable[..., MCPClient]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[small_sshd.SmallSshd]:
    started = small_sshd.SmallSshd(tmp_path_factory.mktemp("sshd"))
    yield started
    started.stop()


@pytest.fixture
def sshd(daemon: small_sshd.SmallSshd, monkeypatch: pytest.MonkeyPatch) -> small_sshd.SmallSshd:
    monkeypatch.setenv("PATH", f"{daemon.commands}{os.pathsep}{os.environ['PATH']}")
    return daemon


@pytest.fixture
def entry(sshd: small_sshd.SmallSshd) -> dict[str, Any]:
    return {**DEMO, "placement": sshd.placement(lease=LEASE)}


def engine_of(placement: dict[str, Any]) -> SshEngine:
    found = ServerConfig.from_dict("demo", {**DEMO, "placement": placement}).placement
    assert isinstance(found, Placement)
    return SshEngine(found)


def last_error(entry: dict[str, Any], name: str = "demo") -> str:
    client = MCPClient.from_config(name, entry)
    try:
        assert not client.connect()
        return str(client.last_error)
    finally:
        client.disconnect()


def has_left(client: MCPClient, host: int) -> bool:
    """Whether the client notices that it has lost this host."""
    return wait_until(lambda: client.status.placement is None or client.status.placement.host_pid != host)


def test_a_server_is_called_over_ssh_and_leaves_nothing(connect: Connect, entry: dict[str, Any]) -> None:
    client = connect(entry, "de mo")
    processes = processes_of(client)
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    placement = client.status.placement
    assert placement is not None
    assert (placement.node_id, placement.pid) == ("127.0.0.1", client.status.pid)
    (listed,) = engine_of(entry["placement"]).list()
    assert (listed.name, listed.id) == ("de mo", str(placement.host_pid))
    client.disconnect()
    assert are_gone(processes)
    assert engine_of(entry["placement"]).list() == []


def test_no_argument_has_a_secret(connect: Connect, entry: dict[str, Any]) -> None:
    connect({**entry, "env": {"API_KEY": "s3cret-value"}})
    lines = [" ".join(one.cmdline()) for one in psutil.Process().children(recursive=True) if one.is_running()]
    assert any("gaia.mcp.gateway.host" in line for line in lines)
    assert "s3cret-value" not in str(lines)
    assert "token" not in str(lines)


def test_a_killed_host_is_replaced(connect: Connect, entry: dict[str, Any]) -> None:
    client = connect(entry)
    processes = processes_of(client)
    processes[0].kill()
    assert has_left(client, processes[0].pid)
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    assert are_gone(processes)


def test_a_lost_connection_ends_the_host_before_another_is_started(
    connect: Connect, entry: dict[str, Any], sshd: small_sshd.SmallSshd
) -> None:
    client = connect(entry)
    processes = processes_of(client)
    sshd.cut()
    assert has_left(client, processes[0].pid)
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"sum": 3}
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)
    assert processes_of(client)[0].pid != processes[0].pid


def test_a_host_that_is_listed_can_be_ended(connect: Connect, entry: dict[str, Any]) -> None:
    processes = processes_of(connect(entry))
    assert wait_until(lambda: engine_of(entry["placement"]).end(str(processes[0].pid)))
    assert are_gone(processes)


def test_what_is_missing_there_is_told(entry: dict[str, Any], sshd: small_sshd.SmallSshd, tmp_path: Path) -> None:
    assert "127.0.0.1" in last_error({**entry, "command": "no-such-command-anywhere"})
    assert "no-such-command-anywhere" in last_error({**entry, "command": "no-such-command-anywhere"})
    assert "/no/python" in last_error({**entry, "placement": sshd.placement(python="/no/python")})
    with pytest.raises(StartFailed, match="/no/python"):
        engine_of(sshd.placement(python="/no/python")).look()


def test_what_is_there_is_told(sshd: small_sshd.SmallSshd) -> None:
    assert engine_of(sshd.placement()).look().startswith(f"Python {sys.version.split()[0]} with gaia-mcp")


def test_an_unknown_host_key_is_refused(entry: dict[str, Any], sshd: small_sshd.SmallSshd) -> None:
    known = sshd.folder / "known_hosts"
    content = known.read_text()
    known.write_text("")
    try:
        assert "Host key verification failed" in last_error(entry)
    finally:
        known.write_text(content)


def test_a_machine_that_does_not_answer_is_told(entry: dict[str, Any], sshd: small_sshd.SmallSshd) -> None:
    assert "Connection refused" in last_error({**entry, "placement": sshd.placement(port=1)})
