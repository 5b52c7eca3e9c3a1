"""The `gaia` command: help, options, errors and exit statuses."""

import json
import os
import shlex
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import psutil
import pytest
import typer
from typer.testing import CliRunner

from gaia import __version__
from gaia.cli.main import LazyGroup, app, report
from gaia.cli.options import Options, with_options
from gaia.cli.servers import complete_name, connected, entry_of, make_client, waiting_for
from gaia.cli.terminal import FAILED, USAGE, CommandFailed, unknown_name
from gaia.mcp.client import MCPClient
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import CallTimeout, ConfigError
from gaia.mcp.supervision.events import ServerState
from tests.servers.state_file import read_state
from tests.unit.cli.fixture_types import Configure, FaultServer, Invoke, Json, ProcessesOf, Start, Told
from tests.waiting import PATIENCE, wait_until


def test_the_version_is_the_packages_and_completion_is_offered_for_the_shell() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"gaia {__version__}\n")
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "others"),
    [
        (["mcp", "--help"], ["rich", "msgspec", "opentelemetry", "psutil", "gaia.mcp.client"]),
        (["mcp", "gateway", "--help"], ["gaia.cli.doctor", "gaia.cli.watch", "gaia.cli.listing", "http.client", "ssl"]),
    ],
    ids=["help loads neither the client nor rich", "a command does not load the others"],
)
def test_what_is_not_needed_is_not_loaded(words: list[str], others: list[str], environment: dict[str, str]) -> None:
    program = (
        "import sys; from gaia.cli.main import app\n"
        f"try: app({words})\n"
        "except SystemExit: pass\n"
        f"print([name for name in {others} if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, encoding="utf-8")

    assert ran.stderr == "[]\n"


@pytest.mark.parametrize("command", ["tools", "remove", "test-client", "call"])
def test_an_unknown_server_is_a_usage_error_that_lists_the_known_ones_and_json_too(
    command: str, configure: Configure, refused: Told, invoke_json: Invoke
) -> None:
    configure(time={"command": "x"}, git={"command": "y"})
    words = (command, "tme", *(["tool"] if command == "call" else []))
    error = refused(*words)
    assert "did you mean 'time'?" in error
    assert "Known names: git, time" in error
    document = invoke_json(*words)
    assert (document["error_type"], document["known"]) == ("unknown_server", ["git", "time"])


@pytest.mark.parametrize("command", [["list"], ["add", "time", "x"], ["remove", "time"], ["watch"], ["import"]])
def test_a_broken_configuration_is_named_with_the_place_and_left_alone(
    command: list[str], home: Path, invoke: Invoke
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
def test_an_unusable_entry_is_a_configuration_error(command: str, configure: Configure, refused: Told) -> None:
    configure(time={"command": "x", "args": "not a list"})
    assert "server 'time': args: expected a list" in refused(command, "time")


def test_debug_shows_the_traceback_and_the_log(configure: Configure, invoke: Invoke, run: Invoke) -> None:
    configure(time={"command": "no-such-program-anywhere"})
    quiet, loud = invoke("tools", "time"), run("tools", "time", "--debug")
    assert (quiet.exit_code, loud.returncode) == (1, 1)
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr
    assert "server_failed" in loud.stderr
    assert "server_failed" not in quiet.stderr


@pytest.mark.parametrize("words", [[], ["no-such-command"], ["list", "--no-such-option"], ["call", "x"]])
def test_a_wrong_command_line_is_a_usage_error(words: list[str], refused: Told) -> None:
    assert "Traceback" not in refused(*words)


def test_output_to_a_stream_of_few_characters_has_question_marks(configure: Configure, run: Invoke) -> None:
    configure(**{"zeit-für": {"command": "x"}})
    result = run("list", "--no-connect", PYTHONIOENCODING="ascii")
    assert (result.returncode, "zeit-f?r" in result.stdout) == (0, True)


@pytest.mark.process
def test_a_reader_that_has_seen_enough_is_no_error(
    gaia_argv: list[str], environment: dict[str, str], configure: Configure
) -> None:
    configure(**{f"server-{number}": {"command": "x", "disabled": True} for number in range(800)})
    listing = subprocess.Popen(
        [*gaia_argv, "mcp", "list", "--no-connect"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
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
        ({"ignore_eof": True}, ["call", "it", "sleep", "seconds=60"], "call"),
        ({"start_delay": 60}, ["list"], "start"),
        ({"faults": [{"on": "ping", "hang": True}]}, ["test-client", "it"], "start"),
        ({"faults": [{"on": "initialize", "hang": True}]}, ["doctor"], "start"),
    ],
    ids=["a call to a server that ignores the end of input", "list", "test-client", "doctor"],
)
def test_ctrl_c_stops_the_servers(
    scenario: Json,
    words: list[str],
    moment: str,
    configure: Configure,
    start: Start,
    fault_server: FaultServer,
    processes_of: ProcessesOf,
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    configure(it=fault_server(state_file=state, **scenario))
    command = start(*words)
    assert wait_until(lambda: bool(read_state(state).calls if moment == "call" else read_state(state).starts))
    assert (interrupt(command), command.returncode) == ("", 130)
    assert wait_until(lambda: processes_of() == [])


@pytest.mark.slow
def test_ctrl_c_ends_the_demo_with_all_its_processes(start: Start) -> None:
    command = start("demo")
    group = psutil.Process(command.pid)
    # The supervised server, the guard, and the server behind the raw pipe.
    assert wait_until(lambda: len(group.children(recursive=True)) >= 3)
    children = group.children(recursive=True)
    assert (interrupt(command), command.returncode) == ("", 130)
    assert psutil.wait_procs(children, timeout=PATIENCE)[1] == []


def test_an_unknown_name_comes_with_the_known_ones() -> None:
    error = unknown_name("tool", "ad", ["echo", "add"], place=" of demo")
    assert error.message == "there is no tool named 'ad' of demo; did you mean 'add'?"
    assert error.hint == "Known names: add, echo"
    assert (error.exit_code, error.facts["known"]) == (USAGE, ["add", "echo"])
    assert "did you mean" not in unknown_name("tool", "zzz", ["add"]).message
    assert unknown_name("server", "it", []).hint == "There are no servers at all."


class TestReport:
    def test_people_get_a_message_and_a_hint_on_standard_error_and_programs_the_facts_too(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert report(CommandFailed("it [red]broke\x1b[2J", hint="Mend it."), Options()) == FAILED
        assert capsys.readouterr() == ("", "Error: it [red]broke\nMend it.\n")
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
def test_no_line_of_a_server_looks_like_one_of_the_command(command: str, configure: Configure, invoke: Invoke) -> None:
    configure(it={"command": sys.executable, "args": ["-c", r"raise SystemExit('ended\nbank works.')"]})
    result = invoke(command, *(() if command in ("list", "watch") else ("it",)))
    assert "bank works." in result.output
    assert not any(line.startswith("bank") for line in result.output.splitlines())


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
def test_the_group_lists_its_commands_which_explain_the_shared_options(command: str, invoke: Invoke) -> None:
    assert {("mcp", command), ("api", "serve")} <= ALL.keys()
    assert f"\n  {command} " in invoke("--help").stdout.partition("Commands:")[2]
    shown = invoke(command, "--help").stdout
    assert [option for option in ("--config", "--json", "--debug") if option not in shown] == []


@pytest.mark.parametrize("words", [["--json", "list"], ["list", "--json"]])
def test_json_may_stand_before_or_after_the_command(words: list[str], configure: Configure, invoke: Invoke) -> None:
    configure(time={"command": "uvx", "disabled": True})
    assert json.loads(invoke(*words, "--no-connect").stdout)["servers"][0]["name"] == "time"


@pytest.mark.parametrize(
    "words",
    [
        ["--config", "a.json", "list"],
        ["list", "--config", "a.json"],
        ["--config", "b.json", "list", "--config", "a.json"],
    ],
)
def test_config_may_stand_before_or_after_the_command_where_it_wins(
    words: list[str], tmp_path: Path, configure: Configure, invoke: Invoke
) -> None:
    configure(other={"command": "x"})
    for file, name in (("a.json", "mine"), ("b.json", "other")):
        (tmp_path / file).write_text(json.dumps({"mcpServers": {name: {"command": "x"}}}))
    shown = invoke(*words, "--no-connect").stdout
    assert "mine" in shown
    assert "other" not in shown


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
    words: list[str], home: Path, tmp_path: Path, invoke: Invoke
) -> None:
    missing = str(tmp_path / "nope.json")
    for result in (invoke(*words, "--config", missing), invoke("--config", missing, *words)):
        assert result.exit_code == USAGE
        assert f"{missing}: there is no such file" in result.stderr


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
            locations: ClassVar[dict[str, str]] = {
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

    def test_a_misspelt_command_is_refused_without_an_import_and_a_command_loaded_once(
        self, group: typer.Typer
    ) -> None:
        result = CliRunner().invoke(group, ["onee"])
        assert (result.exit_code, "'one'" in result.output) == (2, True)
        commands = typer.main.get_command(group).commands  # type: ignore[attr-defined]
        assert len(commands) == 3
        assert commands["one"] is commands["one"]


class Place(NamedTuple):
    host: str
    port: int


def make_place(host: str = "here", port: Annotated[int, typer.Option(min=0, help="Where to listen.")] = 1) -> Place:
    return Place(host, port)


@pytest.fixture
def small_app() -> typer.Typer:
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


def test_a_part_is_made_of_its_options_and_those_of_group_and_command_add_up(
    small_app: typer.Typer, tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    file.touch()
    result = CliRunner().invoke(small_app, ["serve", "it", "--port", "7", "--threads", "9", "--config", str(file)])
    assert result.stdout == f"it here 7 9 False False {file}\n"
    result = CliRunner().invoke(small_app, ["--trust", "serve", "it", "--json"])
    assert result.stdout == "it here 1 8 True True None\n"


def test_options_are_checked_and_shown_where_the_part_stands(small_app: typer.Typer) -> None:
    assert CliRunner().invoke(small_app, ["serve", "it", "--port", "-1"]).exit_code == 2
    assert CliRunner().invoke(small_app, ["serve", "it", "--trust"]).exit_code == 2
    shown = CliRunner().invoke(small_app, ["serve", "--help"]).stdout
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
        self, configure: Configure, invoke: Invoke, words: list[str]
    ) -> None:
        file = configure(time={"command": "no-such-program-anywhere", "timout": 5})
        result = invoke(*words, "--json")
        warning = f"Warning: {file}: server 'time': the key 'timout' means nothing here; did you mean 'timeout'?\n"
        assert result.stderr.count(warning) == 1
        assert "Warning" not in result.stdout


@pytest.mark.parametrize("words", [["list"], ["doctor"], ["watch", "--once"]], ids=" ".join)
def test_what_is_suggested_without_servers_names_the_same_file(
    words: list[str], home: Path, tmp_path: Path, invoke: Invoke
) -> None:
    file = tmp_path / "b.json"
    file.write_text("{}")
    result = invoke(*words, "--config", file)
    assert f"gaia mcp add --config {file} time 'uvx mcp-server-time'" in result.output.replace("\n", "")


def test_names_of_servers_are_completed_without_a_word(configure: Configure, capfd: pytest.CaptureFixture[str]) -> None:
    file = configure(time={"command": "x", "timout": 5}, timer={"command": "x"}, git={"command": "x"})
    assert complete_name("ti") == ["time", "timer"]
    file.write_text("broken")
    assert complete_name("ti") == []
    assert capfd.readouterr() == ("", "")


def test_completion_offers_no_names_that_a_shell_would_act_upon(tmp_path: Path) -> None:
    servers = {name: {"command": "x"} for name in ("good", "g;touch pwned", "g$(id)", "g`id`", "-g", "g h", "g\x1b[2J")}
    (tmp_path / "mcp_servers.json").write_text(json.dumps({"mcpServers": servers}))
    assert complete_name("g") == complete_name("") == ["good"]


class TestNames:
    def test_an_unknown_one_is_told_with_the_file_that_was_read(self, configure: Configure) -> None:
        file = configure(time={"command": "x"})
        with pytest.raises(CommandFailed, match="did you mean 'time'") as caught:
            entry_of(MCPConfig(file), "tme")
        assert caught.value.exit_code == USAGE
        assert f" in {file}" in caught.value.message

    def test_what_the_command_says_counts_more_than_the_entry(self, configure: Configure) -> None:
        servers = MCPConfig(configure(it={"command": "x", "timeout": 5}))
        with pytest.raises(ConfigError, match="timeout"):
            make_client("it", servers, Options(), timeout="soon")
        assert make_client("it", servers, Options(), timeout=7).state is ServerState.CREATED

    def test_an_entry_that_cannot_be_used_is_an_error_of_the_configuration(self, configure: Configure) -> None:
        file = configure(it={"args": []})
        with pytest.raises(ConfigError, match="command: missing") as refusal:
            make_client("it", MCPConfig(file), Options())
        assert refusal.value.message.startswith(f"{file}: server 'it'")


class TestConnected:
    def test_the_server_is_stopped_when_the_command_fails(
        self, configure: Configure, fault_server: FaultServer
    ) -> None:
        servers = MCPConfig(configure(it=fault_server() | {"disabled": True}))
        clients: list[MCPClient] = []

        def use() -> None:
            with connected("it", Options(), servers) as client:
                clients.append(client)
                assert client.is_connected()
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            use()
        assert not clients[0].is_connected()

    def test_one_that_does_not_start_comes_with_the_next_step(self, configure: Configure) -> None:
        servers = MCPConfig(configure(it={"command": "no-such-program-anywhere"}))
        with (
            pytest.raises(CommandFailed, match="no-such-program-anywhere") as caught,
            connected("it", Options(), servers),
        ):
            pytest.fail("it has no client")
        assert caught.value.hint == "`gaia mcp test-client it` shows where it fails."


@pytest.mark.parametrize("options", [Options(json=True), Options(debug=True), Options()])
def test_nothing_is_drawn_where_nobody_looks(options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    with waiting_for("Starting it", options) as show:
        show("Examining it")
    assert capsys.readouterr() == ("", "")


def test_a_name_that_no_file_has_is_said_with_each_file_that_was_read(
    tmp_path: Path, configure: Configure, invoke: Invoke
) -> None:
    user_file, local = configure(mine={"command": "x"}), tmp_path / "mcp_servers.json"
    local.write_text("{}")
    assert invoke("remove", "it").stderr == (
        f"Error: there is no server named 'it' in {local} or {user_file}\nKnown names: mine\n"
    )
    invoke("remove", "mine")
    assert f"No servers are configured in {local} or {user_file}\n" in invoke("list", "--no-connect").stdout
