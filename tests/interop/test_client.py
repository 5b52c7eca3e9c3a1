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
from tests.interop.test_servers_answer import SAMPLE_CALLS
from tests.waiting import wait_until

QUICK_RESTART = {"initialDelay": 0.05}


def text_of(answer: dict[str, Any]) -> str:
    return "".join(item.get("text", "") for item in answer.get("content", [])) or str(answer)


@pytest.mark.parametrize("name", SAMPLE_CALLS)
def test_a_server_is_listed_called_killed_and_recovered(
    name: str, configure_real_server: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    config = {**configure_real_server(name), "restart": QUICK_RESTART}
    (tmp_path / name / "here.txt").touch()
    tool, arguments, expected = SAMPLE_CALLS[name]
    called = f"mcp_{name}_{tool}"

    with MCPClientManager(MCPConfig(str(tmp_path / "servers.json"))) as manager:
        client = manager.add_server(name, config)
        assert client.protocol_version in HANDSHAKE_REVISIONS
        names = [listed.namespaced_name for listed in manager.list_tools()]
        assert called in names
        assert expected in text_of(manager.call_tool(called, arguments(tmp_path / name)))

        (before,) = manager.status()
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        wait_until(lambda: manager.status()[0].generation == 2)

        answer = manager.call_tool(called, arguments(tmp_path / name))
        # Not the same text again from all of them: the memory server finds what it kept on disk.
        assert "error" not in answer
        assert not answer.get("isError")
        (after,) = manager.status()
        assert (after.restarts, after.noise_lines) == (1, 0)
        assert after.pid != before.pid
        assert [listed.namespaced_name for listed in manager.list_tools()] == names


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
