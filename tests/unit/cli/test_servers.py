"""From the name of a server to a client of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.cli.options import Options
from gaia.cli.servers import complete_name, connected, entry_of, make_client, waiting_for
from gaia.cli.terminal import USAGE, CommandFailed
from gaia.mcp.client import MCPClient
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import ConfigError
from gaia.mcp.supervision.events import ServerState


def test_names_of_servers_are_completed(configure: Callable[..., Path], home: Path) -> None:
    configure(time={"command": "x"}, timer={"command": "x"}, git={"command": "x"})
    assert complete_name("ti") == ["time", "timer"]

    (home / ".gaia" / "mcp_servers.json").write_text("broken")
    assert complete_name("ti") == []


def test_completion_offers_no_names_that_a_shell_would_act_upon(tmp_path: Path) -> None:
    servers = {name: {"command": "x"} for name in ("good", "g;touch pwned", "g$(id)", "g`id`", "-g", "g h", "g\x1b[2J")}
    (tmp_path / "mcp_servers.json").write_text(json.dumps({"mcpServers": servers}))
    assert complete_name("g") == ["good"]
    assert complete_name("") == ["good"]


class TestNames:
    def test_an_unknown_one_is_told_with_the_file_that_was_read(self, configure: Callable[..., Path]) -> None:
        file = configure(time={"command": "x"})
        with pytest.raises(CommandFailed, match="did you mean 'time'") as caught:
            entry_of(MCPConfig(file), "tme")

        assert caught.value.exit_code == USAGE
        assert f" in {file}" in caught.value.message

    def test_what_the_command_says_counts_more_than_the_entry(self, configure: Callable[..., Path]) -> None:
        servers = MCPConfig(configure(it={"command": "x", "timeout": 5}))

        with pytest.raises(ConfigError, match="timeout"):
            make_client("it", servers, Options(), timeout="soon")
        assert make_client("it", servers, Options(), timeout=7).state is ServerState.CREATED

    def test_an_entry_that_cannot_be_used_is_an_error_of_the_configuration(
        self, configure: Callable[..., Path]
    ) -> None:
        file = configure(it={"args": []})
        with pytest.raises(ConfigError, match="command: missing") as refusal:
            make_client("it", MCPConfig(file), Options())
        assert refusal.value.message.startswith(f"{file}: server 'it'")


class TestConnected:
    def test_the_server_is_stopped_when_the_command_fails(
        self, configure: Callable[..., Path], fault_server: Callable[..., dict[str, Any]]
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

    def test_one_that_does_not_start_comes_with_the_next_step(self, configure: Callable[..., Path]) -> None:
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
    tmp_path: Path, configure: Callable[..., Path], invoke: Callable[..., Any]
) -> None:
    user_file, local = configure(mine={"command": "x"}), tmp_path / "mcp_servers.json"
    local.write_text("{}")
    assert invoke("remove", "it").stderr == (
        f"Error: there is no server named 'it' in {local} or {user_file}\nKnown names: mine\n"
    )

    invoke("remove", "mine")
    assert f"No servers are configured in {local} or {user_file}\n" in invoke("list", "--no-connect").stdout
