"""The groups of commands: lazy imports, the help, and options that may stand before or after a command's name."""

import json
import shlex
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from gaia.cli.main import LazyGroup, app
from gaia.cli.options import Options

COMMANDS = ("add", "remove", "enable", "disable", "list", "tools", "call", "resources", "read", "prompts", "prompt")


def every_command(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command with its path: ``("mcp", "add")``. Groups are commands too if they do something by themselves."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            if command.invoke_without_command:
                yield (*path, name), command
            yield from every_command(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(every_command(typer.main.get_command(app)))


def examples_of(path: tuple[str, ...]) -> list[str]:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"}).stdout
    section = shown.partition("Examples:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in section.splitlines()]


def test_all_commands_are_found() -> None:
    assert {("mcp", command) for command in COMMANDS} | {("api", "serve")} <= ALL.keys()


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_each_command_explains_itself_with_examples_that_can_be_typed(path: tuple[str, ...]) -> None:
    examples = examples_of(path)

    assert examples
    for example in examples:
        words = [word for word in shlex.split(example) if not word.startswith("GAIA_SERVE_TOKEN=")]
        assert words[: len(path) + 1] == ["gaia", *path]
        # Raises for what the command does not take.
        with ALL[path].make_context(path[-1], words[len(path) + 1 :], obj=Options()):
            pass


@pytest.mark.parametrize("command", COMMANDS)
def test_the_shared_options_are_explained(command: str, invoke: Callable[..., Any]) -> None:
    shown = invoke(command, "--help").stdout

    assert [option for option in ("--config", "--json", "--debug") if option not in shown] == []


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


class TestLazyGroups:
    @pytest.fixture
    def group(self, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
        def one(loud: bool = False) -> None:
            """Say one."""
            typer.echo("ONE" if loud else "one")

        module: Any = types.ModuleType("commands_of_a_test")
        module.one = one
        module.app = typer.Typer(add_completion=False, rich_markup_mode=None)
        module.app.callback()(lambda: None)
        module.app.command("two")(lambda: typer.echo("two"))
        monkeypatch.setitem(sys.modules, module.__name__, module)

        class Group(LazyGroup):
            places: ClassVar[dict[str, str]] = {
                "one": "commands_of_a_test:one",
                "lost": "commands_that_are_missing:lost",
                "more": "commands_of_a_test:app",
            }

        group = typer.Typer(cls=Group, add_completion=False, rich_markup_mode=None)
        group.callback()(lambda: None)
        return group

    @pytest.mark.parametrize(("words", "said"), [(["one", "--loud"], "ONE\n"), (["more", "two"], "two\n")])
    def test_only_the_command_that_runs_is_imported(self, group: typer.Typer, words: list[str], said: str) -> None:
        result = CliRunner().invoke(group, words)

        assert (result.stdout, result.exit_code) == (said, 0)

    def test_a_misspelt_command_is_refused_without_an_import(self, group: typer.Typer) -> None:
        result = CliRunner().invoke(group, ["onee"])

        assert result.exit_code == 2
        assert "'one'" in result.output

    def test_a_command_is_loaded_once(self, group: typer.Typer) -> None:
        commands = typer.main.get_command(group).commands  # type: ignore[attr-defined]

        assert len(commands) == 3
        assert commands["one"] is commands["one"]
