"""The keys of an issuer in the clients file: whose access tokens are taken, and which profiles their claims mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

ASYMMETRIC_ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Of RFC 7518 and RFC 8037. Those with a shared secret are not permitted: what verifies a token could make it."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ClaimRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Tokens whose `claim` has `value` get `profile`; without `claim`, all tokens do. Raises ValueError."""

    profile: str
    claim: str | None = None
    """The name of a claim such as ``groups``; for a claim within another one the names with dots between them."""
    value: str | None = None
    """One of the strings in the claim: its words if it is ``scope``, the elements of a list, or all of it."""

    def __post_init__(self) -> None:
        if (self.claim is None) != (self.value is None):
            raise ValueError("claim and value: give both, or neither for all tokens")

    def matches(self, claims: Mapping[str, Any]) -> bool:
        return self.claim is None or self.value in claim_values(claims, self.claim)


class IssuerSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An authorization server whose access tokens (JWT, RFC 9068) are taken. Raises ValueError for unusable values."""

    issuer: str
    """The claim ``iss`` of its tokens, and where its metadata is found."""
    profiles: list[ClaimRule]
    """Which profile a token means; the first rule that matches counts, and a token without one is refused."""
    audience: str | None = None
    """The claim ``aud`` of tokens for this gateway, beside the gateway's own URL (`resource`)."""
    jwks_uri: str | None = None
    """Where its keys are; None to ask its metadata."""
    algorithms: list[str] = msgspec.field(default_factory=lambda: ["RS256", "PS256", "ES256", "EdDSA"])
    name_claim: str = "sub"
    """What a client is called, behind the name of the issuer."""
    scopes: list[str] = msgspec.field(default_factory=list)
    """What clients are told to ask for."""

    def __post_init__(self) -> None:
        require_secure_url("issuer", self.issuer)
        if self.jwks_uri is not None:
            require_secure_url("jwksUri", self.jwks_uri)
        if not self.profiles:
            raise ValueError('profiles: name at least one, such as [{"profile": "everything"}]')
        for algorithm in self.algorithms:
            if algorithm not in ASYMMETRIC_ALGORITHMS:
                raise ValueError(f"algorithms: {algorithm!r} is none of {', '.join(ASYMMETRIC_ALGORITHMS)}")
        if not self.algorithms:
            raise ValueError("algorithms: name at least one")

    def profile_of(self, claims: Mapping[str, Any]) -> str | None:
        """The name of the profile that these claims mean; None for none."""
        return next((rule.profile for rule in self.profiles if rule.matches(claims)), None)


def require_secure_url(name: str, url: str) -> None:
    """Raise ValueError, naming `name`, unless `url` is https, or http on this machine, without user and fragment."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        # Read for its ValueError, which an invalid port raises.
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    is_secure = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    if not is_secure or not host or parts.username is not None or parts.fragment:
        raise ValueError(f"{name}: must be an https URL (http only on this machine) without user and fragment")


def claim_values(claims: Mapping[str, Any], name: str) -> list[str]:
    """The strings in a claim; empty if there is no such claim, or something else in it."""
    value: Any = claims.get(name)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return value.split() if name == "scope" else [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
