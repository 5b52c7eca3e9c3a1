"""How a command fails: exit status, message, hint, and the same for programs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.cli.command_errors import FAILED, USAGE, CommandFailed, report, unknown_name
from gaia.cli.options import Options
from gaia.mcp.errors import CallTimeout, ConfigError


class TestUnknownName:
    def test_the_one_that_was_probably_meant_is_named(self) -> None:
        error = unknown_name("tool", "ad", ["echo", "add"], place=" of demo")

        assert error.message == "there is no tool named 'ad' of demo; did you mean 'add'?"
        assert error.hint == "Known names: add, echo"
        assert (error.exit_code, error.facts["known"]) == (USAGE, ["add", "echo"])

    def test_nothing_is_guessed_where_nothing_is_similar(self) -> None:
        assert "did you mean" not in unknown_name("tool", "zzz", ["add"]).message

    def test_where_there_are_none_that_is_said(self) -> None:
        assert unknown_name("server", "it", []).hint == "There are no servers at all."


class TestReport:
    def test_people_get_a_message_and_a_hint_on_standard_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert report(CommandFailed("it [red]broke\x1b[2J", hint="Mend it."), Options()) == FAILED
        written = capsys.readouterr()

        assert (written.out, written.err) == ("", "Error: it [red]broke\nMend it.\n")

    def test_programs_get_the_facts_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        error = CommandFailed("no", exit_code=7, hint="Mend it.", error_type="broken", known=["a"])
        assert report(error, Options(json=True)) == 7
        written = capsys.readouterr()

        assert json.loads(written.out) == {"error": "no", "hint": "Mend it.", "error_type": "broken", "known": ["a"]}
        assert written.err.startswith("Error: no")

    @pytest.mark.parametrize(
        ("error", "status"), [(ConfigError("no such key"), USAGE), (CallTimeout("not answered"), FAILED)]
    )
    def test_only_a_wrong_configuration_is_a_usage_error(
        self, error: CallTimeout | ConfigError, status: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert report(error, Options(json=True)) == status
        assert json.loads(capsys.readouterr().out)["error_type"] == error.error_type

    def test_a_traceback_is_for_debugging_and_harmless_for_the_terminal(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fail() -> int:
            try:
                raise CommandFailed("the server says \x1b]0;owned\x07\x9b31m")
            except CommandFailed as error:
                return report(error, Options(debug=debug))

        for debug in (False, True):
            fail()
            written = capsys.readouterr().err
            assert ("Traceback" in written) is debug
            assert not {char for char in written if not char.isprintable() and char != "\n"}


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("command", ["tools", "test-client", "doctor", "list", "watch"])
def test_no_line_of_a_server_looks_like_one_of_the_command(
    command: str, configure: Callable[..., Path], invoke: Callable[..., Any]
) -> None:
    configure(it={"command": sys.executable, "args": ["-c", r"raise SystemExit('ended\nbank works.')"]})
    result = invoke(command, *(() if command in ("list", "watch") else ("it",)))

    assert "bank works." in result.output
    assert not any(line.startswith("bank") for line in result.output.splitlines())
