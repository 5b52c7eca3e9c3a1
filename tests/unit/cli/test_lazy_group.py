"""Groups whose commands are imported when they are used."""

import sys
import types
from typing import Any, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from gaia.cli.lazy_group import LazyCommand, LazyGroup, LazySubgroup, Offers


class Group(LazyGroup):
    offers: ClassVar[Offers] = {
        "one": LazyCommand("commands_of_a_test", "one", ("one --loud",)),
        "lost": LazyCommand("commands_that_are_missing", "lost", ()),
        "more": LazySubgroup("group_of_a_test"),
    }


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    def one(loud: bool = False) -> None:
        """Say one."""
        typer.echo("ONE" if loud else "one")

    def two() -> None:
        """Say two."""
        typer.echo("two")

    commands: Any = types.ModuleType("commands_of_a_test")
    commands.one = one
    more: Any = types.ModuleType("group_of_a_test")
    more.app = typer.Typer(add_completion=False, rich_markup_mode=None)
    more.app.callback()(lambda: None)
    more.app.command()(two)
    monkeypatch.setitem(sys.modules, commands.__name__, commands)
    monkeypatch.setitem(sys.modules, more.__name__, more)
    group = typer.Typer(cls=Group, add_completion=False, rich_markup_mode=None)
    group.callback()(lambda: None)
    return group


@pytest.mark.parametrize(("words", "said"), [(["one", "--loud"], "ONE\n"), (["more", "two"], "two\n")])
def test_only_the_command_that_runs_is_imported(app: typer.Typer, words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, words)

    assert (result.stdout, result.exit_code) == (said, 0)


def test_the_help_of_a_command_has_its_examples(app: typer.Typer) -> None:
    shown = CliRunner().invoke(app, ["one", "--help"]).stdout

    assert "Say one." in shown
    assert "one --loud\n" in shown


def test_a_misspelt_command_is_refused_without_an_import(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["onee"])

    assert result.exit_code == 2
    assert "'one'" in result.output


def test_a_command_is_loaded_once(app: typer.Typer) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]

    assert len(commands) == 3
    assert commands["one"] is commands["one"]
