"""Supervised clients of a server that lets nobody in without a login, over real HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gaia.mcp.authorization.config import AuthorizationRequest
from gaia.mcp.authorization.server_authorization import ServerAuthorization
from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import NeedsAuthorization
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.transports.http import HttpTransport
from tests.servers.protected_server import Protected, protected_server
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def running() -> Iterator[Protected]:
    with protected_server() as server:
        yield server


@pytest.fixture
def server(running: Protected) -> Protected:
    """As if it had just been started."""
    running.accounts.revoke_all()
    running.accounts.clients.clear()
    running.accounts.counts.clear()
    running.accounts.paths.clear()
    running.accounts.refuses_logins = False
    return running


def log_in(server: Protected) -> None:
    """As ``gaia mcp login`` does in another process."""
    ServerAuthorization("notes", server.url, on_authorization=server.browser).log_in()


def client(server: Protected, **entry: Any) -> MCPClient:
    return MCPClient.from_config("notes", {"url": server.url, **entry})


def text_of(result: dict[str, Any]) -> str:
    assert "error" not in result, result
    return str(result["content"][0]["text"])


@pytest.mark.parametrize("protocol", ["handshake", "stateless"])
class TestInBothEras:
    def test_with_a_login_there_is_nothing_special(self, server: Protected, protocol: str) -> None:
        log_in(server)
        with client(server, protocol=protocol) as notes:
            assert [tool.name for tool in notes.list_tools()] == ["who", "write"]
            assert text_of(notes.call_tool("who")) == "read write"

    def test_without_one_connecting_fails_and_says_what_to_do(self, server: Protected, protocol: str) -> None:
        notes = client(server, protocol=protocol)
        assert not notes.connect()
        assert notes.state is ServerState.NEEDS_AUTHORIZATION
        assert notes.last_error == "the server needs authorization; run: gaia mcp login notes"
        log_in(server)
        with notes:
            assert notes.call_tool("who")["isError"] is False

    def test_a_token_that_is_refused_is_renewed_under_way(self, server: Protected, protocol: str) -> None:
        log_in(server)
        with client(server, protocol=protocol) as notes:
            server.accounts.revoke_access()
            assert text_of(notes.call_tool("who")) == "read write"
            assert notes.status.restarts == 0

    def test_a_login_that_ends_refuses_calls_until_there_is_another(self, server: Protected, protocol: str) -> None:
        log_in(server)
        with client(server, protocol=protocol) as notes:
            server.accounts.revoke_all()
            for number in range(10):
                refused = notes.call_tool("who")
                assert refused["error_type"] == "needs_authorization"
                assert refused["delivery"] == "not_sent"
                assert "gaia mcp login notes" in refused["error"]
                if number == 0:
                    server.accounts.paths.clear()
            assert server.accounts.paths == {}, "later calls do not bother the server"
            assert notes.state is ServerState.NEEDS_AUTHORIZATION
            log_in(server)
            assert text_of(notes.call_tool("who")) == "read write"
            assert notes.state is ServerState.READY

    def test_an_application_logs_in_by_itself(self, server: Protected, protocol: str) -> None:
        notes = MCPClient.from_config(
            "notes", {"url": server.url, "protocol": protocol}, on_authorization=server.browser
        )
        with notes:
            assert text_of(notes.call_tool("who")) == "read write"
            server.accounts.revoke_all()
            # The call waits for the new login.
            assert text_of(notes.call_tool("who")) == "read write"
        assert server.accounts.counts["authorize"] == 2

    def test_more_is_asked_for_when_a_call_takes_more(self, server: Protected, protocol: str) -> None:
        entry = {"url": server.url, "protocol": protocol, "auth": {"type": "oauth", "scopes": ["read"]}}
        with MCPClient.from_config("notes", entry, on_authorization=server.browser) as notes:
            assert text_of(notes.call_tool("who")) == "read"
            assert text_of(notes.call_tool("write", {"text": "milk"})) == "noted milk"
            assert notes.status.restarts == 0

    def test_a_call_that_takes_more_than_there_is_fails_alone(self, server: Protected, protocol: str) -> None:
        ServerAuthorization("notes", server.url, on_authorization=server.browser).log_in()
        for token in server.accounts.access.values():
            token.scopes[:] = ["read"]
        with client(server, protocol=protocol) as notes:
            refused = notes.call_tool("write", {"text": "milk"})
            assert refused["error_type"] == "needs_authorization"
            assert notes.state is ServerState.READY
            assert text_of(notes.call_tool("who")) == "read"


class TestLoggingInFromAnApplication:
    def test_a_person_who_says_no_is_reported(self, server: Protected) -> None:
        server.accounts.refuses_logins = True
        notes = MCPClient.from_config("notes", {"url": server.url}, on_authorization=server.browser)
        assert not notes.connect()
        assert "access_denied" in (notes.last_error or "")
        assert server.accounts.counts["authorize"] == 1

    def test_disconnecting_does_not_wait_for_the_person(self, server: Protected) -> None:
        asked, done = threading.Event(), threading.Event()

        def slow(request: AuthorizationRequest) -> None:
            asked.set()
            assert done.wait(PATIENCE)

        notes = MCPClient.from_config("notes", {"url": server.url}, on_authorization=slow)
        connecting = threading.Thread(target=notes.connect)
        connecting.start()
        assert asked.wait(PATIENCE)
        assert notes.state is ServerState.AUTHORIZING
        notes.disconnect()
        connecting.join(PATIENCE)
        assert notes.state is ServerState.CLOSED
        done.set()

    def test_a_manager_asks_for_each_of_its_servers(self, server: Protected, tmp_path: Any) -> None:
        config = MCPConfig(tmp_path / "servers.json", create=True)
        asked = []

        def inspect_server(request: AuthorizationRequest) -> str | None:
            asked.append(request.server)
            return server.browser(request)

        with MCPClientManager(config, on_authorization=inspect_server) as manager:
            manager.add_server("notes", {"url": server.url})
            assert text_of(manager.call_tool("mcp_notes_who")) == "read write"
        assert asked == ["notes"]

    def test_without_a_callback_its_status_says_what_is_missing(self, server: Protected, tmp_path: Any) -> None:
        config = MCPConfig(tmp_path / "servers.json", create=True)
        config.add_server("notes", {"url": server.url})
        with MCPClientManager(config) as manager:
            manager.load_from_config()
            (status,) = manager.status()
            assert status.state is ServerState.NEEDS_AUTHORIZATION
            assert "gaia mcp login notes" in (status.last_error or "")
            log_in(server)
            manager.load_from_config()
            assert text_of(manager.call_tool("mcp_notes_who")) == "read write"

    def test_a_transport_takes_an_authorization_of_its_own(self, server: Protected) -> None:
        auth = ServerAuthorization("notes", server.url, on_authorization=server.browser)
        with MCPClient("notes", HttpTransport(server.url, auth=auth)) as notes:
            assert text_of(notes.call_tool("who")) == "read write"


class TestOtherCredentials:
    def test_a_configured_header_is_no_login(self, server: Protected) -> None:
        notes = client(server, headers={"Authorization": "Bearer wrong"})
        assert not notes.connect()
        assert "gaia mcp login" not in (notes.last_error or "")
        assert "see to the credentials in the configuration of 'notes'" in (notes.last_error or "")
        assert server.accounts.paths.keys() == {"/mcp"}

    def robot(self, guarded: Protected, secret: str = "hunter22") -> MCPClient:
        auth = {"type": "client_credentials", "clientId": "robot", "clientSecret": secret, "scopes": ["read"]}
        return client(guarded, auth={**auth, "issuer": guarded.origin})

    def test_a_program_logs_in_by_itself(self) -> None:
        with protected_server(client_secret="hunter22") as guarded, self.robot(guarded) as notes:
            assert text_of(notes.call_tool("who")) == "read"
            guarded.accounts.revoke_all()
            assert text_of(notes.call_tool("who")) == "read"

    def test_a_secret_that_is_wrong_is_reported_and_not_tried_again(self) -> None:
        with protected_server(client_secret="hunter22") as guarded:
            notes = self.robot(guarded, "wrong-secret")
            assert not notes.connect()
            assert notes.state is ServerState.NEEDS_AUTHORIZATION
            assert "invalid_client" in (notes.last_error or "")
            assert "wrong-secret" not in (notes.last_error or "")


def test_the_error_of_a_refused_request_is_typed(server: Protected) -> None:
    log_in(server)
    with client(server) as notes:
        server.accounts.revoke_all()
        with pytest.raises(NeedsAuthorization):
            notes.request("tools/list")
