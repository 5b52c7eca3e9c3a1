"""Runs the SDK's flows: renewing a login, logging in with credentials, and logging in a person.

The SDK writes a flow as an asynchronous generator that yields requests. `_drive` replays the server's earlier answers
to the flow, so the server is not asked twice. Importing this module imports the SDK.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError

from gaia.http.response_limits import ResponseLimits
from gaia.mcp.authorization.browser import OpenBrowser, browser_login
from gaia.mcp.authorization.challenge import Challenge
from gaia.mcp.authorization.config import ClientCredentials, OAuth, PrivateKeyJwt, WorkloadIdentity
from gaia.mcp.authorization.endpoint_policy import EndpointPolicy
from gaia.mcp.authorization.providers import LoginStorage, PersonProvider, credentials_provider
from gaia.mcp.authorization.token_file import Login, TokenFile
from gaia.mcp.errors import NeedsAuthorization, ServerUnavailable, web_page
from gaia.runtime.log import mask_records_of
from gaia.runtime.untrusted_text import escaped_line

# httpx2 logs the URL of each request.
mask_records_of(httpx2.__name__)

_REQUEST_SECONDS = 30.0
_MAX_RESPONSE_BYTES = 1024 * 1024
_MAX_PHRASE = 100
_LIMITS = ResponseLimits(_MAX_RESPONSE_BYTES)


async def renew(config: OAuth, login: Login, file: TokenFile) -> Login | None:
    """Get a new access token with the refresh token of `login`; None if the server no longer accepts it."""
    storage = LoginStorage(file)
    provider = PersonProvider(config, file.server, login, storage, expired=True)
    return await _drive(provider, storage, None, EndpointPolicy(file.server, config.issuer))


async def use_credentials(
    config: ClientCredentials | PrivateKeyJwt | WorkloadIdentity, challenge: Challenge, file: TokenFile
) -> Login | None:
    """Get an access token with the configured credentials; None if the server gives none."""
    storage = LoginStorage(file)
    provider = credentials_provider(config, file.server, storage)
    return await _drive(provider, storage, challenge, EndpointPolicy(file.server, config.issuer))


async def log_in(
    config: OAuth,
    login: Login | None,
    challenge: Challenge,
    file: TokenFile,
    *,
    scope: str | None,
    open_browser: OpenBrowser,
    seconds: float,
) -> Login | None:
    """Let a person log in within `seconds`. `scope` replaces the server's suggestion."""
    # The port of this machine in the redirect URI of an earlier registration.
    port = urlsplit(login.redirect_uri).port if login is not None and login.redirect_uri is not None else None
    if login is not None and not challenge.wants_more:
        # Keep the registration and the metadata, and drop the tokens.
        login = msgspec.structs.replace(login, access_token=None, refresh_token=None, scope=None)
    storage = LoginStorage(file, keeps_token=challenge.wants_more)
    policy = EndpointPolicy(file.server, config.issuer)
    try:
        async with asyncio.timeout(seconds), browser_login(open_browser, config.redirect_uri, port or 0) as browser:
            if login is not None and not _is_registered_for(login, browser.redirect_uri, challenge.scope, scope):
                login = msgspec.structs.replace(login, client=None)

            async def begin(url: str) -> None:
                await policy.check(url)
                if (page := web_page(url)) is None:
                    shown = escaped_line(url.partition("?")[0])
                    raise OAuthFlowError(f"refused to send a person to {shown}: it hides which host it leads to")
                await browser.begin(page)

            provider = PersonProvider(
                config,
                file.server,
                login,
                storage,
                redirect_uri=browser.redirect_uri,
                scope=scope,
                on_redirect=begin,
                on_callback=browser.finish,
            )
            return await _drive(provider, storage, challenge, policy)
    except TimeoutError as error:
        raise NeedsAuthorization(f"the login at {file.server} was not finished within {seconds:g} s") from error


def _is_registered_for(login: Login, redirect_uri: str, *scopes: str | None) -> bool:
    """Whether the client's registration covers these scopes and the redirect; some authorization servers check it."""
    allowed = (login.client or {}).get("scope")
    wanted = " ".join(scope or "" for scope in scopes).split()
    return login.redirect_uri == redirect_uri and (allowed is None or set(wanted) <= set(allowed.split()))


async def _drive(
    provider: OAuthClientProvider, storage: LoginStorage, challenge: Challenge | None, policy: EndpointPolicy
) -> Login | None:
    """Run the provider's flow until it has a token, or until only an answer to `challenge` could continue it."""
    request, refusal = (challenge or Challenge()).replay(provider.context.server_url)
    async with httpx2.AsyncClient(
        timeout=_REQUEST_SECONDS, follow_redirects=False, event_hooks={"response": [_LIMITS.apply_async]}
    ) as http:
        flow = provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while outgoing is not request:
                outgoing = await flow.asend(await _send(http, outgoing, policy))
            if storage.login is None and challenge is not None:
                outgoing = await flow.asend(refusal)
                while outgoing is not request:
                    outgoing = await flow.asend(await _send(http, outgoing, policy))
        finally:
            await flow.aclose()
    return storage.login


async def _send(http: httpx2.AsyncClient, outgoing: httpx2.Request, policy: EndpointPolicy) -> httpx2.Response:
    url = outgoing.url
    await policy.check(str(url))
    outgoing.extensions["trace"] = policy.trace(str(url))
    try:
        async with asyncio.timeout(_REQUEST_SECONDS):
            response = await http.send(outgoing)
    except TimeoutError as error:
        raise httpx2.ReadTimeout(f"{url.host} did not answer within {_REQUEST_SECONDS:g} s") from error
    if outgoing.method == "POST" and (response.status_code >= 500 or response.status_code == 429):
        # A failure of the server says nothing about the login, and a later attempt may succeed.
        answer = f"{response.status_code} {response.reason_phrase[:_MAX_PHRASE]}".rstrip()
        raise ServerUnavailable(f"the authorization server {url.host} answered {answer}")
    return response
