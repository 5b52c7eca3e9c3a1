"""`gaia mcp gateway` as far as it gets without serving, and its clients; `tests/gateway` runs it."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from gaia.cli.gateway import GatewaySources
from gaia.cli.options import Options
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import ConfigError
from gaia.mcp.gateway.access.clients_file import hash_of
from gaia.serving.options import UnsafeOptions
from tests.unit.cli.fixture_types import Configure, Invoke, Told


def test_what_to_paste_is_printed_and_a_name_stands_for_an_address_that_is_none(invoke: Invoke) -> None:
    shown = invoke("gateway", "--port", "99", "--print-client-config", "claude")
    entry = json.loads(shown.stdout)["mcpServers"]["gaia"]
    assert entry == {"type": "http", "url": "http://127.0.0.1:99/mcp"}
    assert "mcpServers" in shown.stderr

    words = ("gateway", "--host", "0.0.0.0", "--clients", "c.json", "--print-client-config", "cursor")
    plain = json.loads(invoke(*words).stdout)["mcpServers"]["gaia"]
    named = json.loads(invoke(*words, "--allow-host", "mcp.example.com").stdout)["mcpServers"]["gaia"]
    assert (plain["url"], named["url"]) == ("http://localhost:8765/mcp", "http://mcp.example.com:8765/mcp")
    assert "${env:GAIA_GATEWAY_TOKEN}" in named["headers"]["Authorization"]


def test_a_client_that_starts_the_gateway_gets_the_configuration_and_finds_it_without_the_path(
    invoke: Invoke, configure: Configure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = configure()
    audit = file.with_name("audit.jsonl")

    def printed() -> dict[str, Any]:
        words = ("gateway", "--stdio", "--config", file, "--audit", audit, "--print-client-config", "vscode")
        found: dict[str, Any] = json.loads(invoke(*words).stdout)["servers"]["gaia"]
        return found

    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    arguments = ["mcp", "gateway", "--stdio", "--config", str(file), "--audit", str(audit)]
    assert printed() == {"type": "stdio", "command": "gaia", "args": arguments}
    (tmp_path / "gaia").touch()
    assert printed()["command"] == str(tmp_path / "gaia")


HTTP = ("gateway", "--port", "0")


def test_nothing_is_served_beyond_this_machine_without_clients_that_need_tokens(
    refused: Told, configure: Configure, tmp_path: Path
) -> None:
    configure()
    for host in ("0.0.0.0", "::"):
        error = refused(*HTTP, "--host", host)
        assert "say with --clients who may use it" in error
        assert "add-client" in error
    clients = tmp_path / "clients.json"
    clients.write_text('{"anonymous": "everything"}')
    error = refused(*HTTP, "--host", "0.0.0.0", "--clients", clients)
    assert "lets in requests without a token" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gateway", "--stdio", "--port", "0", "--clients", "x"], "--clients, --port"),
        ([*HTTP, "--name", "a.b"], "name: must be"),
        ([*HTTP, "--clients", "c.json"], "--clients c.json"),
        (
            ["gateway", "add-client", "ci", "--profile", "ro", "--clients", "c.json"],
            "there is no profile 'ro' (write it into the file",
        ),
    ],
    ids=[
        "options for HTTP mean nothing on stdio",
        "a name that cannot be in ids",
        "a missing file of clients is made by the command that the error names",
        "a profile has to be in the file before its clients",
    ],
)
def test_what_is_refused_says_what_to_do(words: list[str], said: str, refused: Told, configure: Configure) -> None:
    configure()
    assert said in " ".join(refused(*words).split())


def test_a_token_is_shown_once_and_kept_as_a_hash(invoke: Invoke, tmp_path: Path) -> None:
    clients = tmp_path / "clients.json"
    token = invoke("gateway", "add-client", "ci", "--clients", clients).stdout.strip()
    kept = json.loads(clients.read_text())["clients"]["ci"]

    assert kept["token"] == hash_of(token)
    assert token not in clients.read_text()
    again = invoke("gateway", "add-client", "ci", "--clients", clients)
    assert again.exit_code == 2
    replaced = invoke("gateway", "add-client", "ci", "--clients", clients, "--replace", "--json")
    assert json.loads(replaced.stdout)["token"] != token


def test_without_servers_it_says_so(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "team.json"
    file.write_text('{"mcpServers": {}}')
    result = invoke("gateway", "--config", file, "--port", "0", "--name", "a.b")
    assert "No servers are configured" in result.stderr
    assert "gaia mcp add" in result.stderr


@pytest.mark.parametrize("module", ["httptools", "prometheus_client", "starlette"])
def test_missing_packages_are_named_before_anything_is_served(
    module: str, refused: Told, configure: Configure, hide_package: Callable[[str], None]
) -> None:
    configure()
    hide_package(module)
    # The name is refused later.
    assert f"The gateway needs {module.replace('_', '-')}" in refused("gateway", "--port", "0", "--name", "a.b")


@pytest.mark.parametrize(
    ("option", "values", "expected"),
    [
        ("--allow-origin", ["a.example", "ftp://a.example", "https://a.example/", "https://", "*"], "an origin as"),
        ("--allow-host", ["http://a.b", "a.b:80", "a.b/mcp", "*.b", ""], "without scheme, port and path, such as gw."),
        ("--trusted-proxy", ["proxy.example", ""], "an IP address or a network such as 10.0.0.0/8"),
    ],
)
def test_values_of_another_form_are_refused(
    option: str, values: list[str], expected: str, refused: Told, configure: Configure
) -> None:
    configure()
    hosts = [f"--allow-host={name}" for name in ("gw.example.com", "gw", "10.0.0.1", "::1", "[fe80::1]")]
    others = ["--allow-origin=http://localhost:3000", "--trusted-proxy=10.0.0.0/8", "--trusted-proxy=::1"]
    # The name of the gateway is refused later.
    assert "name: must be" in refused(*HTTP, "--name", "a.b", *hosts, *others)
    for value in values:
        error = " ".join(refused("gateway", "--port", "0", "--name", "a.b", option, value).split())
        assert expected in error
        assert repr(value) in error


def test_an_address_that_is_none_of_this_machine_is_told_with_what_to_write(
    invoke: Invoke, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure()
    clients = tmp_path / "clients.json"
    assert invoke("gateway", "add-client", "ci", "--clients", clients).exit_code == 0

    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_server", unknown)
    result = invoke("gateway", "--port", "0", "--host", "nowhere.invalid", "--clients", clients)

    assert result.exit_code == 1
    assert "cannot listen" in result.stderr
    assert "--host takes an address" in result.stderr


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


def test_a_file_that_cannot_be_used_is_refused_before_anything_is_changed(file: Path) -> None:
    gateway = FakeGateway()
    (servers,) = sources_of(file).of(cast("Any", gateway))
    file.write_text('{"mcpServers": {"a": {"command": 3}, "off": {"disabled": true, "command": 3}}}')
    with pytest.raises(ConfigError, match="'a'"):
        servers.load()
    file.unlink()
    with pytest.raises(ConfigError, match="there is no such file"):
        servers.load()
    assert gateway.applied == []


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
