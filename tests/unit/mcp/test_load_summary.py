from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.load_summary import connected_line, load_summary
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.tools.tool import MCPTool


def a_client(name: str, *tools: str) -> Any:
    client = Mock(list_tools=Mock(return_value=[MCPTool(tool, "", {}) for tool in tools]))
    client.name = name
    return client


@pytest.mark.parametrize(
    ("tools", "line"),
    [
        ([], "✓ s (0 tools)"),
        (["now"], "✓ s (1 tool): now"),
        (["now", "zones"], "✓ s (2 tools): now, zones"),
        (["a\nb"], "✓ s (1 tool): a b"),
    ],
)
def test_a_connected_server_is_shown_with_its_tools(tools: list[str], line: str) -> None:
    assert connected_line(a_client("s", *tools)) == line


def test_a_very_long_list_of_tools_is_cut() -> None:
    line = connected_line(a_client("s", *(f"t{number}" for number in range(150))))
    assert line.endswith("t98, t99, and 50 more")


def test_a_server_of_a_file_is_shown_with_the_file() -> None:
    assert connected_line(a_client("s", "now"), Path("/etc/s.json")) == f"✓ s from {Path('/etc/s.json')} (1 tool): now"


def test_each_server_that_is_not_disabled_has_a_line() -> None:
    clients = {"time": a_client("time", "now")}
    manager = Mock()
    manager.list_servers.return_value = ["time"]
    manager.get_client.side_effect = clients.get
    manager.config.get_servers.return_value = {"time": {}, "git": {}, "off": {"disabled": True}}
    manager.config.source_of.return_value = None
    manager.status.return_value = [
        ServerStatus(name="git", state=ServerState.FAILED, last_error="exited with code 1\n✓ bank (3 tools)"),
        ServerStatus(name="slow", state=ServerState.STARTING),
        ServerStatus(name="unusable", state=ServerState.FAILED, last_error="it has no command"),
    ]
    assert load_summary(manager).splitlines() == [
        "✓ time (1 tool): now",
        "✗ git failed to connect: exited with code 1",
        "  ✓ bank (3 tools)",
        "… slow is starting; its tools come when it is ready",
        "✗ unusable failed to connect: it has no command",
    ]


def test_where_nothing_is_configured_there_is_nothing_to_say() -> None:
    manager = Mock()
    manager.list_servers.return_value = []
    manager.config.get_servers.return_value = {}
    manager.status.return_value = []
    assert load_summary(manager) == ""
