"""`gaia mcp add` and `gaia mcp remove`."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def saved(home: Path) -> Callable[[], dict[str, Any]]:
    def read() -> dict[str, Any]:
        return json.loads((home / ".gaia" / "mcp_servers.json").read_text())["mcpServers"]

    return read


def test_a_command_in_quotes_is_split_as_a_shell_would(
    invoke: Callable[..., Any], saved: Callable[[], dict[str, Any]], home: Path
) -> None:
    result = invoke("add", "files", "npx -y 'server files' /tmp")

    assert result.exit_code == 0
    assert str(home / ".gaia" / "mcp_servers.json") in result.stdout
    assert saved() == {"files": {"command": "npx", "args": ["-y", "server files", "/tmp"]}}


def test_words_after_two_dashes_are_taken_as_they_are(
    invoke: Callable[..., Any], saved: Callable[[], dict[str, Any]]
) -> None:
    invoke("add", "git", "--", "mcp-server-git", "--repository", "a b", "--json", "|")

    assert saved() == {"git": {"command": "mcp-server-git", "args": ["--repository", "a b", "--json", "|"]}}


def test_one_word_after_two_dashes_is_a_program_with_blanks_in_its_name(
    invoke: Callable[..., Any], saved: Callable[[], dict[str, Any]]
) -> None:
    invoke("add", "mine", "--", "/opt/My Server/run")

    assert saved() == {"mine": {"command": "/opt/My Server/run", "args": []}}


def test_several_words_need_no_quotes(invoke: Callable[..., Any], saved: Callable[[], dict[str, Any]]) -> None:
    invoke("add", "time", "uvx", "mcp-server-time")

    assert saved() == {"time": {"command": "uvx", "args": ["mcp-server-time"]}}


def test_options_become_keys(invoke: Callable[..., Any], saved: Callable[[], dict[str, Any]], tmp_path: Path) -> None:
    invoke("add", "time", "--env", "TZ=UTC", "--env", "A=b=c", "--cwd", "sub", "--timeout", "2.5", "uvx x")

    assert saved() == {
        "time": {
            "command": "uvx",
            "args": ["x"],
            "env": {"TZ": "UTC", "A": "b=c"},
            "cwd": str(tmp_path / "sub"),
            "timeout": 2.5,
        }
    }


def test_a_server_is_added_with_a_sandbox(invoke: Callable[..., Any], saved: Callable[[], dict[str, Any]]) -> None:
    invoke("add", "time", "--sandbox", "uvx mcp-server-time")

    assert saved() == {"time": {"command": "uvx", "args": ["mcp-server-time"], "sandbox": True}}


def test_the_file_is_private_and_the_one_of_the_project_is_preferred(
    invoke_json: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "mcp_servers.json").write_text("{}")
    document = invoke_json("add", "time", "x")
    file = Path(document["file"])

    assert document == {"name": "time", "file": str(tmp_path / "mcp_servers.json"), "replaced": False}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_name_that_exists_is_refused_unless_forced(
    invoke: Callable[..., Any], saved: Callable[[], dict[str, Any]]
) -> None:
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
    ],
)
def test_what_cannot_be_added_is_a_usage_error_and_saves_nothing(
    words: list[str], message: str, invoke: Callable[..., Any], home: Path
) -> None:
    result = invoke("add", *words)

    assert result.exit_code == 2
    assert message in result.stderr
    assert "secret-without-a-name" not in result.stderr
    assert not (home / ".gaia" / "mcp_servers.json").exists()


def test_remove_takes_a_server_out_of_its_file(
    configure: Callable[..., Path], invoke_json: Callable[..., Any], saved: Callable[[], dict[str, Any]]
) -> None:
    file = configure(time={"command": "x"}, git={"command": "y"})

    assert invoke_json("remove", "time") == {"name": "time", "file": str(file)}
    assert saved() == {"git": {"command": "y"}}


def test_remove_says_where_it_was(configure: Callable[..., Path], invoke: Callable[..., Any]) -> None:
    file = configure(time={"command": "x"})

    assert invoke("remove", "time").stdout == f"Removed 'time', which was in {file}\n"


class TestUrls:
    def test_a_server_that_runs_elsewhere_has_a_url(
        self, invoke: Callable[..., Any], saved: Callable[[], dict[str, Any]]
    ) -> None:
        token = "Authorization: Bearer ${TOKEN}"
        result = invoke("add", "web", "--url", "https://x.org/mcp", "--header", token, "--header", "X-A:b:c")

        assert result.exit_code == 0, result.output
        assert saved() == {
            "web": {"url": "https://x.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}", "X-A": "b:c"}}
        }

    def test_a_url_in_place_of_a_command_will_do(
        self, invoke: Callable[..., Any], saved: Callable[[], dict[str, Any]]
    ) -> None:
        invoke("add", "web", "https://x.org/mcp", "--timeout", "5")

        assert saved() == {"web": {"url": "https://x.org/mcp", "timeout": 5.0}}

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
    def test_what_does_not_go_together_is_refused(self, invoke: Callable[..., Any], words: Any, said: str) -> None:
        result = invoke("add", "web", *words)

        assert result.exit_code == 2
        assert said in " ".join(result.output.replace("│", " ").split())
        assert "sesame" not in result.output
