"""What holds for every command: help, exit statuses, options in either place, errors without tracebacks."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gaia import __version__
from gaia.cli.main import app

COMMANDS = ("add", "remove", "list", "tools", "call", "test-client", "watch", "import", "demo")


def test_the_version_is_the_packages() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert (result.exit_code, result.stdout) == (0, f"gaia {__version__}\n")


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


def test_completion_is_offered_for_the_shell() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.process
def test_help_loads_neither_the_client_nor_rich(environment: dict[str, str]) -> None:
    program = (
        "import sys; from gaia.cli.main import app\n"
        "try: app(['mcp', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('rich', 'msgspec', 'opentelemetry', 'psutil', 'gaia.mcp.client')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, encoding="utf-8")

    assert ran.stderr == "[]\n"


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


@pytest.mark.parametrize("command", ["tools", "remove", "test-client", "call"])
def test_an_unknown_server_is_a_usage_error_that_lists_the_known_ones(
    command: str, configure: Callable[..., Path], invoke: Callable[..., Any]
) -> None:
    configure(time={"command": "x"}, git={"command": "y"})
    result = invoke(command, "tme", *(["tool"] if command == "call" else []))

    assert result.exit_code == 2
    assert "did you mean 'time'?" in result.stderr
    assert "Known names: git, time" in result.stderr


def test_errors_are_json_too(configure: Callable[..., Path], invoke: Callable[..., Any]) -> None:
    configure(time={"command": "x"})
    result = invoke("tools", "tme", "--json")
    document = json.loads(result.stdout)

    assert result.exit_code == 2
    assert document["error_type"] == "unknown_server"
    assert document["known"] == ["time"]


@pytest.mark.parametrize("command", [["list"], ["add", "time", "x"], ["remove", "time"], ["watch"], ["import"]])
def test_a_broken_configuration_is_named_with_the_place_and_left_alone(
    command: list[str], home: Path, invoke: Callable[..., Any]
) -> None:
    file = home / ".gaia" / "mcp_servers.json"
    file.parent.mkdir()
    file.write_text('{\n  "mcpServers": {"time" 1}\n}')
    result = invoke(*command)

    assert result.exit_code == 2
    assert f"{file}: line 2, column 25" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert file.read_text() == '{\n  "mcpServers": {"time" 1}\n}'


@pytest.mark.parametrize("command", ["tools", "test-client"])
def test_an_unusable_entry_is_a_configuration_error(
    command: str, configure: Callable[..., Path], invoke: Callable[..., Any]
) -> None:
    configure(time={"command": "x", "args": "not a list"})
    result = invoke(command, "time")

    assert result.exit_code == 2
    assert "server 'time': args: expected a list" in result.stderr


def test_debug_shows_the_traceback_and_the_log(configure: Callable[..., Path], run: Callable[..., Any]) -> None:
    configure(time={"command": "no-such-program-anywhere"})
    quiet, loud = run("tools", "time"), run("tools", "time", "--debug")

    assert (quiet.returncode, loud.returncode) == (1, 1)
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr
    assert "connect_failed" in loud.stderr
    assert "connect_failed" not in quiet.stderr


@pytest.mark.parametrize("words", [[], ["no-such-command"], ["list", "--no-such-option"], ["call", "x"]])
def test_a_wrong_command_line_is_a_usage_error(words: list[str], invoke: Callable[..., Any]) -> None:
    result = invoke(*words)

    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_output_to_a_stream_of_few_characters_has_question_marks(
    demo_server: dict[str, Any], configure: Callable[..., Path], run: Callable[..., Any]
) -> None:
    configure(demo=demo_server)
    result = run("test-client", "demo", PYTHONIOENCODING="ascii")

    assert result.returncode == 0
    assert "?" in result.stdout


@pytest.mark.process
def test_a_reader_that_has_seen_enough_is_no_error(
    gaia_argv: list[str], environment: dict[str, str], configure: Callable[..., Path]
) -> None:
    configure(**{f"server-{number}": {"command": "x", "disabled": True} for number in range(3000)})
    listing = subprocess.Popen(
        [*gaia_argv, "mcp", "list"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.readline()
        listing.stdout.close()
        assert listing.stderr.read() == b""
