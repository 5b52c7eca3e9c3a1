"""`gaia mcp add`, `remove`, `enable` and `disable`."""

import json
import shlex
import stat
import sys
from pathlib import Path

import pytest

from gaia.mcp.tools.pins import Pin, pins_in
from tests.unit.cli.fixture_types import Configure, Invoke, Json, Saved, Told


@pytest.fixture
def saved(home: Path) -> Saved:
    def read() -> Json:
        return json.loads((home / ".gaia" / "mcp_servers.json").read_text())["mcpServers"]

    return read


def test_the_file_is_named_and_private_and_the_one_of_the_project_is_preferred(
    invoke: Invoke, invoke_json: Invoke, home: Path, tmp_path: Path
) -> None:
    assert str(home / ".gaia" / "mcp_servers.json") in invoke("add", "time", "x").stdout
    file = tmp_path / "mcp_servers.json"
    file.write_text("{}")
    assert invoke_json("add", "git", "x") == {"name": "git", "file": str(file), "replaced": False}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_working_directory_is_absolute(invoke: Invoke, saved: Saved, tmp_path: Path) -> None:
    invoke("add", "it", "--cwd", "sub", "x")
    assert saved()["it"]["cwd"] == str(tmp_path / "sub")


@pytest.mark.parametrize(
    ("words", "entry"),
    [
        # In quotes, as a shell would split it; after two dashes, as it is; or as several words.
        (["npx -y 'server files' /tmp"], {"command": "npx", "args": ["-y", "server files", "/tmp"]}),
        (["--", "git", "-C", "a b", "--json", "|"], {"command": "git", "args": ["-C", "a b", "--json", "|"]}),
        (["--", "/opt/My Server/run"], {"command": "/opt/My Server/run", "args": []}),
        (["--", "/opt/My Server/run", "-v"], {"command": "/opt/My Server/run", "args": ["-v"]}),
        (["uvx", "mcp-server-time"], {"command": "uvx", "args": ["mcp-server-time"]}),
        (["--sandbox", "uvx x"], {"command": "uvx", "args": ["x"], "sandbox": True}),
        (["x", "--env", "TZ=U", "--env", "A=b=c"], {"command": "x", "args": [], "env": {"TZ": "U", "A": "b=c"}}),
        (["x", "--timeout", "2.5"], {"command": "x", "args": [], "timeout": 2.5}),
        (["https://x.org/mcp", "--timeout", "5"], {"url": "https://x.org/mcp", "timeout": 5.0}),
        (
            ["--url", "https://x", "--header", "Authorization: Bearer ${TOKEN}", "--header", "X-A:b:c"],
            {"url": "https://x", "headers": {"Authorization": "Bearer ${TOKEN}", "X-A": "b:c"}},
        ),
    ],
)
def test_words_and_options_become_an_entry(words: list[str], entry: Json, invoke: Invoke, saved: Saved) -> None:
    invoke("add", "it", *words)
    assert saved() == {"it": entry}


def test_a_name_that_exists_is_refused_unless_forced(invoke: Invoke, saved: Saved) -> None:
    invoke("add", "time", "old")
    refused = invoke("add", "time", "new")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert saved()["time"]["command"] == "old"
    assert invoke("add", "time", "new", "--force").exit_code == 0
    assert saved()["time"]["command"] == "new"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["time", "a | b"], "started without a shell"),
        (["time", "'open"], "cannot be split"),
        (["time", ""], "the command is empty"),
        (["time", "--", ""], "command: missing"),
        (["", "x"], "name"),
        (["time", "--timeout", "0", "x"], "timeout"),
        (["time", "--env", "secret-without-a-name", "x"], "expected KEY=VALUE"),
        (["time"], "command"),
        (["git", "server", "--timeout"], "--timeout"),
    ],
)
def test_what_cannot_be_added_is_a_usage_error_and_saves_nothing(
    words: list[str], message: str, refused: Told, home: Path
) -> None:
    error = refused("add", *words)
    assert message in error
    assert "secret-without-a-name" not in error
    assert not (home / ".gaia" / "mcp_servers.json").exists()


def test_remove_takes_a_server_out_of_its_file(
    configure: Configure, invoke: Invoke, invoke_json: Invoke, saved: Saved
) -> None:
    file = configure(time={"command": "x"}, git={"command": "y"}, more={"command": "z"})
    document = invoke_json("remove", "time")
    assert document == {"name": "time", "file": str(file), "files": [str(file)], "still_in": None}
    assert invoke("remove", "more").stdout == f"Removed 'more' from {file}\n"
    assert saved() == {"git": {"command": "y"}}


class TestRemovingFromTwoFiles:
    """A server that the user's file and the project's file both have."""

    @pytest.fixture
    def files(self, configure: Configure, tmp_path: Path) -> tuple[Path, Path]:
        local = tmp_path / "mcp_servers.json"
        local.write_text(json.dumps({"mcpServers": {"time": {"command": "local"}}}))
        return configure(time={"command": "global"}), local

    def test_the_one_that_counts_is_removed_and_the_other_one_named(
        self, files: tuple[Path, Path], invoke: Invoke, invoke_json: Invoke
    ) -> None:
        of_user, of_project = files
        before = of_user.read_bytes(), of_project.read_bytes()
        said = invoke("remove", "time").stdout
        assert json.loads(of_project.read_text()) == {"mcpServers": {}}
        assert of_user.read_bytes() == before[0]
        assert f"Removed 'time' from {of_project}\n" in said
        assert f"{of_user} has a server 'time' too, which counts now; --everywhere removes it as well" in said

        of_project.write_bytes(before[1])
        for file, still_in in ((str(of_project), str(of_user)), (str(of_user), None)):
            removed = {"name": "time", "file": file, "files": [file], "still_in": still_in}
            assert invoke_json("remove", "time") == removed

    def test_it_is_removed_from_both_if_that_is_wanted(self, files: tuple[Path, Path], invoke_json: Invoke) -> None:
        of_user, of_project = files
        document = invoke_json("remove", "time", "--everywhere")
        assert (document["files"], document["still_in"]) == ([str(of_user), str(of_project)], None)
        assert [json.loads(file.read_text()) for file in files] == [{"mcpServers": {}}] * 2

    def test_what_was_approved_of_it_is_forgotten_for_each_file(
        self, files: tuple[Path, Path], invoke_json: Invoke
    ) -> None:
        _, of_project = files
        pins = [pins_in(file, "time") for file in files]
        for each in pins:
            each.approve({"add": Pin("0" * 64, {})})

        document = invoke_json("remove", "time")
        assert document["files"] == [str(of_project), str(pins[0].file)]
        assert [each.read() is None for each in pins] == [False, True]
        invoke_json("remove", "time")
        assert pins[0].read() is None


def test_an_entry_that_cannot_be_used_is_removed_and_replaced_like_any_other(
    configure: Configure, invoke: Invoke, saved: Saved
) -> None:
    configure(time="x", git=5)  # type: ignore[arg-type]
    assert invoke("add", "time", "x").exit_code == 2
    assert invoke("add", "time", "x", "--force").exit_code == 0
    assert invoke("remove", "git").exit_code == 0
    assert saved() == {"time": {"command": "x", "args": []}}


class TestNamedFiles:
    def test_add_makes_a_file_that_does_not_exist(self, output: Told, tmp_path: Path, home: Path) -> None:
        file = tmp_path / "team" / "new.json"
        assert str(file) in output("add", "--config", file, "time", "x")
        assert json.loads(file.read_text()) == {"mcpServers": {"time": {"command": "x", "args": []}}}
        assert list(home.iterdir()) == []

    def test_a_missing_extra_is_said(self, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "httptools", None)
        monkeypatch.setattr("gaia.runtime.extras.missing", lambda *_: "httptools, which is not installed")
        result = invoke("add", "it", "http://example.com/mcp")
        assert (result.exit_code, result.stderr) == (
            0,
            "Warning: a server over HTTP needs httptools, which is not installed\n",
        )

    @pytest.mark.parametrize(
        "words",
        [
            *(["remove", "time"], ["enable", "time"], ["disable", "time"], ["list"], ["tools", "time"], ["bench"]),
            *(["call", "time", "now"], ["test-client", "time"], ["doctor"], ["watch", "--once"], ["approve", "time"]),
            *(["resources", "time"], ["read", "time", "x:y"], ["prompts", "time"], ["prompt", "time", "p"]),
            *(["login", "time"], ["logout", "time"], ["gateway"], ["dashboard"], ["bench", "--server=a", "--tool=b"]),
            *(["gateway", "--print-client-config=claude"], ["list", "http://127.0.0.1:9/mcp"], ["trust"]),
        ],
    )
    def test_for_other_commands_that_is_a_usage_error_whether_they_read_it_or_not(
        self, refused: Told, tmp_path: Path, words: list[str]
    ) -> None:
        file = tmp_path / "typo.json"
        command, *rest = words
        for error in (refused(command, "--config", file, *rest), refused("--config", file, *words)):
            assert f"{file}: there is no such file" in error
            assert f"gaia mcp add --config {file} NAME COMMAND" in error
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give the command that starts the server, or --url"),
        (["--url", "https://x", "run"], "a command makes no sense together with --url"),
        (["--url", "https://x", "--env", "A=b"], "--env makes no sense together with a URL"),
        (["--url", "https://x", "--cwd", "a"], "--cwd makes no sense together with a URL"),
        (["--url", "https://x", "--sandbox"], "--sandbox makes no sense together with a URL"),
        (["run", "--header", "A: b"], "--header makes no sense together with a command"),
        (["--url", "https://x", "--header", "sesame"], "expected NAME:VALUE"),
    ],
)
def test_what_does_not_go_together_is_refused(refused: Told, words: list[str], said: str) -> None:
    error = refused("add", "web", *words)
    assert said in " ".join(error.replace("│", " ").split())
    assert "sesame" not in error


def test_what_was_saved_is_shown_without_values_of_variables_and_with_the_tools_that_are_denied(
    invoke: Invoke, saved: Saved
) -> None:
    tools = ("--allow", "read_*", "--allow", "list", "--deny", "read_secret")
    shown = invoke("add", "files", *tools, "--env", "API_TOKEN=hush-hush", "uvx 'a b'").stdout
    assert saved()["files"]["enabledTools"] == ["read_*", "list"]
    assert saved()["files"]["disabledTools"] == ["read_secret"]
    assert 'disabledTools: ["read_secret"]' in shown
    assert "  runs: uvx 'a b'" in shown
    assert "hush-hush" not in shown


OPTION, PROGRAM = "there is no option -", "there is no program named 'uvx server'"


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["git", "server", "--repository", "a b"], OPTION, "gaia mcp add git -- server --repository 'a b'"),
        (
            ["--env", "A=1", "--force", "git", "npx", "-y", "x"],
            OPTION,
            "gaia mcp add --env A=1 --force git -- npx -y x",
        ),
        (["--config", "c.json", "git", "npx", "-y"], OPTION, "gaia mcp add --config c.json git -- npx -y"),
        (["git", "uvx server", "--repository", "x"], OPTION, "gaia mcp add git -- uvx server --repository x"),
        (["git", "uvx 'my server'", "-v"], OPTION, "gaia mcp add git -- uvx 'my server' -v"),
        (["git", "don't", "-v"], OPTION, """gaia mcp add git -- 'don'"'"'t' -v"""),
        (["--repository", "x"], OPTION, "`gaia mcp add --help` shows the options."),
        (["git", "--repository=x"], OPTION, "`gaia mcp add --help` shows the options."),
        (["git", "uvx server", "--", "-v"], PROGRAM, "gaia mcp add git -- uvx server -v"),
        (["git", "--", "uvx server", "-v"], PROGRAM, "gaia mcp add git -- uvx server -v"),
        (["git", "uvx server", "more words"], PROGRAM, "gaia mcp add git -- uvx server 'more words'"),
    ],
)
def test_what_is_wrong_is_answered_with_how_to_write_the_command(
    words: list[str], said: str, hint: str, refused: Told, home: Path
) -> None:
    error = refused("add", *words)
    assert said in error
    assert error.splitlines()[-1].strip() == hint
    assert not (home / ".gaia" / "mcp_servers.json").exists()


def test_the_command_of_the_hint_is_what_was_meant(invoke: Invoke, saved: Saved) -> None:
    refused = invoke("add", "git", "server", "--repository", "a b")
    gaia, mcp, *words = shlex.split(refused.stderr.splitlines()[-1])
    assert (gaia, mcp) == ("gaia", "mcp")
    invoke(*words)
    assert saved() == {"git": {"command": "server", "args": ["--repository", "a b"]}}


class TestDisabling:
    @pytest.fixture(autouse=True)
    def files(self, configure: Configure, tmp_path: Path) -> None:
        configure(mine={"command": "x", "note": 1}, shared={"command": "global"})
        local = {"mcpServers": {"shared": {"command": "local"}}, "other": True}
        (tmp_path / "mcp_servers.json").write_text(json.dumps(local))

    def test_changes_the_file_that_counts_and_names_it_and_enabling_restores_the_entry(
        self, invoke: Invoke, saved: Saved, home: Path, tmp_path: Path
    ) -> None:
        before = saved()
        result = invoke("disable", "mine")
        assert result.stdout == f"Disabled 'mine' in {home / '.gaia' / 'mcp_servers.json'}\n"
        assert saved() == {"mine": {"command": "x", "note": 1, "disabled": True}, "shared": {"command": "global"}}
        assert invoke("enable", "mine").exit_code == 0
        assert saved() == before

        result = invoke("disable", "shared")
        local = json.loads((tmp_path / "mcp_servers.json").read_text())
        assert result.stdout == f"Disabled 'shared' in {tmp_path / 'mcp_servers.json'}\n"
        assert local == {"mcpServers": {"shared": {"command": "local", "disabled": True}}, "other": True}
        assert saved() == before

    def test_nothing_is_written_if_it_is_so_already(self, invoke: Invoke, invoke_json: Invoke, home: Path) -> None:
        file = home / ".gaia" / "mcp_servers.json"
        before = file.stat().st_mtime_ns, file.stat().st_ino
        assert "is enabled already" in invoke("enable", "mine").stdout
        assert invoke_json("enable", "mine") == {"name": "mine", "disabled": False, "file": str(file), "changed": False}
        assert (file.stat().st_mtime_ns, file.stat().st_ino) == before

    def test_an_unknown_server_is_a_usage_error(self, refused: Told) -> None:
        assert "did you mean 'mine'?" in refused("disable", "min")


class TestDoubts:
    """What cannot work as things are here is saved, and said."""

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["no-such-program mcp-server-time"], "the command 'no-such-program' was not found on the server's PATH"),
            (["--", "./no-such-file", "a"], "./no-such-file does not exist"),
            (["htp://example.com/mcp"], "htp://example.com/mcp is no address of a server: it must begin with http://"),
            (["--url", "htp://example.com/mcp"], "htp://example.com/mcp is no address of a server: it must begin"),
            (["--url", "https://"], "is no address of a server"),
        ],
    )
    def test_are_warnings(self, words: list[str], said: str, invoke: Invoke, saved: Saved) -> None:
        result = invoke("add", "it", *words)
        assert result.exit_code == 0
        assert result.stderr.startswith("Warning: ")
        assert said in result.stderr
        assert "it" in saved()

    def test_where_a_well_known_program_comes_from_is_said(
        self, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        assert "https://nodejs.org" in invoke("add", "it", "npx -y some-server").stderr

    @pytest.mark.parametrize(
        "words",
        [["--", sys.executable, "-m", "x"], ["${HERE}/server"], ["--url", "${BASE}/mcp"], ["http://[::1]:8000/mcp"]],
    )
    def test_there_are_none_about_what_works_or_is_not_known_yet(self, words: list[str], invoke: Invoke) -> None:
        assert invoke("add", "it", *words).stderr == ""
