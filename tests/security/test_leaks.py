"""Secrets from `env`, from headers and from variables in arguments are seen by the server, and by nobody else.

What a server answers to a call is its answer, and passed on as it is; everything else that is said about it is searched
here for the three secrets: logs, spans, events, errors, status, `repr`, files, what commands print, process lists.
"""

import json
import logging
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from gaia.cli.main import app
from gaia.mcp.client import MCPClient, MCPClientManager, server_transport
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import MCPError
from gaia.mcp.supervision.events import ServerLog
from tests.recorder import Recorder
from tests.tracing import Tracing

Json = dict[str, Any]

LEAKY_SERVER = Path(__file__).parents[1] / "servers" / "leaky_server.py"

IN_ENV = "canary-in-env-4711"
IN_HEADER = "canary-in-header-4712"
IN_ARGUMENT = "canary-in-argument-4713"
CANARIES = (IN_ENV, IN_HEADER, IN_ARGUMENT)


def assert_silent(*said: object) -> None:
    for one in said:
        found = [canary for canary in CANARIES if canary in str(one)]
        assert not found, f"{found} in {str(one)[:2000]}"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", IN_ARGUMENT)
    monkeypatch.setenv("HEADER_VALUE", IN_HEADER)
    monkeypatch.setattr(server_transport, "_warned", set())


@pytest.fixture(autouse=True)
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    for record in caplog.records:
        assert_silent(record.getMessage(), vars(record))


def entry(mode: str) -> Json:
    """The configuration of the leaky server. It is told the header's value too, as one behind HTTP would be."""
    return {
        "command": sys.executable,
        "args": ["-I", str(LEAKY_SERVER), mode, "${DEPLOY_TOKEN}"],
        "type": "stdio",
        "env": {"CANARY_TOKEN": f"{IN_ENV} {IN_HEADER}"},
        "headers": {"Authorization": "Bearer ${HEADER_VALUE}"},
        "restart": {"initialDelay": 0.01, "maxDelay": 0.01},
        "pinTools": "block",
    }


@pytest.fixture
def config_file(starts_processes: None, home: Path) -> Callable[[str], Path]:
    def write(mode: str) -> Path:
        file = home / ".gaia" / "mcp_servers.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"mcpServers": {"leaky": entry(mode)}}))
        return file

    return write


def said_about(client: MCPClient) -> list[object]:
    """What a program can print about a client."""
    return [repr(client), repr(client.transport), client.last_error, repr(client.status), client.server_info]


class TestTheLibrary:
    def test_a_server_that_talks_crashes_and_comes_back(
        self, tracing: Tracing, config_file: Callable[[str], Path]
    ) -> None:
        recorder = Recorder()
        with MCPClientManager(MCPConfig(config_file("talk"))) as manager:
            manager.subscribe(recorder)
            manager.load_from_config()
            client = manager.get_client("leaky")
            assert client is not None, manager.status()
            for tool in ("echo", "error", "bad", "crash", "echo"):
                outcome = manager.call_tool(f"mcp_leaky_{tool}")
                # What the tool says itself, its content and so its `error`, reaches the caller as the server sent it.
                if "error_type" in outcome:
                    assert_silent(outcome["error"])
                assert_silent(*said_about(client), manager.status())
            for tool in ("error", "bad", "crash"):
                with pytest.raises(MCPError) as raised:
                    client.request("tools/call", {"name": tool})
                assert_silent(raised.value, repr(raised.value))
            recorder.wait_for(ServerLog)
        assert_silent(*recorder.events)
        assert len(tracing.calls) >= 5
        assert_silent(*(span.to_json() for span in tracing.all))

    @pytest.mark.process
    @pytest.mark.parametrize("mode", ["start", "handshake", "list"])
    def test_a_server_that_fails_early(self, mode: str) -> None:
        client = MCPClient.from_config("leaky", entry(mode))
        try:
            client.connect()
            assert client.last_error is not None
            assert_silent(*said_about(client))
            try:
                client.list_tools(refresh=True)
                client.request("tools/list")
            except (MCPError, RuntimeError) as error:
                assert_silent(error)
        finally:
            client.disconnect()

    def test_a_configuration_is_not_shown(self, config_file: Callable[[str], Path]) -> None:
        parsed = ServerConfig.from_dict("leaky", entry("talk"))
        assert_silent(repr(parsed), repr(MCPConfig(config_file("talk"))))

    def test_only_the_server_has_the_secrets_in_its_process(self, config_file: Callable[[str], Path]) -> None:
        """A value that the user has put into arguments is visible there, which is what the warning is about."""
        with MCPClientManager(MCPConfig(config_file("talk"))) as manager:
            manager.load_from_config()
            (status,) = manager.status()
            for process in psutil.Process().children(recursive=True):
                arguments = " ".join(process.cmdline())
                assert IN_ENV not in arguments
                assert IN_HEADER not in arguments
                assert (IN_ARGUMENT in arguments) == (process.pid == status.pid)

    def test_a_secret_in_arguments_is_warned_of_once(
        self, config_file: Callable[[str], Path], caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(2):
            with MCPClientManager(MCPConfig(config_file("talk"))) as manager:
                manager.load_from_config()
        warnings = [record for record in caplog.records if "secret_in_arguments" in record.getMessage()]
        assert len(warnings) == 1
        assert "DEPLOY_TOKEN" in warnings[0].getMessage()


@pytest.mark.slow
class TestCommands:
    @pytest.mark.parametrize(
        ("mode", "debug"),
        [("talk", []), *((mode, ["--debug"]) for mode in ("talk", "start", "handshake", "list"))],
        ids=["talk", "talk-debug", "start-debug", "handshake-debug", "list-debug"],
    )
    def test_no_command_prints_a_secret(self, mode: str, debug: list[str], config_file: Callable[[str], Path]) -> None:
        config_file(mode)
        for words in (
            ["list"],
            ["list", "--json"],
            ["list", "--no-connect"],
            ["tools", "leaky"],
            ["call", "leaky", "error"],
            ["call", "leaky", "crash", "--json"],
            ["test-client", "leaky"],
            ["test-client", "leaky", "--json"],
            ["doctor", "leaky"],
            ["doctor", "--json"],
            ["watch", "--once"],
            ["approve", "leaky"],
        ):
            result = CliRunner().invoke(app, ["mcp", *words, *debug])
            assert not isinstance(result.exception, Exception), words
            assert_silent(f"{words}: {result.output}")

    def test_an_argument_with_a_secret_is_pointed_out(self, config_file: Callable[[str], Path]) -> None:
        config_file("talk")
        result = CliRunner().invoke(app, ["mcp", "test-client", "leaky"])
        assert "DEPLOY_TOKEN" in result.stdout


def test_files_of_ours_hold_no_secrets_and_are_private(
    home: Path, config_file: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "mcp_servers.json").write_text(json.dumps({"mcpServers": {"leaky": entry("talk")}}))
    config = config_file("talk")
    for words in (["trust", "--yes"], ["approve", "leaky", "--yes"], ["tools", "leaky"]):
        CliRunner().invoke(app, ["mcp", *words])
    found = {file.name: file for file in (home / ".gaia").iterdir() if file != config}
    assert {"mcp_tools.lock.json", "mcp_trusted.json"} <= found.keys()
    for file in found.values():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert_silent(file.read_text())
