"""The keys of limits in the clients file: how much one client, one server or one tool may be used."""

from __future__ import annotations

from collections.abc import Mapping

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
