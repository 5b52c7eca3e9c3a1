"""`Issuer`: an authorization server whose access tokens are taken, and the clients that they stand for."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gaia.mcp.gateway.access.access_token import LEEWAY_SECONDS, BadToken, signing_key_id, verified_claims
from gaia.mcp.gateway.access.issuer_keys import IssuerKeys
from gaia.mcp.gateway.access.issuer_settings import IssuerSettings, claim_values
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import Profile

_MAX_VERIFIED = 4096
_MAX_NAME = 256


class KeysNeeded(Exception):
    """The token can be judged when the issuer's keys have been fetched, which is under way."""


class NoProfile(Exception):
    """The token is good, and its claims give no right to anything here."""


class _Verified(NamedTuple):
    """A token that was found good."""

    principal: Principal
    expires: float
    generation: int
    """Of the keys that it was verified with."""
    kid: str | None


class Issuer:
    """For one event loop."""

    def __init__(
        self,
        name: str,
        settings: IssuerSettings,
        profiles: Mapping[str, Profile],
        keys: IssuerKeys,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`now` is the time of day, by which tokens expire."""
        self.name = name
        self.settings = settings
        self.keys = keys
        self._profiles = profiles
        self._now = now
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()
        """By the hash of token and audiences, those that were used last at the end. Verifying a signature takes longer
        than relaying a call."""

    def principal(self, token: str, audiences: list[str]) -> Principal:
        """The client of a token. Raises `BadToken`, `NoProfile`, `NoKey` (no such key), and `KeysNeeded`."""
        digest = hashlib.sha256("\n".join((token, *audiences)).encode()).digest()
        known = self._verified.get(digest)
        # Asked also for a token that was verified: the issuer may have withdrawn its key.
        kid = signing_key_id(token, self.settings) if known is None else known.kid
        candidates = self.keys.candidates(kid)
        if candidates is None:
            raise KeysNeeded
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
            raise BadToken(f"it names no client: its claim {self.settings.name_claim!r} is no usable name")
        profile = self.settings.profile_of(claims)
        if profile is None:
            raise NoProfile
        expires = float(claims["exp"]) + LEEWAY_SECONDS
        return Principal(f"{self.name}/{names[0]}", self._profiles[profile], self.settings, expires)
