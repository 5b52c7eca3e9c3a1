"""The keys of limits and issuers in the clients file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gaia.runtime.clock import is_number, require_seconds


class CircuitSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """When a tool that keeps failing is left alone. Durations in seconds. Raises ValueError for unusable figures."""

    failures: int = 5
    """So many failed calls within `window`, without a good one between them, open the circuit."""
    window: float = 60.0
    cooldown: float = 30.0
    """How long calls are refused before one of them is let through as a trial."""

    def __post_init__(self) -> None:
        _require_count("failures", self.failures)
        require_seconds("window", self.window)
        require_seconds("cooldown", self.cooldown)


class Limit(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What may be done at once, in a second, and with one answer. None: no limit. Raises ValueError."""

    concurrent: int | None = None
    """Calls at once."""
    per_second: float | None = None
    """Calls in a second on average: the rate at which a token bucket is filled."""
    burst: int | None = None
    """Calls at once after a pause: the size of the bucket; None for what a second fills, and 1 at least."""
    answer_bytes: int | None = None
    """Of the result of one call, as JSON."""
    circuit: CircuitSettings | None = None
    """For tools only."""

    def __post_init__(self) -> None:
        for name in ("concurrent", "burst", "answer_bytes"):
            if (value := getattr(self, name)) is not None:
                _require_count(_camel(name), value)
        if self.per_second is not None and not (is_number(self.per_second) and 0.001 <= self.per_second <= 1e6):
            raise ValueError(f"perSecond: must be a number from 0.001 to 1000000, got {self.per_second!r}")
        if self.burst is not None and self.per_second is None:
            raise ValueError("burst: means nothing without perSecond")


class ClientLimits(Limit, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The limits of one client: all its calls together, those to one server, those of one tool."""

    per_server: Mapping[str, Limit] = msgspec.field(default_factory=dict)
    """By globs of the servers' names. Each glob that matches counts, and each server that it matches by itself."""
    per_tool: Mapping[str, Limit] = msgspec.field(default_factory=dict)
    """By globs as in ``enabledTools``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_circuits_of_tools(self, *self.per_server.values())


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The limits of all clients together, and those of clients whose profile says nothing else."""

    per_client: ClientLimits | None = None
    """For each client whose profile has no limits."""
    per_server: Mapping[str, Limit] = msgspec.field(default_factory=dict)
    """As in `ClientLimits`, for all clients together."""
    per_tool: Mapping[str, Limit] = msgspec.field(default_factory=dict)
    waiting: int = 1024
    """Calls of all clients that may wait at once because of limits; more are refused."""
    waiting_per_client: int = 256
    connections_per_client: int | None = None
    """None: half of what the HTTP server takes."""
    streams_per_client: int = 250
    """Streams that a client has open: GET, and subscriptions/listen."""
    body_bytes_per_client: int = 128 * 1024 * 1024
    """Of requests with large bodies, from their beginning to their answer."""
    unread_bytes_per_client: int = 128 * 1024 * 1024
    """Of responses that wait until the client reads them."""
    instances_per_client: int | None = None
    """Processes of one server for the sessions and handles of a client. None: half of the server's `maxInstances`."""
    handles_per_client: int = 250
    max_wait: float = 10.0
    """Seconds that a call waits because of limits, at most; the deadline of the call holds besides."""

    def __post_init__(self) -> None:
        _require_count("waiting", self.waiting)
        for name, value in msgspec.structs.asdict(self).items():
            if name.endswith("_per_client") and value is not None:
                _require_count(_camel(name), value)
        require_seconds("maxWait", self.max_wait)
        _require_circuits_of_tools(*self.per_server.values())


def _require_count(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name}: must be a whole number from 1 upwards, got {value!r}")


def _require_circuits_of_tools(*limits: Limit) -> None:
    if any(limit.circuit is not None for limit in limits):
        raise ValueError("circuit: means nothing here; it belongs into an entry of perTool")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


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
