"""`Access`: finds the client of a request by its bearer token, or refuses the request."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hmac
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gaia.mcp.gateway.access.clients_file import ClientEntry, ClientsFile, hash_of
from gaia.mcp.gateway.access.limits import Limits
from gaia.mcp.gateway.access.principal import ANONYMOUS, Pending, Principal, challenge
from gaia.mcp.gateway.access.profile import Profile
from gaia.runtime.threads import DaemonPool
from gaia.serving.guards import Refused

if TYPE_CHECKING:
    from gaia.mcp.gateway.access.issuers import Issuers

_MAX_TOKEN = 16 * 1024
"""Bytes. Longer tokens are refused without hashing them."""


class Access:
    """The clients of one gateway, and their limits. For the gateway's event loop."""

    def __init__(
        self, clients: ClientsFile, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = time.time
    ) -> None:
        """`now` returns the time of day in seconds since the epoch, by which tokens expire."""
        self._loop = loop
        self._now = now
        self._issuers: Issuers | None = None
        # Several threads: one slow issuer must not delay the others.
        self._pool = DaemonPool("mcp-gateway-keys", 4)
        self.limits = Limits(clients.limits, loop)
        self._set(clients)

    def profile(self, name: str) -> Profile | None:
        return self._clients.profiles.get(name)

    def profile_names(self) -> dict[str, str]:
        return {name: entry.profile for name, entry in self._clients.clients.items()}

    def metadata(self, path: str) -> bytes | None:
        """The document of RFC 9728 at `path`, as JSON; None if there is none. It needs no token."""
        return None if self._issuers is None else self._issuers.resource.document(path)

    def authenticate(self, headers: Mapping[bytes, bytes], path: str) -> Principal | Refused | Pending:
        """The client of a request to the endpoint at `path`. Names of `headers` are in lower case.

        `Pending` is returned only while the keys of an access token's issuer are fetched.
        """
        given = headers.get(b"authorization")
        if given is None:
            if self._anonymous is not None:
                return self._anonymous
            return self._unauthorized(path, None, "A bearer token is needed")
        scheme, _, rest = given.partition(b" ")
        token = rest.strip()
        if scheme.lower() != b"bearer" or not token or len(token) > _MAX_TOKEN:
            return self._unauthorized(path, "invalid_request", "The header Authorization has to be: Bearer <token>")
        digest = hash_of(token)
        found = self._by_hash.get(digest)
        # The time of the lookup depends on the hash of the token, which reveals nothing of a token.
        if found is not None and hmac.compare_digest(found[1].token, digest):
            principal, entry = found
            if entry.expires is not None and self._now() >= entry.expires.timestamp():
                return self._unauthorized(path, "invalid_token", "The token has expired")
            return principal
        if self._issuers is not None and token.isascii() and token.count(b".") == 2:
            return self._issuers.judge(token.decode("ascii"), path)
        return self._unauthorized(path, "invalid_token", "The token is not known here")

    def is_current(self, principal: Principal) -> bool:
        """Whether the client still exists with the same profile, after `change`. Otherwise its sessions end.

        If a rule for an issuer's claims gives another profile, the change counts from the next request on.
        """
        return self._profile_of(principal) == principal.profile

    def admits(self, principal: Principal) -> bool:
        """Whether the token of this client would still be accepted, with the same profile."""
        issuer, _, subject = principal.name.partition("/")
        if not self.is_current(principal):
            return False
        expires = principal.expires
        current: object = None
        if subject:
            current = self._clients.issuers[issuer]
        elif principal != ANONYMOUS:
            entry = self._clients.clients[principal.name]
            current, expires = entry.token, None if entry.expires is None else entry.expires.timestamp()
        return principal.grant == current and (expires is None or self._now() < expires)

    def _profile_of(self, principal: Principal) -> Profile | None:
        clients = self._clients
        issuer, _, subject = principal.name.partition("/")
        if principal == ANONYMOUS:
            return clients.anonymous
        if subject:
            return clients.profiles.get(principal.profile.name) if issuer in clients.issuers else None
        entry = clients.clients.get(principal.name)
        return None if entry is None else clients.profiles[entry.profile]

    def _renewed(self, principal: Principal) -> Principal | None:
        profile = self._profile_of(principal)
        return None if profile != principal.profile else dataclasses.replace(principal, profile=profile)

    def change(self, clients: ClientsFile) -> None:
        self._set(clients)
        self.limits.change(clients.limits, self._renewed)

    def close(self) -> None:
        self._pool.close()

    def _set(self, clients: ClientsFile) -> None:
        self._clients = clients
        self._by_hash: dict[str, tuple[Principal, ClientEntry]] = {
            entry.token: (Principal(name, clients.profiles[entry.profile], entry.token), entry)
            for name, entry in clients.clients.items()
        }
        self._anonymous = None if clients.anonymous is None else Principal(ANONYMOUS.name, clients.anonymous)
        if not clients.issuers:
            self._issuers = None
            return
        # Imported late: most gateways have no issuers, and the library for signatures is slow to import.
        from gaia.mcp.gateway.access.issuers import Issuers, fetch_in_thread

        fetch = functools.partial(fetch_in_thread, self._pool, self._loop)
        self._issuers = Issuers(clients, self._loop, fetch, self._issuers, self._now)

    def _unauthorized(self, path: str, error: str | None, message: str) -> Refused:
        description = None if error is None else message
        if self._issuers is not None:
            header = self._issuers.resource.challenge(path, error, description)
        else:
            header = challenge(realm="gaia-mcp", error=error, error_description=description)
        return Refused(401, message, header, reason="no_token" if error is None else "wrong_token")
