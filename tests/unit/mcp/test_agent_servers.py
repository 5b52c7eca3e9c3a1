from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.agent_servers import check_entry, checked, put_over_files
from gaia.mcp.client.config import MCPConfig


@pytest.mark.parametrize("entry", [{"command": "uvx"}, {"url": "http://localhost/mcp"}])
def test_a_command_or_a_url_will_do(entry: dict[str, Any]) -> None:
    check_entry("time", entry)


@pytest.mark.parametrize(
    ("entry", "message"),
    [(None, "got NoneType"), ("uvx", "got str"), ({}, "needs a 'command'"), ({"command": ""}, "needs a 'command'")],
)
def test_anything_else_is_a_mistake_that_is_explained(entry: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_entry("time", entry)


def test_all_servers_of_a_constructor_are_checked_as_those_of_a_file_are() -> None:
    assert checked(None) == {}
    good = {"command": "uvx", "env": {"TOKEN": "${NOT_SET_YET}"}}
    assert checked({"time": good}) == {"time": good}
    with pytest.raises(ValueError, match=r"server 'git': .*timeout"):
        checked({"time": good, "git": {"command": "uvx", "timeout": "long"}})


def test_servers_are_named() -> None:
    with pytest.raises(ValueError, match="expected servers by name"):
        checked([{"command": "uvx"}])  # type: ignore[arg-type]


def test_declared_servers_count_and_nothing_is_written(tmp_path: Any) -> None:
    file = tmp_path / "servers.json"
    file.write_text('{"mcpServers": {"time": {"command": "old"}, "git": {"command": "git"}}}')
    before = file.read_bytes()
    config = put_over_files(MCPConfig(file), {"time": {"command": "new"}}, "MyAgent")
    assert config.get_servers() == {"time": {"command": "new"}, "git": {"command": "git"}}
    assert file.read_bytes() == before


def test_the_log_says_which_servers_come_from_which_file(
    home: Path, log_events: Callable[[str], list[dict[str, Any]]]
) -> None:
    user_file, local = home / ".gaia" / "mcp_servers.json", Path.cwd() / "mcp_servers.json"
    user_file.parent.mkdir()
    user_file.write_text('{"mcpServers": {"time": {"command": "uvx"}, "git": {"command": "uvx"}, "db": 5}}')
    local.write_text('{"mcpServers": {"git": {"command": "git"}}}')
    put_over_files(MCPConfig(), {"own": {"command": "x"}}, "MyAgent")
    assert log_events("mcp_servers_configured") == [
        {
            "agent": "MyAgent",
            "servers": {str(user_file): ["time", "db"], str(local): ["git"], "code": ["own"]},
            "overrides": ["git"],
        }
    ]
