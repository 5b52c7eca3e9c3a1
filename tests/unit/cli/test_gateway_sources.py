"""What a gateway reads again, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from gaia.cli.gateway_sources import GatewaySources
from gaia.cli.options import Options
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import ConfigError
from gaia.serving.options import UnsafeOptions


class FakeGateway:
    """Notes what is applied."""

    def __init__(self) -> None:
        self.applied: list[Any] = []
        self.manager = self

    def apply(self, config: MCPConfig, *, timeout: float) -> str:
        assert timeout > 0
        self.applied.append(list(config.get_servers()))
        return "changes"

    def change_clients_soon(self, clients: Any) -> None:
        self.applied.append(list(clients.clients))


@pytest.fixture
def file(home: Path, tmp_path: Path) -> Path:
    file = tmp_path / "servers.json"
    file.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    return file


def sources_of(file: Path, clients: Path | None = None, *, is_local: bool = True) -> GatewaySources:
    return GatewaySources(Options(config_file=file), MCPConfig(file), clients, is_local=is_local)


def test_both_files_are_watched_and_applied(file: Path, tmp_path: Path) -> None:
    clients = tmp_path / "clients.json"
    clients.write_text('{"clients": {}}')
    gateway = FakeGateway()
    servers, who = sources_of(file, clients).of(cast("Any", gateway))

    assert list(servers.files()) == [file]
    assert list(who.files()) == [clients]
    file.write_text('{"mcpServers": {"b": {"command": "x"}}}')
    applied = [source.load() for source in (servers, who)]
    assert gateway.applied == []
    assert [apply() for apply in applied] == ["changes", None]
    assert gateway.applied == [["b"], []]


def test_an_entry_that_cannot_be_used_is_refused_before_anything_is_changed(file: Path) -> None:
    gateway = FakeGateway()
    (servers,) = sources_of(file).of(cast("Any", gateway))
    file.write_text('{"mcpServers": {"a": {"command": 3}, "off": {"disabled": true, "command": 3}}}')

    with pytest.raises(ConfigError, match="'a'"):
        servers.load()
    assert gateway.applied == []


def test_a_file_that_is_gone_stops_no_server(file: Path) -> None:
    (servers,) = sources_of(file).of(cast("Any", FakeGateway()))
    file.unlink()
    with pytest.raises(ConfigError, match="there is no such file"):
        servers.load()


def test_a_project_that_has_changed_has_to_be_trusted_again(home: Path, tmp_path: Path) -> None:
    gateway = FakeGateway()
    # The file of the working directory, which appears while the gateway runs.
    (servers,) = GatewaySources(Options(), MCPConfig(trust_local=False), None, is_local=True).of(cast("Any", gateway))
    (tmp_path / "mcp_servers.json").write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}}))

    assert tmp_path / "mcp_servers.json" in list(servers.files())
    with pytest.raises(ConfigError, match="gaia mcp trust"):
        servers.load()


def test_clients_may_not_be_changed_so_that_everyone_gets_in(file: Path, tmp_path: Path) -> None:
    clients = tmp_path / "clients.json"
    clients.write_text('{"clients": {}}')
    _, who = sources_of(file, clients, is_local=False).of(cast("Any", FakeGateway()))
    clients.write_text('{"anonymous": "everything"}')

    with pytest.raises(UnsafeOptions, match="without a token"):
        who.load()
