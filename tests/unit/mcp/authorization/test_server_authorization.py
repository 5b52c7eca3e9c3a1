"""Logging in at a real authorization server, and what happens to the requests of a synchronous HTTP client."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shlex
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gaia.http.connection import HttpConnection
from gaia.http.request import HttpSettings
from gaia.http.response import Response
from gaia.http.url import Url
from gaia.http.waits import run
from gaia.mcp.authorization.challenge import Challenge
from gaia.mcp.authorization.config import AuthorizationRequest, ClientCredentials, NoLogin, OAuth, WorkloadIdentity
from gaia.mcp.authorization.server_authorization import ServerAuthorization
from gaia.mcp.authorization.token_file import Login, TokenFile
from gaia.mcp.errors import CallCancelled, ConfigError, MCPError, NeedsAuthorization, ServerUnavailable
from gaia.mcp.transports.http.authorized_requests import AuthorizedRequests
from gaia.runtime import extras
from gaia.runtime.extras import install_command
from gaia.runtime.threads import DaemonPool
from tests.servers.http_server import Exchange, ScriptedServer
from tests.servers.protected_server import Protected, protected_server
from tests.waiting import PATIENCE

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def running() -> Iterator[Protected]:
    with protected_server() as server:
        yield server


@pytest.fixture(scope="module")
def guarded() -> Iterator[Protected]:
    """A server for the client "robot" alone."""
    with protected_server(client_secret="hunter22") as server:
        yield server


@pytest.fixture
def server(running: Protected) -> Protected:
    """As if it had just been started."""
    accounts = running.accounts
    accounts.revoke_all()
    accounts.clients.clear()
    accounts.counts.clear()
    accounts.paths.clear()
    accounts.refuses_logins, accounts.issues_refresh_tokens, accounts.token_seconds = False, True, 3600
    return running


def authorization(server: Protected, config: Any = None, **options: Any) -> ServerAuthorization:
    """A new one, as another process would have it."""
    return ServerAuthorization("notes", server.url, config, **options)


def post(server: Protected, auth: ServerAuthorization, message: dict[str, Any]) -> Response:
    """The response to a message, all of it."""
    connection, threads = HttpConnection(HttpSettings()), DaemonPool("logins", 1)
    send = AuthorizedRequests(auth, threads)

    async def exchange() -> Response:
        body = json.dumps(message).encode()
        with await send(connection, "POST", Url.parse(server.url), HEADERS, body) as response:
            await response.read()
            return response

    try:
        return run(exchange())
    finally:
        connection.close()
        threads.close(PATIENCE)


def say_hello(server: Protected, auth: ServerAuthorization) -> Response:
    return post(server, auth, HELLO)


def call_write(server: Protected, auth: ServerAuthorization) -> Response:
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "write", "arguments": {}}}
    return post(server, auth, message)


def kept(server: Protected) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(TokenFile(server.url).path.read_text())
    return document


class TestWithoutALogin:
    def test_a_request_is_refused_and_the_error_says_what_to_run(self, server: Protected) -> None:
        with pytest.raises(NeedsAuthorization, match="gaia mcp login notes") as caught:
            say_hello(server, authorization(server))
        assert caught.value.delivery == "not_sent"
        assert caught.value.status == 401
        assert server.accounts.paths == {"/mcp": 1}, "nothing is asked of the authorization server"

    def test_a_callback_alone_does_not_hold_up_requests(self, server: Protected) -> None:
        with pytest.raises(NeedsAuthorization):
            say_hello(server, authorization(server, on_authorization=server.browser))

    def test_a_configuration_without_logins_leaves_the_refusal_to_the_transport(self, server: Protected) -> None:
        assert say_hello(server, authorization(server, NoLogin())).status == 401

    def test_a_login_that_another_process_makes_is_noticed(self, server: Protected) -> None:
        auth = authorization(server)
        with pytest.raises(NeedsAuthorization):
            say_hello(server, auth)
        assert not auth.changed()
        authorization(server, on_authorization=server.browser).log_in()
        assert auth.changed()
        assert say_hello(server, auth).is_success


class TestPlainHttp:
    """A server on another machine, without TLS: a token would be readable on the way."""

    URL = "http://mcp.example.com/mcp"

    def requests(self, auth: ServerAuthorization, status: int) -> list[str | None]:
        """What each request shows, if all are answered with this status."""
        seen: list[str | None] = []
        flow = auth.login_flow(None)
        with contextlib.suppress(StopIteration, MCPError):
            seen.append(next(flow))
            while True:
                seen.append(flow.send((status, None)))
        return seen

    def test_a_token_that_is_kept_is_not_sent(self) -> None:
        TokenFile(self.URL).write(Login(server=self.URL, access_token="access-1", refresh_token="refresh-1"))
        auth = ServerAuthorization("notes", self.URL)
        assert self.requests(auth, 200) == [None]
        assert auth.ready_login() == (True, None)

    @pytest.mark.parametrize(
        "config",
        [None, ClientCredentials(client_id="robot", client_secret="hunter22", issuer="https://login.example.com")],
        ids=["person", "program"],
    )
    def test_no_token_is_asked_for(self, config: ClientCredentials | None) -> None:
        opened: list[str] = []
        auth = ServerAuthorization("notes", self.URL, config, on_authorization=lambda asked: opened.append(asked.url))
        assert len(self.requests(auth, 401)) == 1
        with pytest.raises(NeedsAuthorization, match="give its https address") as refusal:
            auth.log_in()
        assert refusal.value.delivery == "not_sent"
        assert opened == []


class TestLoggingIn:
    def test_the_login_outlives_the_process_and_names_its_authorization_server(self, server: Protected) -> None:
        authorization(server, on_authorization=server.browser).log_in()
        assert say_hello(server, authorization(server)).is_success
        assert server.accounts.counts["authorize"] == 1
        assert kept(server)["issuer"] == server.origin

    def test_a_browser_that_is_redirected_to_this_machine_ends_the_login(self, server: Protected) -> None:
        pages = []

        def inspect_server(request: AuthorizationRequest) -> None:
            assert request.server == "notes"
            pages.append(httpx2.get(request.url, follow_redirects=True, trust_env=False).text)

        authorization(server, on_authorization=inspect_server).log_in()
        assert say_hello(server, authorization(server)).is_success
        assert pages == [pages[0]]
        assert "You are logged in" in pages[0]

    def test_a_login_with_the_wrong_state_is_no_login(self, server: Protected) -> None:
        def forge(request: AuthorizationRequest) -> str:
            returned = server.browser(request)
            assert returned is not None
            return str(httpx2.URL(returned).copy_set_param("state", "forged"))

        with pytest.raises(NeedsAuthorization, match="State"):
            authorization(server, on_authorization=forge).log_in()

    def test_a_callback_that_fails_ends_the_login(self, server: Protected) -> None:
        def broken(request: AuthorizationRequest) -> None:
            raise ValueError("no screen")

        with pytest.raises(NeedsAuthorization, match="no screen"):
            authorization(server, on_authorization=broken).log_in()

    def test_it_can_be_given_up(self, server: Protected) -> None:
        waiting = threading.Event()
        auth = authorization(server, on_authorization=lambda request: waiting.set())
        with ThreadPoolExecutor(1) as pool:
            login = pool.submit(auth.log_in)
            assert waiting.wait(PATIENCE)
            auth.abort()
            with pytest.raises(CallCancelled):
                login.result(PATIENCE)

    def test_a_registration_outlives_a_login_that_fails(self, server: Protected) -> None:
        server.accounts.refuses_logins = True
        with pytest.raises(NeedsAuthorization):
            authorization(server, on_authorization=server.browser).log_in()
        server.accounts.refuses_logins = False
        authorization(server, on_authorization=server.browser).log_in()
        assert server.accounts.counts["register"] == 1

    def test_configured_scopes_are_asked_for(self, server: Protected) -> None:
        authorization(server, OAuth(scopes=["read", "write"]), on_authorization=server.browser).log_in()
        assert kept(server)["scope"] == "read write"

    def test_another_authorization_server_than_the_configured_one_is_refused(self, server: Protected) -> None:
        config = OAuth(issuer="https://login.example.com")
        with pytest.raises(NeedsAuthorization, match=r"insists on https://login\.example\.com"):
            authorization(server, config, on_authorization=server.browser).log_in()
        assert server.accounts.counts["register"] == 0


class TestTheFile:
    def test_logging_out_deletes_it(self, server: Protected) -> None:
        auth = authorization(server, on_authorization=server.browser)
        auth.log_in()
        assert auth.log_out()
        assert not auth.log_out()
        with pytest.raises(NeedsAuthorization):
            say_hello(server, auth)

    def test_the_secrets_are_known_for_masking(self, server: Protected) -> None:
        auth = authorization(server, on_authorization=server.browser)
        auth.log_in()
        login = kept(server)
        assert {login["access_token"], login["refresh_token"]} <= set(auth.secrets)
        assert login["access_token"] not in repr(TokenFile(server.url).read())

    def test_those_that_were_replaced_are_masked_for_a_while(self, server: Protected) -> None:
        """An error that is on its way may repeat the old one."""
        auth, file = authorization(server), TokenFile(server.url)
        for number in range(40):
            file.write(Login(server=server.url, access_token=f"access-{number}", refresh_token=f"refresh-{number}"))
            assert auth.is_logged_in
        assert {f"{kind}-{number}" for kind in ("access", "refresh") for number in range(34, 40)} <= set(auth.secrets)
        assert len(auth.secrets) < 40
        auth.log_out()
        assert "access-39" in auth.secrets


class TestRenewing:
    @pytest.fixture
    def logged_in(self, server: Protected) -> Callable[[], ServerAuthorization]:
        authorization(server, on_authorization=server.browser).log_in()
        return lambda: authorization(server)

    def test_a_token_that_has_expired_is_renewed_before_it_is_sent(self, server: Protected) -> None:
        server.accounts.token_seconds = 1
        authorization(server, on_authorization=server.browser).log_in()
        server.accounts.token_seconds = 3600
        server.accounts.paths.clear()
        assert say_hello(server, authorization(server)).is_success
        assert server.accounts.paths == {"/token": 1, "/mcp": 1}

    def test_requests_that_are_refused_together_share_one_new_token(self, server: Protected, logged_in: Any) -> None:
        server.accounts.revoke_access()
        auth = logged_in()
        with ThreadPoolExecutor(8) as pool:
            assert all(response.is_success for response in pool.map(lambda _: say_hello(server, auth), range(8)))
        assert server.accounts.counts == {"register": 1, "authorize": 1, "authorization_code": 1, "refresh_token": 1}

    def test_so_do_several_processes(self, server: Protected, logged_in: Any) -> None:
        server.accounts.revoke_access()
        with ThreadPoolExecutor(8) as pool:
            responses = pool.map(lambda _: say_hello(server, logged_in()), range(8))
            assert all(response.is_success for response in responses)
        assert server.accounts.counts["refresh_token"] == 1

    def test_a_refresh_token_that_is_not_taken_any_more_is_forgotten(self, server: Protected, logged_in: Any) -> None:
        server.accounts.revoke_all()
        for _ in range(2):
            with pytest.raises(NeedsAuthorization):
                say_hello(server, logged_in())
        assert server.accounts.paths["/token"] == 2

    def test_an_authorization_server_that_is_away_costs_no_login(
        self, server: Protected, logged_in: Any, mocker: Any
    ) -> None:
        server.accounts.revoke_access()
        away = mocker.patch.object(httpx2.AsyncClient, "send", side_effect=httpx2.ConnectError("away"))
        with pytest.raises(ServerUnavailable, match="away"):
            say_hello(server, logged_in())
        mocker.stop(away)
        assert say_hello(server, logged_in()).is_success


class TestAskingForMore:
    def test_the_command_to_type_is_quoted_for_the_shell(self, server: Protected, mocker: Any) -> None:
        authorization(server, OAuth(scopes=["read"]), on_authorization=server.browser).log_in()
        auth = authorization(server)
        mocker.patch.object(Challenge, "scope", "a' $(touch owned) \"b")
        with pytest.raises(NeedsAuthorization) as caught:
            call_write(server, auth)
        command = caught.value.message.rpartition("run: ")[2]
        assert shlex.split(command) == ["gaia", "mcp", "login", "notes", "--scope", "a' $(touch owned) \"b"]
        assert "$" not in command.replace(shlex.quote("a' $(touch owned) \"b"), "")

    def test_it_is_asked_for_once(self, server: Protected) -> None:
        auth = authorization(server, on_authorization=server.browser)
        auth.log_in("write")
        # As if the server wanted what the login already allows.
        for token in server.accounts.access.values():
            token.scopes.clear()
        server.accounts.counts.clear()
        with pytest.raises(NeedsAuthorization, match="refuses what the login should allow"):
            call_write(server, auth)
        assert server.accounts.counts == {}


class TestCredentials:
    def config(self, server: Protected, **changes: Any) -> ClientCredentials:
        return ClientCredentials(
            **{"client_id": "robot", "client_secret": "hunter22", "issuer": server.origin, **changes}
        )

    @pytest.mark.parametrize("missing", ["mcp", "httpx2"])
    def test_without_what_asks_for_tokens_it_says_what_to_install(
        self, missing: str, guarded: Protected, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        auth = authorization(guarded, self.config(guarded))
        find_spec = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *rest: None if name == missing else find_spec(name, *rest)
        )
        with pytest.raises(ConfigError) as caught:
            say_hello(guarded, auth)
        assert f"needs {missing}, which is not installed (extra 'oauth' of gaia-mcp)" in caught.value.message
        assert caught.value.message.endswith(f"run: {install_command('oauth')}")

    def test_with_a_version_of_the_sdk_that_a_framework_needs_it_says_so(
        self, guarded: Protected, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        auth = authorization(guarded, self.config(guarded))
        version = extras.installed_version
        monkeypatch.setattr(extras, "installed_version", lambda name: "1.30.0" if name == "mcp" else version(name))
        with pytest.raises(ConfigError, match=r"needs mcp>=2.3,<3, and mcp 1.30.0 is installed \(extra 'oauth'"):
            say_hello(guarded, auth)

    def test_the_token_is_used_again(self, guarded: Protected) -> None:
        guarded.accounts.counts.clear()
        for _ in range(2):
            assert say_hello(guarded, authorization(guarded, self.config(guarded))).is_success
        assert guarded.accounts.counts == {"client_credentials": 1}

    def test_a_new_one_is_fetched_when_it_is_refused(self, guarded: Protected) -> None:
        auth = authorization(guarded, self.config(guarded))
        assert say_hello(guarded, auth).is_success
        guarded.accounts.revoke_all()
        assert say_hello(guarded, auth).is_success

    def test_the_configured_scopes_are_asked_for(self, guarded: Protected) -> None:
        auth = authorization(guarded, self.config(guarded, scopes=["read"]))
        assert say_hello(guarded, auth).is_success
        assert [token.scopes for token in guarded.accounts.access.values()][-1] == ["read"]

    def test_a_platform_vouches_with_a_file_that_it_replaces(self, guarded: Protected, tmp_path: Path) -> None:
        token = tmp_path / "token"
        config = WorkloadIdentity(client_id="pod", issuer=guarded.origin, assertion_file=str(token))
        auth = authorization(guarded, config)
        with pytest.raises(NeedsAuthorization, match="token: cannot be read: No such file"):
            say_hello(guarded, auth)
        token.write_text("stale")
        with pytest.raises(NeedsAuthorization, match="invalid_client"):
            say_hello(guarded, auth)
        token.write_text("hunter22\n")
        assert say_hello(guarded, auth).is_success

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (400, "bad: hunter22, aHVudGVyMjI, cm9ib3Q6aHVudGVyMjI=, hunter%32%32"),
            (200, '{"refresh_token": "fresh-token", "token_type": "Bearer"}'),
            (200, '{"token_type": "Bearer", "access_token": ["fresh-token"]}'),
        ],
    )
    def test_no_secret_is_in_an_error_of_the_authorization_server(
        self, guarded: Protected, status: int, body: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send = httpx2.AsyncClient.send

        async def answer(self: Any, request: httpx2.Request, **options: Any) -> httpx2.Response:
            if request.url.path != "/token":
                return await send(self, request, **options)
            return httpx2.Response(status, content=body, request=request)

        monkeypatch.setattr(httpx2.AsyncClient, "send", answer)
        with pytest.raises(NeedsAuthorization, match="logging in failed") as caught:
            say_hello(guarded, authorization(guarded, self.config(guarded)))
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        for secret in ("hunter22", "cm9ib3Q6aHVudGVyMjI=", "fresh-token"):
            assert secret not in shown


def test_the_error_of_an_authorization_server_is_not_quoted_in_full() -> None:
    with ScriptedServer().serving() as server:
        origin = server.url.removesuffix("/mcp")

        def document(exchange: Exchange) -> None:
            if "protected-resource" in exchange.seen.path:
                exchange.json({"resource": server.url, "authorization_servers": [origin]})
            else:
                endpoints = {f"{name}_endpoint": f"{origin}/{name}" for name in ("authorization", "token")}
                exchange.json({"issuer": origin, "response_types_supported": ["code"], **endpoints})

        server.on["GET"] = document
        server.on["POST"] = lambda exchange: exchange.body(b"x" * 1_000_000, status=400)
        config = ClientCredentials(client_id="id", client_secret="secret", issuer=origin)
        with pytest.raises(NeedsAuthorization, match="xxx") as error:
            ServerAuthorization("web", server.url, config).log_in()
    assert len(error.value.message) < 1200


def challenge(status: int, wanted: str = "") -> Challenge:
    found = Challenge.of(status, wanted, None)
    assert found is not None
    return found


@pytest.mark.parametrize("wanted", [None, "", "Bearer", 'Basic realm="x"', 'Bearer error="invalid_token"'])
def test_any_401_is_one(wanted: str | None) -> None:
    assert Challenge.of(401, wanted, None) == Challenge(401, wanted or "", None)
    assert not challenge(401, wanted or "").wants_more


def test_a_long_one_is_cut() -> None:
    long = challenge(401, "Bearer scope=" + "x" * 100_000)
    assert len(long.www_authenticate) == 8192


@pytest.mark.parametrize(
    "wanted",
    [
        'Bearer error="insufficient_scope"',
        "Bearer error=insufficient_scope",
        'Bearer realm="x",error="insufficient_scope", scope="write"',
    ],
)
def test_a_403_is_one_if_it_wants_another_scope_and_no_other_status_is(wanted: str) -> None:
    assert challenge(403, wanted).wants_more
    assert [Challenge.of(status, wanted, None) for status in (200, 400, 404, 500)] == [None] * 4


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        "Bearer",
        'Bearer error="invalid_token"',
        'Bearer error_description="insufficient_scope"',
        'Bearer xerror="insufficient_scope"',
        'Bearer error="insufficient_scope_of_something"',
    ],
)
def test_any_other_403_has_nothing_to_do_with_a_login(wanted: str | None) -> None:
    assert Challenge.of(403, wanted, None) is None


@pytest.mark.parametrize(
    ("wanted", "scope"),
    [
        ('Bearer scope="read write"', "read write"),
        ("Bearer scope=read, error=invalid_token", "read"),
        ('Bearer error="x",scope=""', ""),
        ("Bearer", None),
        ('Bearer noscope="read"', None),
    ],
)
def test_the_scope_is_read_quoted_and_unquoted(wanted: str, scope: str | None) -> None:
    assert challenge(401, wanted).scope == scope


@pytest.mark.parametrize(
    ("status", "wanted", "revision"),
    [(403, 'Bearer error="insufficient_scope"', "2026-07-28"), (401, None, None)],
    ids=["with all that was said", "with nothing made up"],
)
def test_the_replayed_request_looks_like_the_refused_one(status: int, wanted: str | None, revision: str | None) -> None:
    found = Challenge.of(status, wanted, revision)
    assert found is not None
    request, answer = found.replay("https://mcp.example.com/other")
    assert (request.method, str(request.url)) == ("POST", "https://mcp.example.com/other")
    assert request.headers.get("MCP-Protocol-Version") == revision
    assert (answer.status_code, answer.headers.get("WWW-Authenticate")) == (status, wanted)
