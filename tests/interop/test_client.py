"""Our client against servers that others wrote: each is started, listed, called, killed and recovered."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.protocol.handshake_era import HANDSHAKE_REVISIONS
from gaia.mcp.client.protocol.stateless_era import STATELESS_REVISIONS
from tests.interop.conftest import DOCS, InteropTable
from tests.interop.test_servers_answer import SAMPLE_CALLS
from tests.waiting import wait_until

QUICK_RESTART = {"initialDelay": 0.05}

BOTH_ERAS = ("time", "git", "fetch", "python-sdk", "fastmcp", "typescript-sdk")
MATRIX = [
    *((name, "auto", STATELESS_REVISIONS[0]) for name in BOTH_ERAS),
    *((name, "legacy", HANDSHAKE_REVISIONS[0]) for name in BOTH_ERAS),
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

    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json"))) as manager:
        client = manager.add_server(name, config)
        assert client.protocol_version == revision
        names = [listed.namespaced_name for listed in manager.list_tools()]
        assert called in names
        answer = manager.call_tool(called, arguments(tmp_path / name))
        assert expected in text_of(answer)

        (before,) = manager.status()
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        wait_until(lambda: manager.status()[0].generation > before.generation)

        again = manager.call_tool(called, arguments(tmp_path / name))
        # Not the same text again from all of them: the memory server finds what it kept on disk.
        assert "error" not in again
        assert again.get("isError", False) == answer.get("isError", False)
        (after,) = manager.status()
        assert (after.restarts, after.noise_lines) == (1, 0)
        assert after.pid != before.pid
        assert client.protocol_version == revision
        assert [listed.namespaced_name for listed in manager.list_tools()] == names
    interop_table.add(name, "stdio", revision, len(names), tool)


def test_the_table_in_the_docs_is_of_these_servers() -> None:
    rows = (DOCS / "interop.md").read_text().splitlines()
    for name, _, revision in MATRIX:
        assert any(f"`{name}`" in row and revision in row for row in rows), (
            f"run tox -e interop -- --interop-table: {name}"
        )


def test_all_servers_side_by_side(configure_real_server: Callable[[str], dict[str, Any]], tmp_path: Path) -> None:
    config = MCPConfig(str(tmp_path / "servers.json"))
    for name in SAMPLE_CALLS:
        config.add_server(name, configure_real_server(name))
    with MCPClientManager(config) as manager:
        manager.load_from_config()
        assert sorted(manager.list_servers()) == sorted(SAMPLE_CALLS)
        offered = {tool.server for tool in manager.list_tools()}
        assert offered == set(SAMPLE_CALLS)


def test_arguments_that_a_server_refuses_are_explained(time_server: dict[str, Any], tmp_path: Path) -> None:
    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json"))) as manager:
        manager.add_server("time", time_server)
        answer = manager.call_tool("mcp_time_get_current_time", {"timezone": "Nowhere/Land"})
        assert answer.get("isError") is True or answer.get("error_type") == "jsonrpc"
        assert "Nowhere/Land" in text_of(answer)


def test_progress_of_a_real_server(everything_server: dict[str, Any], tmp_path: Path) -> None:
    reported: list[float] = []
    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json"))) as manager:
        manager.add_server("everything", everything_server)
        answer = manager.call_tool(
            "mcp_everything_trigger-long-running-operation",
            {"duration": 0.4, "steps": 4},
            on_progress=lambda progress, _total, _message: reported.append(progress),
        )
    assert "error" not in answer, answer
    assert reported == [1, 2, 3, 4]


def test_resources_and_prompts_of_a_real_server(everything_server: dict[str, Any], tmp_path: Path) -> None:
    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json"))) as manager:
        client = manager.add_server("everything", everything_server)
        resource = client.list_resources()[0]
        assert client.read_resource(resource["uri"])["contents"][0]["uri"] == resource["uri"]
        prompt = client.list_prompts()[0]
        assert client.get_prompt(prompt["name"])["messages"]
