"""`Issuers`: verifies access tokens (JWTs, RFC 9068) by the issuers of the clients file. Imports PyJWT."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jwt

from gaia.mcp.gateway.access.clients_file import ClientsFile
from gaia.mcp.gateway.access.gate import Scheduler
from gaia.mcp.gateway.access.issuer_keys import Done, IssuerKeys, KeysUnavailable, TokenRefused, fetch_keys
from gaia.mcp.gateway.access.principal import Pending, Principal, ProtectedResource
from gaia.mcp.gateway.access.profile import Profile
from gaia.mcp.gateway.access.settings import IssuerSettings, claim_values
from gaia.runtime.threads import DaemonPool
from gaia.serving.guards import Refused

LEEWAY_SECONDS = 30.0
"""Largest accepted difference between the clocks of issuer and gateway."""

_TYPES = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})
"""Accepted values of the header ``typ``. Other types, such as logout tokens, are no access tokens."""

_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""Type of key (``kty``) of each algorithm, by the first letters of its name."""


def claimed_issuer(token: str) -> str | None:
    """The issuer that a token claims. Nothing is verified: the claim only selects the keys to try."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.InvalidTokenError, RecursionError):
        return None
    issuer = claims.get("iss")
    return issuer if isinstance(issuer, str) else None


def signing_key_id(token: str, settings: IssuerSettings) -> str | None:
    """The ``kid`` in the token's header, if any. Raises `TokenRefused` for a type or algorithm that is not accepted."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.InvalidTokenError, RecursionError):
        raise TokenRefused("it is no JWT") from None
    kind = header.get("typ")
    if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
        raise TokenRefused("it is no access token, by its type")
    if header.get("alg") not in settings.algorithms:
        raise TokenRefused("its algorithm is not one of those that are allowed")
    kid = header.get("kid")
    return kid if isinstance(kid, str) else None


def verified_claims(
    token: str, settings: IssuerSettings, keys: Iterable[Mapping[str, Any]], audiences: list[str]
) -> dict[str, Any]:
    """Verify a token of this issuer for one of `audiences`, and return its claims. Raises `TokenRefused`."""
    algorithm = jwt.get_unverified_header(token)["alg"]
    problem = "it is signed with another key"
    for key in keys:
        if key.get("kty") != _KEY_TYPES[algorithm[:2]] or key.get("use", "sig") != "sig":
            continue
        if key.get("alg", algorithm) != algorithm:
            continue
        try:
            claims = jwt.decode(
                token,
                jwt.PyJWK(dict(key), algorithm),
                algorithms=[algorithm],
                issuer=settings.issuer,
                audience=audiences,
                leeway=LEEWAY_SECONDS,
                options={"require": ["iss", "aud", "exp"]},
            )
            # The number may be too large for a float.
            float(claims["exp"])
        except jwt.InvalidSignatureError:
            continue
        except (jwt.PyJWKError, jwt.InvalidKeyError):
            problem = "its key cannot be used"
        except jwt.ExpiredSignatureError:
            raise TokenRefused("it has expired") from None
        except jwt.InvalidAudienceError:
            raise TokenRefused("it was issued for another resource") from None
        except (jwt.InvalidTokenError, OverflowError) as error:
            raise TokenRefused(f"it is not valid: {type(error).__name__}") from None
        else:
            return claims
    raise TokenRefused(problem)


_MAX_VERIFIED = 4096
_MAX_NAME = 256


class _Verified(NamedTuple):
    principal: Principal
    expires: float
    generation: int
    kid: str | None


@dataclass(eq=False)
class Issuer:
    """Verifies the tokens of one issuer, and remembers valid ones. For one event loop."""

    name: str
    settings: IssuerSettings
    _profiles: Mapping[str, Profile]
    keys: IssuerKeys
    _now: Callable[[], float] = time.time
    """Returns the time of day in seconds since the epoch, by which tokens expire."""
    _verified: OrderedDict[bytes, _Verified] = field(default_factory=OrderedDict, init=False)
    """By the hash of token and audiences, least recently used first."""

    def principal(self, token: str, audiences: list[str]) -> Principal | None:
        """The client of a token; None while the issuer's keys are fetched. Raises `TokenRefused`."""
        digest = hashlib.sha256("\n".join((token, *audiences)).encode()).digest()
        known = self._verified.get(digest)
        # The key of a remembered token is checked too, because the issuer may have withdrawn it.
        kid = signing_key_id(token, self.settings) if known is None else known.kid
        candidates = self.keys.candidates(kid)
        if candidates is None:
            return None
        if known is not None and known.expires > self._now() and known.generation == self.keys.generation:
            self._verified.move_to_end(digest)
            return known.principal
        claims = verified_claims(token, self.settings, candidates, audiences)
        principal = self._principal_of(claims)
        if len(self._verified) >= _MAX_VERIFIED:
            self._verified.popitem(last=False)
        self._verified[digest] = _Verified(principal, float(claims["exp"]), self.keys.generation, kid)
        return principal

    def _principal_of(self, claims: Mapping[str, Any]) -> Principal:
        names = claim_values(claims, self.settings.name_claim)
        if len(names) != 1 or not names[0].isprintable() or not 0 < len(names[0]) <= _MAX_NAME:
            raise TokenRefused(f"it names no client: its claim {self.settings.name_claim!r} is no usable name")
        profile = self.settings.profile_of(claims)
        if profile is None:
            raise TokenRefused("The token gives no right to anything here", 403)
        expires = float(claims["exp"]) + LEEWAY_SECONDS
        return Principal(f"{self.name}/{names[0]}", self._profiles[profile], self.settings, expires)


class Issuers:
    def __init__(
        self,
        clients: ClientsFile,
        scheduler: Scheduler,
        fetch: Callable[[IssuerSettings, Done], None],
        before: Issuers | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`fetch` fetches an issuer's keys, see `fetch_in_thread`. The constructor fetches none.

        Issuers of `before` with the same settings keep their keys. `now` returns the time of day, by which tokens
        expire.
        """
        assert clients.resource is not None, "a file with issuers names the resource"
        scopes = [scope for settings in clients.issuers.values() for scope in settings.scopes]
        urls = [settings.issuer for settings in clients.issuers.values()]
        self.resource = ProtectedResource(clients.resource, urls, scopes)
        known = {} if before is None else before._issuers
        self._issuers: dict[str, Issuer] = {}
        for name, settings in clients.issuers.items():
            same = known.get(settings.issuer)
            if same is not None and same.settings == settings:
                keys = same.keys
            else:
                keys = IssuerKeys(settings.issuer, functools.partial(fetch, settings), scheduler)
            self._issuers[settings.issuer] = Issuer(name, settings, clients.profiles, keys, now)

    def judge(self, token: str, path: str) -> Principal | Refused | Pending:
        issuer = self._issuers.get(claimed_issuer(token) or "")
        if issuer is None:
            return self._refused(TokenRefused("it is of no issuer that is known here"), path)
        found = self._client_of(token, issuer, path)
        if found is not None:
            return found
        pending = Pending()

        def fetched() -> None:
            client = self._client_of(token, issuer, path)
            pending.settle(client or _unavailable("The keys of the token's issuer cannot be had"))

        if issuer.keys.when_fetched(fetched):
            return pending
        return _unavailable("Too many requests wait for the keys of the token's issuer")

    def _client_of(self, token: str, issuer: Issuer, path: str) -> Principal | Refused | None:
        """The client of a token; None while the issuer's keys are fetched."""
        own = [] if issuer.settings.audience is None else [issuer.settings.audience]
        # The audience may be the whole gateway or this endpoint.
        audiences = [*own, *dict.fromkeys((self.resource.identifier("/mcp"), self.resource.identifier(path)))]
        try:
            return issuer.principal(token, audiences)
        except TokenRefused as refused:
            return self._refused(refused, path)

    def _refused(self, error: TokenRefused, path: str) -> Refused:
        if error.status == 503:
            return _unavailable("The keys of the token's issuer cannot be had")
        if error.status == 403:
            message = str(error)
            header = self.resource.challenge(path, "insufficient_scope", message)
            return Refused(403, message, header, reason="no_rights")
        message = f"The token is refused: {error}"
        return Refused(401, message, self.resource.challenge(path, "invalid_token", message), reason="wrong_token")


def fetch_in_thread(pool: DaemonPool, loop: asyncio.AbstractEventLoop, settings: IssuerSettings, done: Done) -> None:
    def fetch() -> None:
        result: list[dict[str, Any]] | KeysUnavailable
        try:
            result = fetch_keys(settings)
        except KeysUnavailable as error:
            result = error
        # The loop is closed if the gateway has stopped in the meantime.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(done, result)

    pool.submit(fetch, keep=True)


def _unavailable(message: str) -> Refused:
    return Refused(503, message, ((b"retry-after", b"5"),))
