"""The group `gaia mcp`: its commands, their help, and options that may stand before or after a command's name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COMMANDS = ("add", "remove", "list", "tools", "call", "test-client", "watch", "import", "demo")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_examples(command: str, invoke: Callable[..., Any]) -> None:
    result = invoke(command, "--help")

    assert result.exit_code == 0
    assert f"  gaia mcp {command}" in result.stdout.partition("Examples:")[2]
    for option in ("--config", "--json", "--debug"):
        assert option in result.stdout


def test_the_group_lists_its_commands(invoke: Callable[..., Any]) -> None:
    listed = invoke("--help").stdout.partition("Commands:")[2]

    assert [command for command in COMMANDS if f"\n  {command} " not in listed] == []


@pytest.mark.parametrize(
    "words",
    [["--json", "list"], ["list", "--json"], ["--json", "list", "--no-connect"], ["list", "--no-connect", "--json"]],
)
def test_json_may_stand_before_or_after_the_command(
    words: list[str], configure: Callable[..., Path], invoke: Callable[..., Any]
) -> None:
    configure(time={"command": "uvx", "disabled": True})

    assert json.loads(invoke(*words).stdout)["servers"][0]["name"] == "time"


@pytest.mark.parametrize("words", [["--config", "a.json", "list"], ["list", "--config", "a.json"]])
def test_config_may_stand_before_or_after_the_command(
    words: list[str], tmp_path: Path, configure: Callable[..., Path], invoke: Callable[..., Any]
) -> None:
    configure(other={"command": "x"})
    (tmp_path / "a.json").write_text('{"mcpServers": {"mine": {"command": "x"}}}')
    shown = invoke(*words, "--no-connect").stdout

    assert "mine" in shown
    assert "other" not in shown


def test_the_option_after_the_command_wins(tmp_path: Path, invoke: Callable[..., Any]) -> None:
    (tmp_path / "a.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    (tmp_path / "b.json").write_text('{"mcpServers": {"b": {"command": "x"}}}')

    assert "b " in invoke("--config", "a.json", "list", "--no-connect", "--config", "b.json").stdout
