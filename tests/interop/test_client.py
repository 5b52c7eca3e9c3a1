"""Our client against servers that others wrote: each is started, listed, called, killed and recovered."""

import contextlib
import os
import random
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS, STATELESS_REVISIONS
from tests.interop.conftest import DOCS, InteropTable
from tests.interop.test_servers_answer import SAMPLE_CALLS
from tests.servers import real_servers
from tests.waiting import PATIENCE, wait_until

QUICK_RESTART = {"initialDelay": 0.05}

BOTH_ERAS = ("time", "git", "fetch", "python-sdk", "fastmcp", "typescript-sdk")
MATRIX = [
    *((name, "auto", STATELESS_REVISIONS[0]) for name in BOTH_ERAS),
    *((name, "handshake", HANDSHAKE_REVISIONS[0]) for name in BOTH_ERAS),
    *((name, "auto", HANDSHAKE_REVISIONS[0]) for name in SAMPLE_CALLS if name not in BOTH_ERAS),
]
"""Server, the configured protocol, and the revision that is agreed on."""


def text_of(answer: dict[str, Any]) -> str:
    return "".join(item.get("text", "") for item in answer.get("content", [])) or str(answer)


@pytest.mark.parametrize(("name", "protocol", "revision"), MATRIX)
def test_a_server_is_listed_called_killed_and_recovered(
    name: str,
    protocol: str,
    revision: str,
    configure_real_server: Callable[[str], dict[str, Any]],
    tmp_path: Path,
    interop_table: InteropTable,
) -> None:
    config = {**configure_real_server(name), "restart": QUICK_RESTART, "protocol": protocol}
    (tmp_path / name / "here.txt").touch()
    tool, arguments, expected = SAMPLE_CALLS[name]
    called = f"mcp_{name}_{tool}"

    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json"), create=True)) as manager:
        client = manager.add_server(name, config)
        assert client.protocol_version == revision
        names = [listed.namespaced_name for listed in manager.list_tools()]
        assert called in names
        answer = manager.call_tool(called, arguments(tmp_path / name))
        assert expected in text_of(answer)

        (before,) = manager.status()
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        assert wait_until(lambda: manager.status()[0].generation > before.generation)

        again = manager.call_tool(called, arguments(tmp_path / name))
        # Not the same text again from all of them: the memory server finds what it kept on disk.
        assert "error_type" not in again
        assert again.get("isError", False) == answer.get("isError", False)
        (after,) = manager.status()
        assert (after.restarts, after.noise_lines) == (1, 0)
        assert after.pid != before.pid
        assert client.protocol_version == revision
        assert [listed.namespaced_name for listed in manager.list_tools()] == names
    interop_table.add(name, "stdio", revision, len(names), tool)


@pytest.mark.parametrize(("protocol", "revision"), [("auto", "2026-07-28"), ("handshake", "2025-11-25")])
def test_a_server_over_http_is_listed_called_killed_and_recovered(
    protocol: str, revision: str, tmp_path: Path, interop_table: InteropTable
) -> None:
    port = free_port()
    # Patient: how long the next server takes to listen is up to the machine.
    restart = {**QUICK_RESTART, "maxDelay": 0.2, "maxRestarts": 1000}
    config = {"url": f"http://127.0.0.1:{port}/mcp", "restart": restart, "protocol": protocol}
    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json"), create=True)) as manager:
        with http_server(port):
            client = manager.add_server("sdk", config)
            assert client.protocol_version == revision
            names = [tool.name for tool in client.list_tools()]
            before = text_of(manager.call_tool("mcp_sdk_pid"))
        # The server has been killed.
        with http_server(port):
            # The first call may be the one that finds out; it is not repeated, because the tool is not marked safe.
            assert wait_until(lambda: "error" not in manager.call_tool("mcp_sdk_pid"))
            assert text_of(manager.call_tool("mcp_sdk_pid")) != before
            assert client.protocol_version == revision
            assert [tool.name for tool in client.list_tools()] == names
    interop_table.add("python-sdk", "HTTP", revision, len(names), "pid")


@contextlib.contextmanager
def http_server(port: int) -> Iterator[None]:
    """The server on the official SDK, over HTTP; killed at the end."""
    try:
        line = [*real_servers.command_of("python-sdk"), "http", str(port)]
    except real_servers.Unavailable as reason:
        pytest.skip(str(reason))
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(line, stdin=nowhere, stdout=nowhere, stderr=nowhere) as process:
        try:
            assert wait_until(lambda: is_listening(port)), "the server does not listen"
            yield
        finally:
            process.kill()


def free_port() -> int:
    """A port that the system gives to no program that asks for any port: the server is started there twice."""
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("none of 100 ports is free")


def is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
        return True
    return False


def test_the_table_in_the_docs_is_of_these_servers() -> None:
    rows = (DOCS / "interop.md").read_text().splitlines()
    for name, _, revision in MATRIX:
        assert any(f"`{name}`" in row and revision in row for row in rows), (
            f"run tox -e interop -- --interop-table: {name}"
        )


def test_all_servers_side_by_side(configure_real_server: Callable[[str], dict[str, Any]], tmp_path: Path) -> None:
    config = MCPConfig(str(tmp_path / "servers.json"), create=True)
    for name in SAMPLE_CALLS:
        config.add_server(name, configure_real_server(name))
    with MCPClientManager(config) as manager:
        manager.load_from_config()
        assert sorted(manager.list_servers()) == sorted(SAMPLE_CALLS)
        offered = {tool.server for tool in manager.list_tools()}
        assert offered == set(SAMPLE_CALLS)


def test_arguments_that_a_server_refuses_are_explained(time_server: dict[str, Any], tmp_path: Path) -> None:
    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json"), create=True)) as manager:
        manager.add_server("time", time_server)
        answer = manager.call_tool("mcp_time_get_current_time", {"timezone": "Nowhere/Land"})
        assert answer.get("isError") is True or answer.get("error_type") == "jsonrpc"
        assert "Nowhere/Land" in text_of(answer)


def test_progress_of_a_real_server(everything_server: dict[str, Any], tmp_path: Path) -> None:
    reported: list[float] = []
    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json"), create=True)) as manager:
        manager.add_server("everything", everything_server)
        answer = manager.call_tool(
            "mcp_everything_trigger-long-running-operation",
            {"duration": 0.4, "steps": 4},
            on_progress=lambda progress, _total, _message: reported.append(progress),
        )
    assert "error" not in answer, answer
    assert reported == [1, 2, 3, 4]


def test_resources_and_prompts_of_a_real_server(everything_server: dict[str, Any], tmp_path: Path) -> None:
    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json"), create=True)) as manager:
        client = manager.add_server("everything", everything_server)
        resource = client.list_resources()[0]
        assert client.read_resource(resource["uri"])["contents"][0]["uri"] == resource["uri"]
        prompt = client.list_prompts()[0]
        assert client.get_prompt(prompt["name"])["messages"]
