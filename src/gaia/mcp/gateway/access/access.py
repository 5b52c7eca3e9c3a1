"""`Access`: which client a request comes from, by its bearer token, and what it is answered if it may not pass."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from collections.abc import Callable, Mapping
from typing import Any

from gaia.daemon_pool import DaemonPool
from gaia.mcp.gateway.access.access_token import BadToken, claimed_issuer
from gaia.mcp.gateway.access.client_token import hash_of
from gaia.mcp.gateway.access.clients_file import ClientEntry, ClientsFile
from gaia.mcp.gateway.access.gate import Scheduler
from gaia.mcp.gateway.access.issuer import Issuer, KeysNeeded, NoProfile
from gaia.mcp.gateway.access.issuer_keys import Done, FetchInThread, IssuerKeys, NoKey
from gaia.mcp.gateway.access.issuer_settings import IssuerSettings
from gaia.mcp.gateway.access.key_fetch import KeysUnavailable, fetch_keys
from gaia.mcp.gateway.access.limits import Limits
from gaia.mcp.gateway.access.principal import ANONYMOUS, Pending, Principal, Refused
from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.mcp.gateway.access.protected_resource import ProtectedResource, challenge

__all__ = ["OPEN", "Access", "fetching_on"]

_MAX_TOKEN = 16 * 1024
"""Bytes; longer ones are refused before anything is made of them."""

OPEN = ClientsFile(anonymous=EVERYTHING)
"""For a gateway without a clients file, which only this machine can reach: each request may do everything."""


class Access:
    """The clients of one gateway, and their limits. For the gateway's event loop."""

    def __init__(
        self,
        clients: ClientsFile,
        scheduler: Scheduler,
        fetching: Callable[[IssuerSettings], FetchInThread],
        now: Callable[[], float] = time.time,
    ) -> None:
        """`scheduler` is the event loop, `fetching` makes what fetches an issuer's keys, see `fetching_on`.

        `now` is the time of day, by which tokens expire. Nothing is fetched before a token needs it.
        """
        self._scheduler = scheduler
        self._fetching = fetching
        self._now = now
        self._issuers: dict[str, Issuer] = {}
        self.limits = Limits(clients.limits, scheduler)
        self._set(clients)

    @property
    def knows_clients(self) -> bool:
        """Whether there is any client with a token, or an issuer of tokens."""
        return bool(self._clients.clients or self._clients.issuers)

    @property
    def admits_anonymous(self) -> bool:
        """Whether a request without a token may do anything; then only this machine should reach the gateway."""
        return self._clients.anonymous is not None

    def profile(self, name: str) -> Profile | None:
        """The profile of this name, for ``/mcp/@<name>``; None if there is none."""
        return self._clients.profiles.get(name)

    def metadata(self, path: str) -> bytes | None:
        """The document of RFC 9728 at `path`, as JSON; None if there is none. It needs no token."""
        return None if self._resource is None else self._resource.document(path)

    def authenticate(self, headers: Mapping[bytes, bytes], path: str) -> Principal | Refused | Pending:
        """The client that a request to the endpoint at `path` comes from. Names of `headers` are in lower case.

        `Pending` comes only with access tokens whose issuer's keys are not there yet.
        """
        given = headers.get(b"authorization")
        if given is None:
            if self._anonymous is not None:
                return self._anonymous
            return self._unauthorized(None, "A bearer token is needed", path)
        scheme, _, rest = given.partition(b" ")
        token = rest.strip()
        if scheme.lower() != b"bearer" or not token or len(token) > _MAX_TOKEN:
            return self._unauthorized("invalid_request", "The header Authorization has to be: Bearer <token>", path)
        digest = hash_of(token)
        found = self._by_hash.get(digest)
        # How long the lookup takes says something about the hash of the token, from which no token follows.
        if found is not None and hmac.compare_digest(found[1].token, digest):
            principal, entry = found
            if entry.expires is not None and self._now() >= entry.expires.timestamp():
                return self._unauthorized("invalid_token", "The token has expired", path)
            return principal
        if self._issuers and token.isascii() and token.count(b".") == 2:
            return self._judge(token.decode("ascii"), path)
        return self._unauthorized("invalid_token", "The token is not known here", path)

    def is_current(self, principal: Principal) -> bool:
        """Whether there still is such a client, after `change`: what it has open has to end otherwise."""
        if principal == ANONYMOUS:
            return self._anonymous is not None
        issuer, _, subject = principal.name.partition("/")
        return issuer in self._issuers if subject else principal.name in self._clients.clients

    def change(self, clients: ClientsFile) -> None:
        """Continue with other clients, profiles and limits. Keys of issuers that stay are kept."""
        self._set(clients)
        self.limits.change(clients.limits)

    def _set(self, clients: ClientsFile) -> None:
        self._clients = clients
        self._by_hash: dict[str, tuple[Principal, ClientEntry]] = {
            entry.token: (Principal(name, clients.profiles[entry.profile], name), entry)
            for name, entry in clients.clients.items()
        }
        self._issuers = {name: self._issuer(name, settings, clients) for name, settings in clients.issuers.items()}
        self._by_issuer = {issuer.settings.issuer: issuer for issuer in self._issuers.values()}
        self._anonymous = (
            None if clients.anonymous is None else Principal(ANONYMOUS.name, clients.anonymous, ANONYMOUS.label)
        )
        self._resource = None
        if clients.resource is not None and clients.issuers:
            scopes = [scope for settings in clients.issuers.values() for scope in settings.scopes]
            self._resource = ProtectedResource(clients.resource, self._by_issuer, scopes)

    def _issuer(self, name: str, settings: IssuerSettings, clients: ClientsFile) -> Issuer:
        known = self._issuers.get(name)
        if known is not None and known.settings == settings:
            keys = known.keys
        else:
            keys = IssuerKeys(settings.issuer, self._fetching(settings), self._scheduler)
        return Issuer(name, settings, clients.profiles, keys, self._now)

    def _judge(self, token: str, path: str) -> Principal | Refused | Pending:
        """The client of an access token."""
        issuer = self._by_issuer.get(claimed_issuer(token) or "")
        if issuer is None:
            return self._unauthorized("invalid_token", "The token is of no issuer that is known here", path)
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
        try:
            return issuer.principal(token, self._audiences(issuer.settings, path))
        except BadToken as error:
            return self._unauthorized("invalid_token", f"The token is refused: {error}", path)
        except NoKey as error:
            if error.is_outage:
                return _unavailable("The keys of the token's issuer cannot be had")
            return self._unauthorized("invalid_token", "The token is refused: its issuer has no such key", path)
        except NoProfile:
            message = "The token gives no right to anything here"
            return Refused(403, message, challenge("insufficient_scope", message, self._resource, path))

    def _audiences(self, settings: IssuerSettings, path: str) -> list[str]:
        """What a token may be issued for: the gateway as a whole, or this endpoint of it."""
        whole = [] if settings.audience is None else [settings.audience]
        if self._resource is not None:
            whole += dict.fromkeys((self._resource.identifier("/mcp"), self._resource.identifier(path)))
        return whole

    def _unauthorized(self, error: str | None, message: str, path: str) -> Refused:
        return Refused(401, message, challenge(error, message if error else None, self._resource, path))


def fetching_on(loop: asyncio.AbstractEventLoop) -> Callable[[IssuerSettings], FetchInThread]:
    """Fetches keys in threads of its own, and reports to `loop`."""
    # One that hangs must not keep another issuer's keys from being fetched.
    pool = DaemonPool("mcp-gateway-keys", 4)

    def fetching(settings: IssuerSettings) -> FetchInThread:
        def fetch(done: Done) -> None:
            def task() -> None:
                result: list[dict[str, Any]] | KeysUnavailable
                try:
                    result = fetch_keys(settings)
                except KeysUnavailable as error:
                    result = error
                # The loop is closed if the gateway has ended meanwhile.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(done, result)

            pool.submit(task)

        return fetch

    return fetching


def _unavailable(message: str) -> Refused:
    return Refused(503, message, retry_after=5)
