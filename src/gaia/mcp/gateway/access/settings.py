"""Settings in the clients file: limits of calls, and issuers of access tokens."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=365 * 24 * 3600)]


class _Checked(msgspec.Struct, frozen=True):
    """Checks its annotations also when Python code makes it; msgspec does so only while it decodes."""

    def __post_init__(self) -> None:
        for field in _fields_of(type(self)):
            try:
                msgspec.convert(getattr(self, field.name), field.type)
            except msgspec.ValidationError as error:
                raise ValueError(f"{field.encode_name}: {error}") from None


_fields_of = functools.cache(msgspec.structs.fields)


class CircuitSettings(_Checked, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Settings of a tool's circuit breaker. Durations in seconds. Raises ValueError."""

    failures: Count = 5
    """Failed calls within `window`, without a success between them, that open the circuit."""
    window: Seconds = 60.0
    cooldown: Seconds = 30.0
    """How long calls are refused before one call is let through as a trial."""


class Limit(_Checked, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Bounds on concurrent calls, calls per second and size of an answer. None: no bound. Raises ValueError."""

    concurrent: Count | None = None
    per_second: Annotated[float, msgspec.Meta(ge=0.001, le=1e6)] | None = None
    """Average calls per second: the rate at which the token bucket is filled."""
    burst: Count | None = None
    """Size of the token bucket; None means the tokens of one second, and at least 1."""
    answer_bytes: Count | None = None
    circuit: CircuitSettings | None = None
    """Only in limits of tools."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.burst is not None and self.per_second is None:
            raise ValueError("burst: means nothing without perSecond")


class ClientLimits(Limit, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The limits of one client: for all its calls, for the calls to one server, and for the calls of one tool."""

    per_server: Mapping[str, Limit] = msgspec.field(default_factory=dict)
    """By globs of server names. Every matching glob applies, to each matching server separately."""
    per_tool: Mapping[str, Limit] = msgspec.field(default_factory=dict)
    """By globs as in ``enabledTools``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_circuits_of_tools(self, *self.per_server.values())


class GatewayLimits(_Checked, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The limits of all clients together, and the default limits of one client. Raises ValueError."""

    per_client: ClientLimits | None = None
    """For each client whose profile sets no limits."""
    per_server: Mapping[str, Limit] = msgspec.field(default_factory=dict)
    """As in `ClientLimits`, for all clients together."""
    per_tool: Mapping[str, Limit] = msgspec.field(default_factory=dict)
    waiting: Count = 1024
    """Calls of all clients that may wait for limits at once. Further calls are refused."""
    waiting_per_client: Count = 256
    connections_per_client: Count | None = None
    """None: half of the connections that the HTTP server accepts."""
    streams_per_client: Count = 250
    """Open streams of a client: GET and ``subscriptions/listen``."""
    body_bytes_per_client: Count = 128 * 1024 * 1024
    """Most bytes of a client's open requests with large bodies."""
    unread_bytes_per_client: Count = 128 * 1024 * 1024
    """Most bytes of responses that wait for a client to read them."""
    instances_per_client: Count | None = None
    """Processes of one server for a client's sessions and handles. None means half of the server's `maxInstances`."""
    handles_per_client: Count = 250
    max_wait: Seconds = 10.0
    """How long a call may wait for limits. The deadline of the call applies too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_circuits_of_tools(*self.per_server.values())


def _require_circuits_of_tools(*limits: Limit) -> None:
    if any(limit.circuit is not None for limit in limits):
        raise ValueError("circuit: means nothing here; it belongs into an entry of perTool")


ASYMMETRIC_ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Algorithms of RFC 7518 and RFC 8037. Those with a shared secret are missing: the verifier could make tokens."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ClaimRule(_Checked, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Gives `profile` to tokens whose `claim` contains `value`; without `claim`, to all tokens. Raises ValueError."""

    profile: str
    claim: str | None = None
    """The name of a claim such as ``groups``. Dots between names lead into nested claims."""
    value: str | None = None
    """One of the strings in the claim: a word of ``scope``, an element of a list, or the whole string."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.claim is None) != (self.value is None):
            raise ValueError("claim and value: give both, or neither for all tokens")

    def matches(self, claims: Mapping[str, Any]) -> bool:
        return self.claim is None or self.value in claim_values(claims, self.claim)


class IssuerSettings(_Checked, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An authorization server whose access tokens (JWT, RFC 9068) the gateway accepts. Raises ValueError."""

    issuer: str
    """The claim ``iss`` of its tokens, and the base of the address of its metadata."""
    profiles: Annotated[list[ClaimRule], msgspec.Meta(min_length=1)]
    """Rules that map a token to a profile. The first rule that matches counts; a token without a match is refused."""
    audience: str | None = None
    """A further accepted value of the claim ``aud``, besides the gateway's own URL (`resource`)."""
    jwks_uri: str | None = None
    """The address of its keys; None to read it from the metadata."""
    algorithms: Annotated[list[str], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["RS256", "PS256", "ES256", "EdDSA"]
    )
    name_claim: str = "sub"
    """The claim that holds the client's name. In the gateway, the name of the issuer precedes it."""
    scopes: list[str] = msgspec.field(default_factory=list)
    """Scopes that the gateway tells clients to request."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_secure_url("issuer", self.issuer)
        if self.jwks_uri is not None:
            require_secure_url("jwksUri", self.jwks_uri)
        for algorithm in self.algorithms:
            if algorithm not in ASYMMETRIC_ALGORITHMS:
                raise ValueError(f"algorithms: {algorithm!r} is none of {', '.join(ASYMMETRIC_ALGORITHMS)}")

    def profile_of(self, claims: Mapping[str, Any]) -> str | None:
        return next((rule.profile for rule in self.profiles if rule.matches(claims)), None)


def require_secure_url(name: str, url: str) -> None:
    """Raise ValueError, naming `name`, unless `url` is https, or http on this machine, without user and fragment."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        # Reading the port raises ValueError if it is invalid.
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    is_secure = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    if not is_secure or not host or parts.username is not None or parts.fragment:
        raise ValueError(f"{name}: must be an https URL (http only on this machine) without user and fragment")


def claim_values(claims: Mapping[str, Any], name: str) -> list[str]:
    """The strings in a claim; empty if it is missing or has another type."""
    value: Any = claims.get(name)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return value.split() if name == "scope" else [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
