"""The transport of a configured server: which kind, with which values, and with which login."""

import logging
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.authorization.configured import ConfiguredAuthorization
from gaia.mcp.client import server_transport
from gaia.mcp.client.server_transport import secret_in_arguments, transport_for
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import ConfigError
from gaia.mcp.transports.http import HttpTransport
from gaia.mcp.transports.stdio import StdioTransport

URL = "https://mcp.example.com/mcp"


def transport(**entry: Any) -> Any:
    return transport_for(ServerConfig.from_dict("time", entry), 7.0, False)


def values_of(transport: Any) -> Any:
    """What the transport asks for whenever it is opened."""
    return transport._expand()


@pytest.fixture(autouse=True)
def nothing_warned_of_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_transport, "_warned", set())


class TestKinds:
    def test_a_command_is_a_process(self, tmp_path: Path) -> None:
        found = transport(command="uvx", args=["mcp-server-time"], env={"TZ": "UTC"}, cwd=str(tmp_path))
        assert isinstance(found, StdioTransport)
        assert (found.command, found.args, found.env) == ("uvx", ["mcp-server-time"], {"TZ": "UTC"})
        assert (found.cwd, found.timeout) == (str(tmp_path), 7.0)

    def test_a_url_is_reached_over_http(self) -> None:
        found = transport(url=URL, headers={"X-Tenant": "one"})
        assert isinstance(found, HttpTransport)
        assert (found.url, found.headers, found.timeout) == (URL, {"X-Tenant": "one"}, 7.0)

    def test_a_command_line_that_needs_a_shell_is_refused_at_once(self) -> None:
        with pytest.raises(ValueError, match="shell"):
            transport(command="uvx server | tee log")


class TestVariables:
    def test_they_are_read_at_each_start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = transport(command="uvx", args=["--zone", "${ZONE}"], env={"TZ": "${ZONE}"})
        for zone in ("UTC", "CET"):
            monkeypatch.setenv("ZONE", zone)
            arguments, environment, _ = values_of(found)
            assert (arguments, environment) == (["--zone", zone], {"TZ": zone})

    def test_so_are_those_in_the_paths_of_a_sandbox(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = transport(command="uvx", sandbox={"write": ["${DATA}"]})
        for path in ("/one", "/two"):
            monkeypatch.setenv("DATA", path)
            assert found._sandbox().write == [path]
        assert transport(command="uvx")._sandbox() is None

    @pytest.mark.parametrize("entry", [{"command": "uvx", "args": ["${ZONE}"]}, {"url": f"{URL}/${{ZONE}}"}])
    def test_one_that_is_not_set_is_an_error_of_the_start(
        self, entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("ZONE", raising=False)
        found = transport(**entry)
        with pytest.raises(ConfigError, match="ZONE"):
            values_of(found)

    def test_url_and_headers_are_expanded_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TENANT", "tenant-one")
        monkeypatch.setenv("API_KEY", "hunter22")
        url, headers, secrets = values_of(transport(url=f"{URL}/${{TENANT}}", headers={"X-Api-Key": "${API_KEY}"}))
        assert (url, headers) == (f"{URL}/tenant-one", {"X-Api-Key": "hunter22"})
        assert {"hunter22", "tenant-one"} <= set(secrets)


class TestSecrets:
    def test_values_of_variables_in_arguments_are_secrets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DEPLOY_TOKEN", "abcd")
        *_, secrets = values_of(transport(command="uvx", args=["--token=${DEPLOY_TOKEN}"]))
        assert "abcd" in secrets

    def test_what_every_server_inherits_is_no_secret(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/somewhere/long")
        *_, secrets = values_of(transport(command="uvx", args=["${HOME}/data"]))
        assert secrets == []

    @pytest.mark.parametrize(
        ("entry", "sent"),
        [
            ({"url": "http://mcp.example.com/", "headers": {"Authorization": "Bearer hunter22"}}, "Authorization"),
            ({"url": "http://user:hunter22@mcp.example.com/"}, "the password in url"),
            ({"url": "http://127.0.0.1/", "headers": {"Authorization": "Bearer hunter22"}}, None),
            ({"url": "https://mcp.example.com/", "headers": {"Authorization": "Bearer hunter22"}}, None),
            ({"url": "http://mcp.example.com/", "headers": {"X-Tenant": "one"}}, None),
        ],
    )
    def test_credentials_that_others_can_read_on_the_way_are_warned_of_once(
        self, entry: dict[str, Any], sent: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        found = transport(**entry)
        for _ in range(2):
            values_of(found)
        warned = [record.getMessage() for record in caplog.records if "credentials_over_http" in record.getMessage()]
        assert len(warned) == (sent is not None)
        assert all(str(sent) in message and "hunter22" not in message for message in warned)

    def test_a_secret_in_arguments_is_warned_of_once_for_each_server(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("DEPLOY_TOKEN", "hunter22")
        with caplog.at_level(logging.WARNING, "gaia"):
            for name in ("one", "one", "two"):
                server = ServerConfig.from_dict(name, {"command": "uvx", "args": ["${DEPLOY_TOKEN}"]})
                values_of(transport_for(server, 7.0, False))
        assert [record.event_fields["server"] for record in caplog.records] == ["one", "two"]  # type: ignore[attr-defined]
        assert "hunter22" not in caplog.text

    @pytest.mark.parametrize(
        ("args", "names"),
        [(None, []), (["${ZONE}"], []), (["${B_TOKEN}", "${ZONE}", "--key=${A_KEY}${B_TOKEN}"], ["A_KEY", "B_TOKEN"])],
    )
    def test_variables_in_arguments_are_judged_by_their_names(self, args: list[str] | None, names: list[str]) -> None:
        assert secret_in_arguments(ServerConfig(name="time", command="uvx", args=args)) == names


class TestLogins:
    def test_by_default_a_login_is_possible(self) -> None:
        server = ServerConfig.from_dict("time", {"url": URL})
        callback: Any = lambda _: None  # noqa: E731 - compared by identity
        found = transport_for(server, 7.0, False, callback).authorization
        assert isinstance(found, ConfiguredAuthorization)
        assert found.on_authorization is callback

    @pytest.mark.parametrize(
        "entry",
        [
            {"headers": {"AUTHORIZATION": "Bearer x"}},
            {"auth": {"type": "none"}},
            {"url": "https://me:hunter22@mcp.example.com/mcp"},
        ],
    )
    def test_other_credentials_and_none_at_all_are_no_login(self, entry: dict[str, Any]) -> None:
        assert transport(**{"url": URL, **entry}).authorization is None

    def test_a_configured_login_wins_over_a_user_in_the_url(self) -> None:
        found = transport(url="https://me@mcp.example.com/mcp", auth={"type": "oauth"})
        assert isinstance(found.authorization, ConfiguredAuthorization)


class TestAPlacedServer:
    def test_the_host_gets_what_it_needs_and_no_setting_of_the_client(self) -> None:
        placed = transport(
            command="server", args=["-v"], timeout=12, standby=True, drainTimeout=3, enabledTools=["a"], maxPending=5,
            placement={"engine": "process", "lease": 7},
        )  # fmt: skip
        launch = placed.launch()
        assert (launch.name, launch.lease, launch.is_shared) == ("time", 7, False)
        assert launch.entry["command"] == "server"
        assert (launch.entry["timeout"], launch.entry["maxPending"]) == (12, 5)
        assert not {"standby", "drainTimeout", "enabledTools", "placement", "name"} & set(launch.entry)
        assert launch.token != placed.launch().token

    def test_variables_are_expanded_at_each_start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        placed = transport(command="server", env={"API_KEY": "${KEY_OF_THE_DAY}"}, placement={"engine": "process"})
        with pytest.raises(ConfigError, match="KEY_OF_THE_DAY is not set"):
            placed.launch()
        for key in ("first-key", "other-key"):
            monkeypatch.setenv("KEY_OF_THE_DAY", key)
            launch = placed.launch()
            assert launch.entry["env"] == {"API_KEY": key}
            assert key in launch.secrets
            assert key not in repr(launch)

    def test_programs_share_it_by_the_name_of_the_placement(self) -> None:
        placement = {"engine": "process", "lifetime": "detached", "name": "team"}
        launch = transport(command="server", placement=placement).launch()
        assert (launch.name, launch.is_shared) == ("team", True)

    def test_an_unusable_command_is_refused_before_a_host_is_started(self) -> None:
        with pytest.raises(ConfigError, match="shell"):
            transport(command="server | tee log", placement={"engine": "process"})


def test_a_missing_package_is_told_before_a_server_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.mcp.client.server_transport.missing", lambda *_: "httptools, which is not installed")
    server = ServerConfig.from_dict("far", {"command": "x", "placement": {"engine": "process"}})
    with pytest.raises(ConfigError, match="a server with a placement needs httptools"):
        transport_for(server, 1.0, False)
