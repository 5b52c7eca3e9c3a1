"""`Checks`: the limits, shares, audit and counts that every call of a gateway passes."""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate

from gaia.mcp.gateway.access.audit import Audit, AuditEntry, shown_text
from gaia.mcp.gateway.access.limits import Limits
from gaia.mcp.gateway.access.principal import Principal, metric_name
from gaia.mcp.gateway.access.settings import GatewayLimits
from gaia.runtime.log import get_logger
from gaia.runtime.rates import EventRate

logger = get_logger(__name__)

_USUAL = frozenset({"no_token", "unknown_session"})
"""Reasons that are counted but not logged: a client's first request before its login, and an ended session."""

_SECONDS = 60.0


class Refusals:
    """Counts refused requests, and reports them to the log and the audit. For the gateway's event loop."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.audit: Audit | None = None
        self._rate = EventRate(_SECONDS)

    def note(self, reason: str, error: str, method: str, address: str | None, client: str | None = None) -> None:
        """Record a refused request. `error` is the message to the client, `method` the method of HTTP or of MCP.

        `reason` is ``no_token``, ``wrong_token``, ``no_rights``, ``unknown_handle``, ``foreign_session``,
        ``unknown_session`` or ``over_limit``. `client` is the client's name, if it is known. No argument may contain a
        secret.
        """
        self.counts[reason] += 1
        if reason in _USUAL:
            return
        suppressed = self._rate.passes((reason, address, client))
        if suppressed is None:
            return
        logger.warning(
            "gateway_access_refused", reason=reason, address=address, client=client, error=error, suppressed=suppressed
        )
        if self.audit is not None:
            entry = AuditEntry(
                time=datetime.now(UTC),
                client=client or "unknown",
                address=address,
                method=shown_text(method),
                outcome=reason,
                delivery="not_sent",
                seconds=0.0,
                suppressed=suppressed,
                trace=secrets.token_hex(16),
            )
            self.audit.record(entry, lambda: None)


RETRY_SECONDS = 1
"""Seconds after which a client that has used its share may try again."""


class OverShare(Exception):
    """The client has used its share. The message names the share, and the key that raises it."""


class LargerThanShare(OverShare):
    """The request alone is larger than the client's share, so a retry cannot succeed."""


class Shares:
    """The present use of each client: streams, bytes of bodies and unread bytes. For the gateway's event loop."""

    def __init__(self, refusals: Refusals) -> None:
        self.settings = GatewayLimits()
        self._refusals = refusals
        self._used: Counter[tuple[str, str]] = Counter()

    def take_stream(self, client: str, address: str | None) -> Callable[[], None]:
        """Count a stream until the returned function is called. Raises `OverShare`."""
        return self._take(client, "streams", 1, self.settings.streams_per_client, "streamsPerClient", address)

    def take_body(self, client: str, size: int, address: str | None) -> Callable[[], None]:
        """Count the bytes of a body until the returned function is called. Raises `OverShare` or `LargerThanShare`."""
        most = self.settings.body_bytes_per_client
        if size > most:
            message = (
                f"the body has up to {size} bytes, and client {client!r} may send {most} at once; send "
                "a smaller one, or raise 'bodyBytesPerClient' of \"limits\" in the clients file"
            )
            self._refusals.note("over_limit", message, "bodyBytesPerClient", address, client)
            raise LargerThanShare(message)
        return self._take(client, "bytes of open requests", size, most, "bodyBytesPerClient", address)

    def check_unread(self, client: str, unread: int, address: str | None) -> None:
        """Raise `OverShare` if a client has left too many bytes of responses unread."""
        most = self.settings.unread_bytes_per_client
        if unread > most:
            raise self.over(
                client, f"{unread} bytes of responses that it does not read", "unreadBytesPerClient", address
            )

    def over(self, client: str, what: str, key: str, address: str | None) -> OverShare:
        """Record a refusal, and return its error. `what` is the amount in words, `key` the setting that allows more."""
        message = (
            f'client {client!r} has {what}, and limits allow no more; raise {key!r} of "limits" in the clients file'
        )
        self._refusals.note("over_limit", message, key, address, client)
        return OverShare(message)

    def _take(
        self, client: str, what: str, amount: int, most: int, key: str, address: str | None
    ) -> Callable[[], None]:
        place = (client, what)
        if self._used[place] + amount > most:
            raise self.over(client, f"{self._used[place]} {what}", key, address)
        self._used[place] += amount
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._used[place] -= amount
                if not self._used[place]:
                    del self._used[place]

        return release


BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper bounds of the buckets of durations, in seconds."""


@dataclass(slots=True)
class _Durations:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """Number of calls in each bucket. The last bucket has calls that took longer than the last bound."""
    seconds: float = 0.0


class CallCounts:
    """Counts ended calls. For the gateway's event loop.

    `add` runs for every call, so the sums are computed by readers. All clients of an issuer count as one, so the
    configuration bounds the number of counters.
    """

    def __init__(self) -> None:
        self.ended: Counter[tuple[str, str, str]] = Counter()
        """By client (empty without client names), server and outcome."""
        self._durations: defaultdict[tuple[str, str], _Durations] = defaultdict(_Durations)

    def add(self, client: Principal | None, server: str, outcome: str, seconds: float) -> None:
        name = metric_name(None if client is None else client.name)
        self.ended[name, server, outcome] += 1
        durations = self._durations[name, server]
        durations.counts[bisect_left(BOUNDS, seconds)] += 1
        durations.seconds += seconds

    def durations(self) -> dict[tuple[str, str], tuple[list[int], float]]:
        """By client and server: the number of calls within each bound, then of all calls; and their seconds."""
        return {key: (list(accumulate(one.counts)), one.seconds) for key, one in self._durations.items()}


@dataclass
class Checks:
    limits: Limits | None = None
    audit: Audit | None = None
    counts: CallCounts = field(default_factory=CallCounts)
    refusals: Refusals = field(default_factory=Refusals)
    shares: Shares = field(init=False)
    withheld: EventRate = field(default_factory=lambda: EventRate(10.0))
    """Limits how often the gateway logs that it withheld the text of an error."""

    def __post_init__(self) -> None:
        self.shares = Shares(self.refusals)
