"""`with_options`: shared options, and parameters that are made of several options."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from gaia.cli.options import Options, with_options
from gaia.cli.servers import complete_name


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


def test_a_part_is_made_of_its_options(app: typer.Typer, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.touch()
    result = CliRunner().invoke(app, ["serve", "it", "--port", "7", "--threads", "9", "--config", str(file)])

    assert result.stdout == f"it here 7 9 False False {file}\n"


def test_options_of_the_group_and_of_the_command_add_up(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--trust", "serve", "it", "--json"])

    assert result.stdout == "it here 1 8 True True None\n"


def test_options_are_checked_and_shown_where_the_part_stands(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["serve", "it", "--port", "-1"]).exit_code == 2
    assert CliRunner().invoke(app, ["serve", "it", "--trust"]).exit_code == 2
    shown = CliRunner().invoke(app, ["serve", "--help"]).stdout
    places = [shown.index(option) for option in ("Serve it.", "--host", "--port", "--threads", "--json", "--config")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("file", "words", "command"),
    [
        (None, ["doctor", "time"], "gaia mcp doctor time"),
        (None, ["read", "it's", "a:$(x)"], """gaia mcp read 'it'"'"'s' 'a:$(x)'"""),
        (Path("my file.json"), ["doctor", "time"], "gaia mcp doctor --config 'my file.json' time"),
        (None, ["doctor", "-x"], "gaia mcp doctor -- -x"),
    ],
)
def test_a_command_to_copy_is_quoted_and_reads_the_same_file(file: Path | None, words: list[str], command: str) -> None:
    assert Options(config_file=file).command(*words) == command


class TestWarnings:
    """What is most likely a mistake in the configuration files."""

    COMMANDS = (
        *(["list"], ["list", "--no-connect"], ["doctor"], ["test-client", "time"], ["watch", "--once"]),
        *(["tools", "time"], ["call", "time", "now"], ["add", "new", "x"], ["remove", "time"], ["import", "--dry-run"]),
        *(["approve", "time"], ["login", "time"], ["logout", "time"], ["enable", "time"], ["disable", "time"]),
        *(["resources", "time"], ["read", "time", "a:b"], ["prompts", "time"], ["prompt", "time", "greet"]),
    )

    @pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
    def test_every_command_that_reads_the_files_says_it_on_standard_error(
        self, configure: Callable[..., Path], invoke: Callable[..., Any], words: list[str]
    ) -> None:
        file = configure(time={"command": "no-such-program-anywhere", "timout": 5})
        result = invoke(*words, "--json")
        warning = f"Warning: {file}: server 'time': the key 'timout' means nothing here; did you mean 'timeout'?\n"

        assert result.stderr.count(warning) == 1
        assert "Warning" not in result.stdout

    def test_completion_says_nothing(self, configure: Callable[..., Path], capfd: pytest.CaptureFixture[str]) -> None:
        configure(time={"command": "x", "timout": 5})

        assert complete_name("t") == ["time"]
        assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "words",
    [
        ["bench"],
        ["trust"],
        ["trust", "--list"],
        ["gateway", "--print-client-config", "claude"],
        ["list", "http://127.0.0.1:9/mcp"],
    ],
    ids=" ".join,
)
def test_a_file_that_is_named_has_to_exist_whether_it_is_read_or_not(
    words: list[str], home: Path, tmp_path: Path, invoke: Callable[..., Any]
) -> None:
    missing = tmp_path / "nope.json"
    for result in (invoke(*words, "--config", missing), invoke("--config", missing, *words)):
        assert result.exit_code == 2
        assert f"{missing}: there is no such file" in result.stderr


def test_trust_does_not_take_a_file_that_needs_none(home: Path, tmp_path: Path, invoke: Callable[..., Any]) -> None:
    file = tmp_path / "team.json"
    file.write_text("{}")
    result = invoke("trust", "--config", file)
    assert result.exit_code == 2
    assert "--config: a file that it names needs no trust" in result.stderr


@pytest.mark.parametrize("words", [["list"], ["doctor"], ["watch", "--once"]], ids=" ".join)
def test_what_is_suggested_without_servers_names_the_same_file(
    words: list[str], home: Path, tmp_path: Path, invoke: Callable[..., Any]
) -> None:
    file = tmp_path / "b.json"
    file.write_text("{}")
    result = invoke(*words, "--config", file)
    assert f"gaia mcp add --config {file} time 'uvx mcp-server-time'" in result.output.replace("\n", "")
