"""Runs of the SDK's flows against an authorization server that is a function: what is sent where, and what is kept."""

from __future__ import annotations

import asyncio
import base64
import inspect
import queue
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider, PrivateKeyJWTOAuthProvider

from gaia.http.response_limits import ResponseTooLong
from gaia.mcp.authorization import flows, providers
from gaia.mcp.authorization.challenge import Challenge
from gaia.mcp.authorization.config import ClientCredentials, OAuth
from gaia.mcp.authorization.flows import OAuthFlowError
from gaia.mcp.authorization.token_file import Login, TokenFile
from gaia.mcp.errors import NeedsAuthorization, ServerUnavailable
from tests.servers.http_server import ENDLESS, ScriptedServer
from tests.waiting import PATIENCE, wait_until

SERVER = "https://mcp.example.com/mcp"
ISSUER = "https://login.example.com"
BACK = "https://app.example.com/back"
METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "registration_endpoint": f"{ISSUER}/register",
    "response_types_supported": ["code"],
    "code_challenge_methods_supported": ["S256"],
}
LOGIN = Login(
    server=SERVER,
    issuer=ISSUER,
    access_token="access-1",
    refresh_token="refresh-1",
    client={"client_id": "client-1", "redirect_uris": [BACK], "token_endpoint_auth_method": "none"},
    redirect_uri=BACK,
    authorization_server=METADATA,
    protected_resource={"resource": SERVER, "authorization_servers": [ISSUER]},
)


OAUTH_WITH_SECRET = OAuth(client_id="gaia", client_secret="hunter22", issuer=ISSUER, redirect_uri=BACK)


class Internet:
    """What the flows find at their URLs."""

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter()
        """Requests by URL, without the query."""
        self.forms: list[dict[str, str]] = []
        """What the token endpoint was sent."""
        self.authorizations: list[str] = []
        self.token_answer: Callable[[], httpx2.Response] = lambda: httpx2.Response(
            200, json={"access_token": "access-2", "token_type": "Bearer", "refresh_token": "refresh-2"}
        )
        self.metadata: dict[str, Any] | None = METADATA
        """What the authorization server says of itself; None if it says nothing."""

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        url = str(request.url.copy_with(query=None))
        self.paths[url] += 1
        if url == f"{ISSUER}/token":
            self.forms.append({key: values[0] for key, values in parse_qs(request.content.decode()).items()})
            self.authorizations.append(request.headers.get("Authorization", ""))
            return self.token_answer()
        if url == f"{ISSUER}/register":
            document = {**msgspec.json.decode(request.content), "client_id": "client-2"}
            return httpx2.Response(201, json=document)
        if url.startswith("https://mcp.example.com/.well-known/oauth-protected-resource"):
            return httpx2.Response(200, json={"resource": SERVER, "authorization_servers": [ISSUER]})
        if url == f"{ISSUER}/.well-known/oauth-authorization-server":
            return httpx2.Response(404) if self.metadata is None else httpx2.Response(200, json=self.metadata)
        return httpx2.Response(404)


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Internet:
    internet = Internet()
    client = partial(httpx2.AsyncClient, transport=httpx2.MockTransport(internet.answer))
    monkeypatch.setattr(flows.httpx2, "AsyncClient", client)
    return internet


@pytest.fixture
def file() -> TokenFile:
    file = TokenFile(SERVER)
    file.write(LOGIN)
    return file


def run(flow: Coroutine[Any, Any, Login | None]) -> Login | None:
    return asyncio.run(asyncio.wait_for(flow, 10.0))


class TestRenewing:
    def test_the_refresh_token_goes_to_the_kept_endpoint_alone_and_all_else_is_kept(
        self, internet: Internet, file: TokenFile
    ) -> None:
        login = run(flows.renew(OAuth(), LOGIN, file))
        assert login is not None
        assert (login.access_token, login.refresh_token) == ("access-2", "refresh-2")
        assert (login.issuer, login.redirect_uri) == (ISSUER, BACK)
        assert login.client is not None
        assert login.client["client_id"] == "client-1"
        assert file.read() == login
        assert internet.paths == {f"{ISSUER}/token": 1}
        (form,) = internet.forms
        assert (form["grant_type"], form["refresh_token"]) == ("refresh_token", "refresh-1")

    def test_a_refresh_token_that_is_not_taken_gives_none_and_changes_no_file(
        self, internet: Internet, file: TokenFile
    ) -> None:
        internet.token_answer = lambda: httpx2.Response(400, json={"error": "invalid_grant"})
        assert run(flows.renew(OAuth(), LOGIN, file)) is None
        assert file.read() == LOGIN

    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_trouble_of_the_authorization_server_is_no_answer(
        self, internet: Internet, file: TokenFile, status: int
    ) -> None:
        internet.token_answer = lambda: httpx2.Response(status)
        with pytest.raises(ServerUnavailable, match=rf"login\.example\.com answered {status}"):
            run(flows.renew(OAuth(), LOGIN, file))
        assert file.read() == LOGIN

    def test_a_redirect_is_not_followed(self, internet: Internet, file: TokenFile) -> None:
        internet.token_answer = lambda: httpx2.Response(307, headers={"Location": "https://evil.example.com/token"})
        assert run(flows.renew(OAuth(), LOGIN, file)) is None
        assert internet.paths == {f"{ISSUER}/token": 1}

    def test_nothing_is_sent_to_an_endpoint_without_https(self, internet: Internet, file: TokenFile) -> None:
        endpoint = "http://login.example.com/token"
        login = msgspec.structs.replace(LOGIN, authorization_server={**METADATA, "token_endpoint": endpoint})
        with pytest.raises(OAuthFlowError, match=f"{endpoint}: it is not https"):
            run(flows.renew(OAuth(), login, file))
        assert internet.paths == {}

    def test_a_login_from_another_authorization_server_than_the_configured_one_is_not_renewed(
        self, internet: Internet, file: TokenFile
    ) -> None:
        config = OAuth(client_id="gaia", client_secret="hunter22", issuer="https://trusted.example.com")
        assert run(flows.renew(config, LOGIN, file)) is None
        assert internet.paths == {}


class TestCredentials:
    ROBOT = ClientCredentials(client_id="robot", client_secret="hunter22", issuer=ISSUER, scopes=["read"])

    def test_they_are_sent_to_the_authorization_server_that_the_server_names(self, internet: Internet) -> None:
        file = TokenFile(SERVER, "robot")
        login = run(flows.use_credentials(self.ROBOT, Challenge(), file))
        assert login is not None
        assert file.read() == login
        assert internet.authorizations == [f"Basic {base64.b64encode(b'robot:hunter22').decode()}"]
        (form,) = internet.forms
        assert (form["grant_type"], form["scope"]) == ("client_credentials", "read")
        assert SERVER not in internet.paths

    def test_another_authorization_server_than_the_configured_one_gets_no_secret(self, internet: Internet) -> None:
        config = msgspec.structs.replace(self.ROBOT, issuer="https://other.example.com")
        with pytest.raises(OAuthFlowError):
            run(flows.use_credentials(config, Challenge(), TokenFile(SERVER, "robot")))
        assert internet.forms == []


class TestPerson:
    def browser(self, opened: list[str]) -> Callable[[str], str]:
        """What a person's browser does: it is sent back with a code at once."""

        def open_browser(url: str) -> str:
            opened.append(url)
            (state,) = parse_qs(urlsplit(url).query)["state"]
            return f"{BACK}?code=code-1&state={state}"

        return open_browser

    def log_in(
        self,
        login: Login | None,
        opened: list[str],
        *,
        challenge: Challenge = Challenge(),  # noqa: B008 - immutable
        scope: str | None = None,
        config: OAuth = OAuth(redirect_uri=BACK),  # noqa: B008 - immutable
    ) -> Login | None:
        return run(
            flows.log_in(
                config,
                login,
                challenge,
                TokenFile(SERVER),
                scope=scope,
                open_browser=self.browser(opened),
                seconds=10.0,
            )
        )

    def test_a_first_login_registers_and_gets_a_token_for_the_code(self, internet: Internet) -> None:
        opened: list[str] = []
        login = self.log_in(None, opened)
        assert login is not None
        assert login == TokenFile(SERVER).read()
        assert (login.access_token, login.redirect_uri) == ("access-2", BACK)
        assert internet.paths[f"{ISSUER}/register"] == 1
        assert internet.forms[0]["code"] == "code-1"
        query = parse_qs(urlsplit(opened[0]).query)
        assert query["code_challenge_method"] == ["S256"]

    def test_the_next_one_uses_the_registration_again(self, internet: Internet) -> None:
        opened: list[str] = []
        self.log_in(LOGIN, opened)
        assert internet.paths[f"{ISSUER}/register"] == 0
        assert parse_qs(urlsplit(opened[0]).query)["client_id"] == ["client-1"]

    @pytest.mark.parametrize(
        ("known", "scope"),
        [
            (msgspec.structs.replace(LOGIN, redirect_uri="http://127.0.0.1:1234/callback"), None),
            (msgspec.structs.replace(LOGIN, client={**(LOGIN.client or {}), "scope": "read"}), "read write"),
        ],
        ids=["another redirect", "more scopes"],
    )
    def test_a_registration_that_does_not_allow_it_is_made_anew(
        self, internet: Internet, known: Login, scope: str | None
    ) -> None:
        opened: list[str] = []
        self.log_in(known, opened, scope=scope)
        assert internet.paths[f"{ISSUER}/register"] == 1
        assert parse_qs(urlsplit(opened[0]).query)["client_id"] == ["client-2"]

    def test_the_given_scope_is_asked_for(self, internet: Internet) -> None:
        opened: list[str] = []
        self.log_in(None, opened, scope="read write", challenge=Challenge(www_authenticate='Bearer scope="all"'))
        assert parse_qs(urlsplit(opened[0]).query)["scope"] == ["read write"]

    @pytest.mark.parametrize("methods", [None, [], ["plain"]])
    def test_an_authorization_server_without_pkce_is_refused(
        self, internet: Internet, methods: list[str] | None
    ) -> None:
        internet.metadata = {**METADATA, "code_challenge_methods_supported": methods}
        opened: list[str] = []
        with pytest.raises(OAuthFlowError, match=f"{ISSUER}/? does not say that it supports PKCE"):
            self.log_in(None, opened)
        assert opened == []

    @pytest.mark.parametrize("config", [OAUTH_WITH_SECRET, OAuth(redirect_uri=BACK)], ids=["secret", "registered"])
    def test_an_authorization_server_that_does_not_introduce_itself_is_not_guessed(
        self, internet: Internet, config: OAuth
    ) -> None:
        """What is from one authorization server, such as a secret, would go to the MCP server's own endpoints."""
        internet.metadata = None
        opened: list[str] = []
        with pytest.raises(OAuthFlowError, match="the metadata of the authorization server"):
            self.log_in(msgspec.structs.replace(LOGIN, authorization_server=None), opened, config=config)
        assert (opened, internet.forms) == ([], [])
        assert "https://mcp.example.com/token" not in internet.paths

    @pytest.mark.parametrize("endpoint", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
    @pytest.mark.parametrize("inside", ["http://127.0.0.1:8080/x", "https://10.0.0.1/x", "https://localhost/x"])
    def test_a_server_on_the_internet_leads_nobody_into_this_machine_or_its_network(
        self, internet: Internet, endpoint: str, inside: str
    ) -> None:
        internet.metadata = {**METADATA, endpoint: inside}
        opened: list[str] = []
        with pytest.raises(OAuthFlowError, match=re.escape(inside)):
            self.log_in(None, opened)
        assert inside not in internet.paths
        assert endpoint != "authorization_endpoint" or opened == []

    def test_neither_does_the_place_of_its_metadata(self, internet: Internet) -> None:
        challenge = Challenge(www_authenticate='Bearer resource_metadata="http://127.0.0.1:8080/metadata"')
        with pytest.raises(OAuthFlowError, match="127"):
            self.log_in(None, [], challenge=challenge)
        assert internet.paths == {}

    @pytest.mark.parametrize("hiding", ["https://bank.example@auth.example.com/a", "https://a:b@auth.example.com/a"])
    def test_no_person_is_sent_to_an_address_that_hides_its_host(self, internet: Internet, hiding: str) -> None:
        internet.metadata = {**METADATA, "authorization_endpoint": hiding}
        opened: list[str] = []
        with pytest.raises(OAuthFlowError, match=f"{re.escape(hiding)}: it hides which host"):
            self.log_in(None, opened)
        assert opened == []

    def test_a_host_with_letters_that_look_like_others_is_shown_in_ascii(self, internet: Internet) -> None:
        internet.metadata = {**METADATA, "authorization_endpoint": "https://p\u0430ypal.com/authorize"}
        opened: list[str] = []
        self.log_in(None, opened)
        assert opened[0].startswith("https://xn--pypal-4ve.com/authorize?")

    def test_an_unfinished_login_ends(self, internet: Internet) -> None:
        flow = flows.log_in(
            OAuth(), None, Challenge(), TokenFile(SERVER), scope=None, open_browser=lambda _: None, seconds=0.2
        )
        with pytest.raises(NeedsAuthorization, match=r"within 0\.2 s"):
            run(flow)
        assert internet.forms == []


class TestWhatIsRead:
    """However much and however slowly an authorization server writes; `ENDLESS` is what it would have written."""

    @pytest.fixture
    def server(self) -> Iterator[ScriptedServer]:
        with ScriptedServer().serving() as server:
            yield server

    @pytest.fixture
    def login(self, server: ScriptedServer) -> Login:
        endpoints = {**METADATA, "issuer": server.url, "token_endpoint": server.url}
        return msgspec.structs.replace(LOGIN, server=server.url, issuer=server.url, authorization_server=endpoints)

    @pytest.mark.parametrize("status", [200, 400], ids=["a success", "an error"])
    def test_an_answer_has_a_limit(self, server: ScriptedServer, login: Login, status: int) -> None:
        written: queue.SimpleQueue[int] = queue.SimpleQueue()
        server.on["POST"] = lambda exchange: written.put(exchange.endless(status))
        if status == 200:
            with pytest.raises(ResponseTooLong):
                run(flows.renew(OAuth(), login, TokenFile(server.url)))
        else:
            assert run(flows.renew(OAuth(), login, TokenFile(server.url))) is None
        assert written.get(timeout=PATIENCE) < ENDLESS / 4

    def test_so_are_the_documents_about_it(self, server: ScriptedServer) -> None:
        written: list[int] = []
        server.on["GET"] = lambda exchange: written.append(exchange.endless())
        config = ClientCredentials(client_id="id", client_secret="secret", issuer=ISSUER)
        with pytest.raises((ResponseTooLong, OAuthFlowError)):
            run(flows.use_credentials(config, Challenge(), TokenFile(server.url)))
        assert wait_until(lambda: len(written) > 0)
        assert max(written) < ENDLESS / 4

    def test_one_that_comes_in_drops_is_given_up(
        self, server: ScriptedServer, login: Login, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(flows, "_REQUEST_SECONDS", 0.3)
        server.on["POST"] = lambda exchange: exchange.endless(piece=b" ", pause=0.05)
        with pytest.raises(httpx2.ReadTimeout, match="did not answer within"):
            run(flows.renew(OAuth(), login, TokenFile(server.url)))


PRIVATE = {"_perform_authorization", "_select_authorization_server"}
OWN = {"_check_authorization_server", "_secret_method", "_assertion"}

OURS = [
    kind
    for kind in vars(providers).values()
    if isinstance(kind, type) and issubclass(kind, OAuthClientProvider) and kind.__module__ == providers.__name__
]


@pytest.mark.parametrize("name", sorted(PRIVATE))
def test_the_sdk_calls_what_is_overridden_and_with_the_same_parameters(name: str) -> None:
    theirs = getattr(OAuthClientProvider, name, None)
    assert theirs is not None, f"OAuthClientProvider.{name} is gone, which providers.py overrides"
    assert f"self.{name}(" in inspect.getsource(OAuthClientProvider._auth_flow)
    overriding = [vars(kind)[name] for kind in OURS if name in vars(kind)]
    assert overriding
    for ours in overriding:
        assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs)


def test_nothing_else_that_is_private_is_overridden() -> None:
    defined = {name for kind in OURS for name, value in vars(kind).items() if inspect.isfunction(value)}
    assert {name for name in defined if not name.startswith("__")} == PRIVATE | OWN
    assert not [name for name in OWN if hasattr(OAuthClientProvider, name)]


@pytest.mark.parametrize("grant", [ClientCredentialsOAuthProvider, PrivateKeyJWTOAuthProvider])
def test_the_grants_of_programs_go_through_the_same_method(grant: type[OAuthClientProvider]) -> None:
    assert "_perform_authorization" in vars(grant)
