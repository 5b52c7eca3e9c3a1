"""From a configured command to a program: split without a shell, and found where the server would look."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.client import MCPClient
from gaia.mcp.errors import StartFailed
from gaia.mcp.transports import StdioTransport
from gaia.mcp.transports.command import (
    INHERITED,
    argument_vector,
    is_install_setting,
    server_environment,
    split_command,
    withheld,
)
from gaia.mcp.transports.fork_server import MARK_VARIABLE
from tests.unit.mcp.transports.conftest import SECRET, Json, Listener, Start, call, posix


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


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have an environment of these variables alone."""

    def replace(**variables: str) -> None:
        for name in set(os.environ) - set(variables):
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return replace


class TestEnvironment:
    def environment_of(self, transport: StdioTransport) -> dict[str, str]:
        environment: dict[str, str] = call(transport, "env")
        return environment

    @pytest.fixture(autouse=True)
    def our_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OUR_SECRET", SECRET)
        monkeypatch.setenv("LANG", "C.UTF-8")
        monkeypatch.setenv("TERM", "dumb")

    def test_a_server_inherits_what_programs_need_and_none_of_our_secrets(self, start: Start) -> None:
        environment = self.environment_of(start())
        assert SECRET not in environment.values()
        for name in ("PATH", "HOME", "LANG", "TERM"):
            assert environment[name] == os.environ[name]
        assert {name for name in environment if not is_install_setting(name)} <= {*INHERITED, MARK_VARIABLE}

    def test_proxies_and_package_indexes_reach_it_and_their_passwords_no_output(
        self, start: Start, fault_server: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A server that is installed when it starts needs them, and prints them when it cannot be."""
        proxy, index = f"http://me:{SECRET}@proxy.example:3128", f"https://me:{SECRET}@index.example/simple"
        for name, value in {"HTTPS_PROXY": proxy, "no_proxy": "localhost", "UV_INDEX_URL": index}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("UV_PUBLISH_TOKEN", SECRET)
        said = f"cannot reach {proxy} for {index}: {SECRET}"
        client = MCPClient("it", StdioTransport(**fault_server(exit_at_start={"code": 1, "stderr": said})))
        assert not client.connect()
        assert "http://***@proxy.example:3128 for https://***@index.example" in str(client.last_error)
        assert SECRET not in str(client.last_error)
        environment = self.environment_of(start())
        assert (environment["HTTPS_PROXY"], environment["no_proxy"]) == (proxy, "localhost")
        assert environment["UV_INDEX_URL"] == index
        assert "UV_PUBLISH_TOKEN" not in environment

    def test_it_inherits_everything_if_that_is_asked_for(self, start: Start) -> None:
        environment = self.environment_of(start({"inherit_env": True}))
        assert os.environ.items() - {("PWD", "")} <= environment.items()

    def test_what_is_configured_comes_on_top(self, start: Start) -> None:
        environment = self.environment_of(start({"env": {"API_TOKEN": SECRET, "LANG": "tlh"}}))
        assert (environment["API_TOKEN"], environment["LANG"]) == (SECRET, "tlh")

    def test_exported_shell_functions_are_code_and_stay_here(
        self, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "() { echo pwned; }")
        assert "TERM" not in self.environment_of(start())


class TestInstallSettings:
    """What `uvx`, `npx` and others need to be installed in a company."""

    @pytest.mark.parametrize(
        "name",
        [
            *("HTTP_PROXY", "https_proxy", "ALL_PROXY", "no_proxy", "Https_Proxy", "GLOBAL_AGENT_HTTP_PROXY"),
            *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
            *("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_COMPANY_USERNAME", "UV_CACHE_DIR", "UV_OFFLINE"),
            *("UV_KEYRING_PROVIDER", "UV_NATIVE_TLS", "UV_PYTHON_INSTALL_MIRROR"),
            *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CONFIG_FILE", "PIP_PROXY"),
            *("npm_config_registry", "NPM_CONFIG_CAFILE", "npm_config_@company:registry", "npm_config_https_proxy"),
        ],
    )
    def test_these_are_inherited(self, name: str) -> None:
        assert is_install_setting(name)

    @pytest.mark.parametrize(
        "name",
        [
            *("UV_PUBLISH_TOKEN", "UV_PUBLISH_PASSWORD", "UV_INDEX_COMPANY_PASSWORD", "UV_GITHUB_TOKEN"),
            *("npm_config__auth", "npm_config__authToken", "NPM_CONFIG__PASSWORD", "npm_config_otp", "npm_config_key"),
            *("npm_config_//registry.example/:_authToken", "PIP_PASSWORD", "AUTH_PROXY", "PROXY_PASSWORD"),
            # A server would change the application's own environment, or be given its secrets.
            *("UV_PROJECT_ENVIRONMENT", "UV_PROJECT", "UV_WORKING_DIRECTORY", "UV_ENV_FILE", "PIP_TARGET"),
            *(
                "npm_config_call",
                "npm_config_package",
                "npm_config_workspace",
                "NPM_CONFIG_GLOBAL",
                "npm_config_location",
            ),
            *("npm_config_node-options", "npm_config_local_prefix", "npm_config_script_shell", "npm_config_dry_run"),
            *("NODE_OPTIONS", "npm_config_node_options", "PYTHONPATH", "UV_", "PROXY", "VIRTUAL_ENV"),
        ],
    )
    def test_these_are_not(self, name: str) -> None:
        assert not is_install_setting(name)

    def test_what_was_not_inherited_can_be_told_with_what_installs_packages_first(
        self, only: Callable[..., None]
    ) -> None:
        only(PATH="/bin", PWD="/", OUR_SECRET="s", UV_PUBLISH_TOKEN="s", HTTP_PROXY="p", A="()", CONFIGURED="c")
        assert withheld({"CONFIGURED": "x"}) == ["UV_PUBLISH_TOKEN", "A", "OUR_SECRET"]

    def test_an_exported_shell_function_is_withheld_here_too(self, only: Callable[..., None]) -> None:
        only(HTTP_PROXY="() { echo pwned; }")
        assert server_environment(None, inherit_all=False) == {}
        assert withheld(None) == ["HTTP_PROXY"]


class TestSpellings:
    """Programs that read a variable in two spellings choose one: a configured value must not lose."""

    def test_of_a_configured_proxy_no_other_spelling_is_inherited(self, only: Callable[..., None]) -> None:
        only(https_proxy="http://ours", HTTP_PROXY="http://ours", npm_config_registry="ours", home="kept", HOME="/")
        configured = {"HTTPS_PROXY": "", "NPM_CONFIG_REGISTRY": "theirs"}
        for inherit_all in (False, True):
            environment = server_environment(configured, inherit_all=inherit_all)
            assert environment == {
                **({"home": "kept"} if inherit_all else {}),
                "HOME": "/",
                "HTTP_PROXY": "http://ours",
                **configured,
            }

    @pytest.mark.skipif(os.name == "nt", reason="there, the environment itself has one spelling")
    def test_both_spellings_are_inherited_as_they_are(self, only: Callable[..., None]) -> None:
        only(https_proxy="a", HTTPS_PROXY="b")
        assert server_environment(None, inherit_all=False) == {"https_proxy": "a", "HTTPS_PROXY": "b"}

    def test_on_windows_all_spellings_are_one(self, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
        only(PATH="ours", SYSTEMROOT="C:\\Windows")
        monkeypatch.setattr("gaia.mcp.transports.command._ANY_SPELLING", True)
        assert server_environment({"Path": "theirs"}, inherit_all=True) == {
            "Path": "theirs",
            "SYSTEMROOT": "C:\\Windows",
        }


class TestServerEnvironment:
    def test_what_is_not_set_here_is_not_set_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in os.environ:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", "")
        assert server_environment(None, inherit_all=False) == {"HOME": ""}

    def test_what_is_configured_counts_whatever_it_looks_like(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "dumb")
        assert server_environment({"TERM": "() { :; }"}, inherit_all=False)["TERM"] == "() { :; }"

    @pytest.mark.parametrize("inherit_all", [False, True])
    def test_our_own_environment_stays_as_it_is(self, inherit_all: bool) -> None:
        before = dict(os.environ)
        environment = server_environment({"PATH": "/server/bin"}, inherit_all=inherit_all)
        environment["HOME"] = "/elsewhere"
        assert dict(os.environ) == before
