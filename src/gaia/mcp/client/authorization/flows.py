"""Runs of the SDK's flows: to renew a login, to make one with credentials, and to have a person make one.

The SDK writes a flow as an asynchronous generator that yields requests. Here each run gets an event loop and an HTTP
client of its own; what the server answered before is told to the flow again instead of asking the server twice.
Importing this module imports the SDK.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError

from gaia.mcp.client.authorization.challenge import Challenge
from gaia.mcp.client.authorization.config import ClientCredentials, OAuth, PrivateKeyJwt, WorkloadIdentity
from gaia.mcp.client.authorization.loopback import Loopback, listening
from gaia.mcp.client.authorization.providers import Keeper, credentials_provider, person_provider
from gaia.mcp.client.authorization.token_file import Login, TokenFile
from gaia.mcp.errors import NeedsAuthorization, ServerUnavailable
from gaia.untrusted_text import one_line

__all__ = ["Inspection", "OAuthFlowError", "log_in", "renew", "use_credentials"]

_REQUEST_SECONDS = 30.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

Inspection = Callable[[str], str | None]
"""Given the address where a person logs in: takes the person there. Returns the address that the browser was sent back
to, or None if that is to be waited for on this machine. Runs in a thread of its own."""


async def renew(config: OAuth, login: Login, file: TokenFile) -> Login | None:
    """Get a new access token for the refresh token of `login`; None if that is no longer taken."""
    keeper = Keeper(file)
    provider = person_provider(config, file.server, login, keeper, expired=True)
    return await _drive(provider, keeper, None)


async def use_credentials(
    config: ClientCredentials | PrivateKeyJwt | WorkloadIdentity, challenge: Challenge, file: TokenFile
) -> Login | None:
    keeper = Keeper(file)
    return await _drive(credentials_provider(config, file.server, keeper), keeper, challenge)


async def log_in(
    config: OAuth,
    login: Login | None,
    challenge: Challenge,
    file: TokenFile,
    *,
    scope: str | None,
    inspect_server: Inspection,
    seconds: float,
) -> Login | None:
    """Have a person log in within `seconds`. `scope` is asked for instead of what the server suggests."""
    if login is not None and not challenge.wants_more:
        # What is known of this client and of the authorization server is of use, the tokens are not.
        login = msgspec.structs.replace(login, access_token=None, refresh_token=None, scope=None)
    try:
        async with asyncio.timeout(seconds):
            if config.redirect_uri is not None and urlsplit(config.redirect_uri).scheme != "http":
                return await _ask(
                    config, login, challenge, file, scope, _Visitor(inspect_server, config.redirect_uri, None)
                )
            async with listening(config.redirect_uri, _port_of(login)) as loopback:
                visitor = _Visitor(inspect_server, loopback.redirect_uri, loopback)
                return await _ask(config, login, challenge, file, scope, visitor)
    except TimeoutError as error:
        raise NeedsAuthorization(f"nobody finished the login at {file.server} within {seconds:g} s") from error


async def _ask(
    config: OAuth, login: Login | None, challenge: Challenge, file: TokenFile, scope: str | None, visitor: _Visitor
) -> Login | None:
    registered = (login.client or {}).get("scope") if login is not None else None
    wanted = f"{challenge.scope or ''} {scope or ''}".split()
    if login is not None and (
        login.redirect_uri != visitor.redirect_uri or not (registered is None or set(wanted) <= set(registered.split()))
    ):
        # Its registration is for another address, or does not allow what is wanted: not every authorization server
        # overlooks that.
        login = msgspec.structs.replace(login, client=None)
    keeper = Keeper(file, keeps_token=challenge.wants_more)
    provider = person_provider(
        config,
        file.server,
        login,
        keeper,
        redirect_uri=visitor.redirect_uri,
        scope=scope,
        on_redirect=visitor.go,
        on_callback=visitor.come_back,
    )
    return await _drive(provider, keeper, challenge)


async def _drive(provider: OAuthClientProvider, keeper: Keeper, challenge: Challenge | None) -> Login | None:
    """Run the provider's flow until it has a token, or until nothing but `challenge` could get it further."""
    request, refusal = (challenge or Challenge()).replay(provider.context.server_url)
    async with httpx2.AsyncClient(timeout=_REQUEST_SECONDS, follow_redirects=False) as http:
        flow = provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while outgoing is not request:
                outgoing = await flow.asend(await _send(http, outgoing, provider))
            if keeper.login is None and challenge is not None:
                outgoing = await flow.asend(refusal)
                while outgoing is not request:
                    outgoing = await flow.asend(await _send(http, outgoing, provider))
        finally:
            await flow.aclose()
    return keeper.login


async def _send(http: httpx2.AsyncClient, outgoing: httpx2.Request, provider: OAuthClientProvider) -> httpx2.Response:
    url = outgoing.url
    if url.scheme != "https" and url.host not in _LOOPBACK and urlsplit(provider.context.server_url).scheme == "https":
        # All endpoints of an authorization server are to be served over https ("Communication Security").
        raise OAuthFlowError(f"refused to send anything to {url.copy_with(query=None)}: it is not https")
    response = await http.send(outgoing)
    if outgoing.method == "POST" and (response.status_code >= 500 or response.status_code == 429):
        # Not an answer to what was asked: it says nothing about the login, and may work later.
        raise ServerUnavailable(
            f"the authorization server {url.host} answered {response.status_code} {response.reason_phrase}".rstrip()
        )
    return response


class _Visitor:
    """Takes a person to the authorization server, and waits for the way back. For one event loop."""

    def __init__(self, inspect_server: Inspection, redirect_uri: str, loopback: Loopback | None) -> None:
        self.redirect_uri = redirect_uri
        self._inspect = inspect_server
        self._loopback = loopback
        self._returned: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def go(self, address: str) -> None:
        (state,) = parse_qs(urlsplit(address).query)["state"]
        if self._loopback is not None:
            self._loopback.expect(state)
        loop = asyncio.get_running_loop()

        def tell(outcome: str | None, error: BaseException | None) -> None:
            if self._returned.done():
                return
            if error is None:
                self._returned.set_result(outcome)
            else:
                self._returned.set_exception(error)

        def inspect_server() -> None:
            outcome, failure = None, None
            try:
                outcome = self._inspect(address)
            except Exception as error:  # noqa: BLE001 - user code may raise anything; the login has failed then
                failure = error
            try:
                loop.call_soon_threadsafe(tell, outcome, failure)
            except RuntimeError:
                # The loop is closed: nobody waits for this login any more.
                return

        # User code may wait for a person as long as it likes; nobody ever waits for this thread.
        threading.Thread(target=inspect_server, name="mcp-authorization", daemon=True).start()

    async def come_back(self) -> AuthorizationCodeResult:
        address = await self._address()
        query = parse_qs(urlsplit(address).query, keep_blank_values=True)
        given = {key: values[0] for key, values in query.items()}
        if "error" in given:
            reason = one_line(f"{given['error']} {given.get('error_description', '')}")
            raise OAuthFlowError(f"the authorization server refused: {reason}")
        return AuthorizationCodeResult(code=given.get("code", ""), state=given.get("state"), iss=given.get("iss"))

    async def _address(self) -> str:
        address: str | None
        if self._loopback is None:
            address = await self._returned
            if address is None:
                raise OAuthFlowError(
                    f"{self.redirect_uri} is not on this machine, so on_authorization has to return the address "
                    "that the browser was sent to"
                )
            return address
        redirected = self._loopback.redirected
        await asyncio.wait({self._returned, redirected}, return_when=asyncio.FIRST_COMPLETED)
        address = None if redirected.done() else self._returned.result()
        if address is None:
            address = await redirected
        assert address is not None, "the future is of a string"
        return address


def _port_of(login: Login | None) -> int:
    """The port of this machine that an earlier login was registered with; 0 if there is none."""
    return (urlsplit(login.redirect_uri).port or 0) if login is not None and login.redirect_uri is not None else 0
