"""`with_options`: shared options, and parameters that are made of several options."""

from typing import Annotated, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from gaia.cli.options import Options, with_options


class Place(NamedTuple):
    host: str
    port: int


def make_place(host: str = "here", port: Annotated[int, typer.Option(min=0, help="Where to listen.")] = 1) -> Place:
    return Place(host, port)


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)

    @app.callback()
    @with_options("trust", "as_json")
    def group(options: Options) -> None:
        pass

    @app.command()
    @with_options("as_json", "config", place=make_place)
    def serve(options: Options, name: str, *, place: Place, threads: int = 8) -> None:
        """Serve it."""
        print(name, *place, threads, options.json, options.trust, options.config_file)

    return app


def test_a_part_is_made_of_its_options(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["serve", "it", "--port", "7", "--threads", "9", "--config", "c.json"])

    assert result.stdout == "it here 7 9 False False c.json\n"


def test_options_of_the_group_and_of_the_command_add_up(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--trust", "serve", "it", "--json"])

    assert result.stdout == "it here 1 8 True True None\n"


def test_options_are_checked_and_shown_where_the_part_stands(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["serve", "it", "--port", "-1"]).exit_code == 2
    assert CliRunner().invoke(app, ["serve", "it", "--trust"]).exit_code == 2
    shown = CliRunner().invoke(app, ["serve", "--help"]).stdout
    places = [shown.index(option) for option in ("Serve it.", "--host", "--port", "--threads", "--json", "--config")]
    assert places == sorted(places)
