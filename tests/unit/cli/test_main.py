"""What holds for every command: exit statuses, errors without tracebacks, and Ctrl-C, which leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from gaia import __version__
from gaia.cli.main import app, report
from gaia.cli.options import Options
from gaia.cli.terminal import FAILED, USAGE, CommandFailed, unknown_name
from gaia.mcp.errors import CallTimeout, ConfigError
from tests.servers.state_file import read_state
from tests.waiting import PATIENCE, wait_until


def test_the_version_is_the_packages() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert (result.exit_code, result.stdout) == (0, f"gaia {__version__}\n")


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


@pytest.mark.process
def test_a_command_does_not_load_the_others(environment: dict[str, str]) -> None:
    program = (
        "import sys; from gaia.cli.main import app\n"
        "try: app(['mcp', 'gateway', '--help'])\n"
        "except SystemExit: pass\n"
        "others = ('gaia.cli.doctor', 'gaia.cli.watch', 'gaia.cli.listing', 'http.client', 'ssl')\n"
        "print([name for name in others if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, encoding="utf-8")

    assert ran.stderr == "[]\n"


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
    assert "server_failed" in loud.stderr
    assert "server_failed" not in quiet.stderr


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


def interrupt(command: "subprocess.Popen[str]") -> str:
    """Press Ctrl-C; returns what was written to standard error."""
    os.killpg(command.pid, signal.SIGINT)
    _, errors = command.communicate(timeout=PATIENCE)
    return errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "words", "moment"),
    [
        ({}, ["call", "it", "sleep", "seconds=60"], "call"),
        ({"ignore_eof": True}, ["call", "it", "sleep", "seconds=60"], "call"),
        ({"start_delay": 60}, ["list"], "start"),
        ({"start_delay": 60}, ["tools", "it"], "start"),
        ({"faults": [{"on": "ping", "hang": True}]}, ["test-client", "it"], "start"),
        ({"faults": [{"on": "initialize", "hang": True}]}, ["doctor"], "start"),
    ],
    ids=["a call", "a call to a server that ignores the end of input", "list", "tools", "test-client", "doctor"],
)
def test_ctrl_c_stops_the_servers(
    scenario: dict[str, Any],
    words: list[str],
    moment: str,
    configure: Callable[..., Path],
    start: Callable[..., "subprocess.Popen[str]"],
    fault_server: Callable[..., dict[str, Any]],
    processes_of: Callable[[], list[int]],
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    configure(it=fault_server(state_file=state, **scenario))
    command = start(*words)
    assert wait_until(lambda: bool(read_state(state).calls if moment == "call" else read_state(state).starts))
    errors = interrupt(command)

    assert command.returncode == 130
    assert errors == ""
    assert wait_until(lambda: processes_of() == [])


@pytest.mark.slow
def test_ctrl_c_ends_the_demo_with_all_its_processes(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    command = start("demo")
    group = psutil.Process(command.pid)
    # The supervised server, the guard, and the server behind the raw pipe.
    assert wait_until(lambda: len(group.children(recursive=True)) >= 3)
    children = group.children(recursive=True)
    errors = interrupt(command)

    assert command.returncode == 130
    assert errors == ""
    assert psutil.wait_procs(children, timeout=PATIENCE)[1] == []


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
