"""`Issuers`: judges access tokens by the issuers of the clients file. Imports PyJWT."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

from gaia.mcp.gateway.access.access_token import BadToken, claimed_issuer
from gaia.mcp.gateway.access.clients_file import ClientsFile
from gaia.mcp.gateway.access.gate import Scheduler
from gaia.mcp.gateway.access.issuer import Issuer, KeysNeeded, NoProfile
from gaia.mcp.gateway.access.issuer_keys import Done, FetchInThread, IssuerKeys, NoKey
from gaia.mcp.gateway.access.issuer_settings import IssuerSettings
from gaia.mcp.gateway.access.key_fetch import KeysUnavailable, fetch_keys
from gaia.mcp.gateway.access.principal import Pending, Principal, Refused
from gaia.mcp.gateway.access.protected_resource import ProtectedResource
from gaia.runtime.threads import DaemonPool

Fetching = Callable[[IssuerSettings], FetchInThread]


class Issuers:
    """Those of one clients file. For one event loop."""

    def __init__(
        self,
        clients: ClientsFile,
        scheduler: Scheduler,
        fetching: Fetching,
        before: Issuers | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`fetching` makes what fetches an issuer's keys, see `KeyFetcher`. Nothing is fetched yet.

        Keys of issuers that were the same in `before` are kept. `now` is the time of day, by which tokens expire.
        """
        assert clients.resource is not None, "a file with issuers names the resource"
        scopes = [scope for settings in clients.issuers.values() for scope in settings.scopes]
        urls = [settings.issuer for settings in clients.issuers.values()]
        self.resource = ProtectedResource(clients.resource, urls, scopes)
        known = {} if before is None else before._issuers
        self._issuers: dict[str, Issuer] = {}
        """By the URL that tokens have in their claim ``iss``."""
        for name, settings in clients.issuers.items():
            same = known.get(settings.issuer)
            if same is not None and same.settings == settings:
                keys = same.keys
            else:
                keys = IssuerKeys(settings.issuer, fetching(settings), scheduler)
            self._issuers[settings.issuer] = Issuer(name, settings, clients.profiles, keys, now)

    def judge(self, token: str, path: str) -> Principal | Refused | Pending:
        """The client of a token that has the form of a JWT, for the endpoint at `path`."""
        issuer = self._issuers.get(claimed_issuer(token) or "")
        if issuer is None:
            return self._invalid("it is of no issuer that is known here", path)
        try:
            return self._client_of(token, issuer, path)
        except KeysNeeded:
            pending = Pending()
            if issuer.keys.when_fetched(lambda: pending.settle(self._after_fetch(token, issuer, path))):
                return pending
            return _unavailable("Too many requests wait for the keys of the token's issuer")

    def _after_fetch(self, token: str, issuer: Issuer, path: str) -> Principal | Refused:
        try:
            return self._client_of(token, issuer, path)
        except KeysNeeded:
            return _unavailable("The keys of the token's issuer cannot be had")

    def _client_of(self, token: str, issuer: Issuer, path: str) -> Principal | Refused:
        """Raises `KeysNeeded`."""
        own = [] if issuer.settings.audience is None else [issuer.settings.audience]
        # The gateway as a whole, or this endpoint of it.
        audiences = [*own, *dict.fromkeys((self.resource.identifier("/mcp"), self.resource.identifier(path)))]
        try:
            return issuer.principal(token, audiences)
        except BadToken as error:
            return self._invalid(str(error), path)
        except NoKey as error:
            if error.is_outage:
                return _unavailable("The keys of the token's issuer cannot be had")
            return self._invalid("its issuer has no such key", path)
        except NoProfile:
            message = "The token gives no right to anything here"
            header = self.resource.challenge(path, "insufficient_scope", message)
            return Refused(403, message, header, reason="no_rights")

    def _invalid(self, reason: str, path: str) -> Refused:
        message = f"The token is refused: {reason}"
        return Refused(401, message, self.resource.challenge(path, "invalid_token", message), reason="wrong_token")


class KeyFetcher:
    """Makes what fetches an issuer's keys: in threads of its own, which report to `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # A fetch that hangs must not keep another issuer's keys from being fetched.
        self._pool = DaemonPool("mcp-gateway-keys", 4)

    def __call__(self, settings: IssuerSettings) -> FetchInThread:
        return functools.partial(self._begin, settings)

    def close(self) -> None:
        """Let the threads end, and wait for none of them."""
        self._pool.close()

    def _begin(self, settings: IssuerSettings, done: Done) -> None:
        self._pool.submit(lambda: self._fetch(settings, done), keep=True)

    def _fetch(self, settings: IssuerSettings, done: Done) -> None:
        result: list[dict[str, Any]] | KeysUnavailable
        try:
            result = fetch_keys(settings)
        except KeysUnavailable as error:
            result = error
        # The loop is closed if the gateway has ended meanwhile.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(done, result)


def _unavailable(message: str) -> Refused:
    return Refused(503, message, retry_after=5)
