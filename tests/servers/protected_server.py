"""An MCP server that lets nobody in without a token, and the authorization server that gives out the tokens.

Both are the official SDK's, on one port of this machine. There is no person to ask: who comes to the authorization
endpoint is logged in, unless a test says otherwise.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx2
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthClientInformationFull, OAuthToken
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.waiting import PATIENCE


class Accounts:
    """What the authorization server knows, gives out and is told to do. Read and changed by tests from their thread."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.token_seconds = 3600
        self.refuses_logins = False
        self.issues_refresh_tokens = True
        self.counts: Counter[str] = Counter()
        """Registrations, logins, and tokens by the grant that they were given for."""
        self.paths: Counter[str] = Counter()
        """Requests by path."""

    def revoke_access(self) -> None:
        """All access tokens are worth nothing from now on."""
        self.access.clear()

    def revoke_all(self) -> None:
        self.access.clear()
        self.refresh.clear()

    def issue(self, client_id: str, scopes: list[str], resource: str | None, grant: str) -> OAuthToken:
        self.counts[grant] += 1
        access = AccessToken(
            token=f"access-{secrets.token_hex(16)}",
            client_id=client_id,
            scopes=scopes,
            expires_at=int(time.time()) + self.token_seconds,
            resource=resource,
        )
        self.access[access.token] = access
        refresh = None
        if self.issues_refresh_tokens and grant != "client_credentials":
            refresh = RefreshToken(
                token=f"refresh-{secrets.token_hex(16)}", client_id=client_id, scopes=scopes, resource=resource
            )
            self.refresh[refresh.token] = refresh
        return OAuthToken(
            access_token=access.token,
            expires_in=self.token_seconds,
            scope=" ".join(scopes),
            refresh_token=None if refresh is None else refresh.token,
        )

    # What the SDK's authorization server asks for.

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.counts["register"] += 1
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.counts["authorize"] += 1
        if self.refuses_logins:
            raise AuthorizeError("access_denied", "not today")
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.issue(
            client.client_id, authorization_code.scopes, authorization_code.resource, "authorization_code"
        )

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        # Each is good once, as OAuth 2.1 has it for public clients.
        del self.refresh[refresh_token.token]
        return self.issue(client.client_id, scopes, refresh_token.resource, "refresh_token")

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)


class Protected:
    """A running server."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.url = f"{origin}/mcp"
        self.accounts = Accounts()

    def browser(self, request: Any) -> str | None:
        """An `on_authorization` that does what a browser would, up to the redirect, and hands that over."""
        response = httpx2.get(request.url, follow_redirects=False, trust_env=False)
        return str(response.headers["location"])


@contextlib.contextmanager
def protected_server(*, scopes: list[str] | None = None, client_secret: str | None = None) -> Iterator[Protected]:
    """Run one. Tools: ``who`` tells the scopes of the caller, ``write`` takes the scope "write".

    `scopes` are what every request takes. With `client_secret` the token endpoint serves the client "robot" with that
    secret, in the client credentials grant, whoever brings it as the assertion of a platform, and nobody else.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    protected = Protected(f"http://127.0.0.1:{listener.getsockname()[1]}")
    application = _application(protected, scopes, client_secret)
    server = uvicorn.Server(uvicorn.Config(application, log_level="error", lifespan="on", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="protected-server")
    thread.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            thread.join(0.01)
        assert server.started, "the server did not start"
        yield protected
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()


def _application(protected: Protected, scopes: list[str] | None, client_secret: str | None) -> ASGIApp:
    settings = AuthSettings(
        issuer_url=protected.origin,
        resource_server_url=protected.url,
        required_scopes=scopes,
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=["read", "write"], default_scopes=["read"]
        ),
        validate_token_resource=True,
    )
    mcp = MCPServer("protected", auth=settings, auth_server_provider=protected.accounts)

    @mcp.tool()
    async def who() -> str:
        """Tell the scopes of the caller."""
        token = get_access_token()
        assert token is not None
        return " ".join(token.scopes)

    @mcp.tool()
    async def write(text: str) -> str:
        """Take a note."""
        return f"noted {text}"

    application = mcp.streamable_http_app()
    if client_secret is not None:
        for route in application.routes:
            if getattr(route, "path", None) == "/token":
                application.routes.remove(route)
        application.add_route("/token", _credentials_endpoint(protected.accounts, client_secret), methods=["POST"])
    return _Watched(application, protected.accounts)


class _Watched:
    """Counts requests, and refuses to call ``write`` for a token without that scope."""

    def __init__(self, application: ASGIApp, accounts: Accounts) -> None:
        self._application = application
        self._accounts = accounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        self._accounts.paths[scope["path"]] += 1
        request = Request(scope, receive)
        body = await request.body()
        token = self._accounts.access.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        if token is not None and "write" not in token.scopes and _calls_write(body):
            challenge = 'Bearer error="insufficient_scope", scope="write"'
            refusal = JSONResponse({"error": "insufficient_scope"}, 403, {"WWW-Authenticate": challenge})
            await refusal(scope, receive, send)
            return
        sent = False

        async def again() -> Any:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._application(scope, again, send)


def _calls_write(body: bytes) -> bool:
    try:
        message = json.loads(body)
    except ValueError:
        return False
    return message.get("method") == "tools/call" and message["params"]["name"] == "write"


def _credentials_endpoint(accounts: Accounts, client_secret: str) -> Any:
    async def token(request: Request) -> JSONResponse:
        form = await request.form()
        if form.get("grant_type") == JWT_BEARER_GRANT_TYPE and form.get("assertion") == client_secret:
            issued = accounts.issue("pod", ["read"], str(form.get("resource")), "client_credentials")
            return JSONResponse(issued.model_dump(exclude_none=True))
        given = base64.b64encode(f"robot:{client_secret}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {given}":
            return JSONResponse({"error": "invalid_client"}, 401)
        if form.get("grant_type") != "client_credentials":
            return JSONResponse({"error": "unsupported_grant_type"}, 400)
        issued = accounts.issue(
            "robot", str(form.get("scope", "")).split(), str(form.get("resource")), "client_credentials"
        )
        return JSONResponse(issued.model_dump(exclude_none=True))

    return token
