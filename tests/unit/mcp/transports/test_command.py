"""From a configured command to a program: split without a shell, and found where the server would look."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import StartFailed
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.command import argument_vector, split_command
from tests.unit.mcp.transports.conftest import Json, Listener, posix


class TestCommandLine:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("uvx mcp-server-time", ["uvx", "mcp-server-time"]),
            ("  npx   -y  server  ", ["npx", "-y", "server"]),
            ("npx server '/my files' \"/other files\"", ["npx", "server", "/my files", "/other files"]),
            (r"server /my\ files", ["server", "/my files"]),
            ("server ''", ["server", ""]),
            ("server --flag=#1 #2", ["server", "--flag=#1", "#2"]),
            ("server $HOME *.txt {a,b} ~", ["server", "$HOME", "*.txt", "{a,b}", "~"]),
            # Quoted or escaped, an operator is an argument like any other.
            ("server --separator '|' --end \";\"", ["server", "--separator", "|", "--end", ";"]),
            ("server --url='http://host/?a=1&b=2'", ["server", "--url=http://host/?a=1&b=2"]),
            (r"server a\|b", ["server", "a|b"]),
            ("server '$(date)' '`date`'", ["server", "$(date)", "`date`"]),
            (r'server "\$(date)"', ["server", r"\$(date)"]),
            ("""server "it's; fine" 'say "x"; ok'""", ["server", "it's; fine", 'say "x"; ok']),
        ],
    )
    @posix
    def test_it_is_split_as_a_shell_would(self, line: str, words: list[str]) -> None:
        assert argument_vector(line, None) == words

    @pytest.mark.parametrize(
        ("line", "operator"),
        [
            ("cd /srv && server", "&&"),
            ("server | tee log", "|"),
            ("server|tee", "|"),
            ("server; echo", ";"),
            ("server > log", ">"),
            ("server 2>&1", ">&"),
            ("server < input", "<"),
            ("server &", "&"),
            ("(server)", "("),
            ("server http://host/?a=1&b=2", "&"),
            ("server $(date)", "$("),
            ('server "$(date)"', "$("),
            ("server `date`", "`"),
            ('server "`date`"', "`"),
            ("server '#' | tee", "|"),
            ("server #1 | tee", "|"),
            ("server 'a' | 'b'", "|"),
        ],
    )
    def test_what_needs_a_shell_is_refused_with_the_form_that_does_not(self, line: str, operator: str) -> None:
        with pytest.raises(ValueError, match="without a shell") as refusal:
            StdioTransport(line)
        message = str(refusal.value)
        assert f"contains {operator!r}" in message
        assert '"args": [...]' in message
        assert json.loads(message.partition("name it: ")[2]) == {"command": "sh", "args": ["-c", line]}

    @pytest.mark.parametrize("line", ["", "   ", "\t\n"])
    def test_an_empty_one_is_refused(self, line: str) -> None:
        with pytest.raises(ValueError, match="the command is empty"):
            StdioTransport(line)

    @pytest.mark.parametrize("line", ["server 'unbalanced", 'server "', "server \\"])
    @posix
    def test_an_unbalanced_one_is_refused(self, line: str) -> None:
        with pytest.raises(ValueError, match="cannot be split into words"):
            StdioTransport(line)

    def test_with_args_nothing_is_split_and_nothing_is_forbidden(self) -> None:
        assert argument_vector("my server", ["a b", "|", "$(x)"]) == ["my server", "a b", "|", "$(x)"]
        assert argument_vector("my server", []) == ["my server"]

    @given(st.text())
    def test_no_line_makes_it_crash(self, line: str) -> None:
        try:
            words = split_command(line)
        except ValueError:
            return
        assert words


class TestNotFound:
    @pytest.mark.parametrize(
        ("command", "reason"),
        [
            ("no-such-server-anywhere", "was not found on the"),
            ("./no/such/server", "does not exist"),
            ("/no/such/server", "/no/such/server does not exist"),
            ("~/server", "server does not exist"),
        ],
    )
    def test_a_command_that_is_not_there_is_no_connection_and_the_log_says_why(
        self, command: str, reason: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        transport = StdioTransport(command, [])
        assert transport.connect() is False
        assert transport.is_connected() is False
        assert reason in caplog.text

    def test_an_error_about_the_path_shows_only_its_beginning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", os.pathsep.join(f"/directory-{number}" for number in range(100)))
        with pytest.raises(StartFailed) as failure:
            StdioTransport("my-server").open(Listener(), "test")
        assert str(failure.value) == (
            "the command 'my-server' was not found on the server's PATH "
            "(/directory-0, /directory-1, /directory-2, …); install it, or give its full path as the command"
        )

    @posix
    def test_a_file_that_is_not_executable_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "server").write_text("#!/bin/sh\n")
        with pytest.raises(StartFailed, match=r"server is not executable"):
            StdioTransport(str(tmp_path / "server"), []).open(Listener(), "test")


@pytest.mark.process
@posix
class TestFinding:
    """Each program prints the directory it was started in and its own name, as an answer to the first request."""

    PROGRAM = f"""#!{sys.executable} -IS
import json, os, sys
sys.stdin.readline()
print(json.dumps({{"jsonrpc": "2.0", "id": 1, "result": {{"cwd": os.getcwd(), "program": sys.argv[0]}}}}), flush=True)
sys.stdin.read()
"""

    @pytest.fixture
    def make_program(self) -> Callable[[Path], Path]:
        def make(path: Path) -> Path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.PROGRAM)
            path.chmod(0o700)
            return path

        return make

    def ask(self, transport: StdioTransport) -> Json:
        assert transport.connect()
        try:
            return dict(transport.send_request("where")["result"])
        finally:
            transport.disconnect()

    def test_on_our_path(
        self, make_program: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = make_program(tmp_path / "bin" / "my-server")
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
        assert self.ask(StdioTransport("my-server"))["program"] == str(program)

    def test_on_the_path_that_is_configured_for_the_server(
        self, make_program: Callable[[Path], Path], tmp_path: Path
    ) -> None:
        program = make_program(tmp_path / "bin" / "my-server")
        assert self.ask(StdioTransport("my-server", env={"PATH": str(program.parent)}))["program"] == str(program)

    def test_a_relative_entry_of_the_path_starts_where_we_are(
        self, make_program: Callable[[Path], Path], tmp_path: Path
    ) -> None:
        program = make_program(tmp_path / "node_modules" / "my-server")
        (tmp_path / "elsewhere").mkdir()
        transport = StdioTransport("my-server", env={"PATH": "node_modules"}, cwd=str(tmp_path / "elsewhere"))
        assert self.ask(transport)["program"] == str(program)

    def test_in_the_home_directory(self, make_program: Callable[[Path], Path], home: Path) -> None:
        program = make_program(home / "bin" / "my-server")
        assert self.ask(StdioTransport("~/bin/my-server"))["program"] == str(program)

    @pytest.mark.parametrize("cwd", ["{tmp_path}/project", "project", "~/../project"])
    def test_relative_to_the_working_directory(
        self, make_program: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cwd: str
    ) -> None:
        (tmp_path / "home").mkdir()
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        program = make_program(tmp_path / "project" / "bin" / "my-server")
        answer = self.ask(StdioTransport("./bin/my-server", cwd=cwd.format(tmp_path=tmp_path)))
        assert answer["cwd"] == str(tmp_path / "project")
        assert os.path.samefile(answer["program"], program)
