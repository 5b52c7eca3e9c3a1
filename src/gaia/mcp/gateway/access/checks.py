"""`Checks`: the limits, the audit and the counts of a gateway, and how much of it one client may use."""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate

from gaia.mcp.gateway.access.audit import Audit, AuditEntry, shown_text
from gaia.mcp.gateway.access.limit_settings import GatewayLimits
from gaia.mcp.gateway.access.limits import Limits
from gaia.mcp.gateway.access.principal import Principal, Reason, metric_name
from gaia.runtime.log import get_logger
from gaia.runtime.rates import EventRate

logger = get_logger(__name__)

_USUAL = frozenset({"no_token", "unknown_session"})
"""Reasons that are only counted, because they are no attack: the first request of a client that has yet to log in, and
a session that has ended."""

_SECONDS = 60.0


class Refusals:
    """Belongs to the gateway's event loop."""

    def __init__(self) -> None:
        self.counts: Counter[Reason] = Counter()
        self.audit: Audit | None = None
        """None: there is none."""
        self._rate = EventRate(_SECONDS)

    def note(self, reason: Reason, error: str, method: str, address: str | None, client: str | None = None) -> None:
        """A request was refused. `error` is what its client is told, and `method` that of HTTP or of the protocol.

        `client` is the one that it came from; None if that is not known. No argument may have a secret in it.
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
"""When a client that has its share may try again."""


class OverShare(Exception):
    """The client has as much as it may have. The message says of what, and which key allows more."""


class LargerThanShare(OverShare):
    """The client could not have this at any time: it is larger than its whole share."""


class Shares:
    """Those of all clients, by name. Belongs to the gateway's event loop."""

    def __init__(self, refusals: Refusals) -> None:
        """What is refused is noted in `refusals`."""
        self.settings = GatewayLimits()
        self._refusals = refusals
        self._used: Counter[tuple[str, str]] = Counter()

    def take_stream(self, client: str, address: str | None) -> Callable[[], None]:
        """Count a stream until the function returned is called. Raises `OverShare`."""
        return self._take(client, "streams", 1, self.settings.streams_per_client, "streamsPerClient", address)

    def take_body(self, client: str, size: int, address: str | None) -> Callable[[], None]:
        """Count the bytes of a request's body until the function returned is called.

        Raises `OverShare`; of this `LargerThanShare` if trying again would not help.
        """
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
        """Raise `OverShare` if a client has left too many bytes unread to be given more."""
        most = self.settings.unread_bytes_per_client
        if unread > most:
            raise self.over(
                client, f"{unread} bytes of responses that it does not read", "unreadBytesPerClient", address
            )

    def over(self, client: str, what: str, key: str, address: str | None) -> OverShare:
        """The error for a client that has `what`, and may have more only with a higher `key`. It leaves a trace."""
        message = (
            f'client {client!r} has {what}, and limits allow no more; raise {key!r} of "limits" in the clients file'
        )
        self._refusals.note("over_limit", message, key, address, client)
        return OverShare(message)

    def used(self, client: str, what: str) -> int:
        """How much a client has now."""
        return self._used[client, what]

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
"""Seconds."""


class _Durations:
    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        """The last one is for what took longer than any bound."""
        self.seconds = 0.0


class CallCounts:
    """Belongs to the gateway's event loop. Every call comes here, so nothing is done that can be done when it is read.

    The clients of an issuer are counted as one, so there are as many counts as the configuration has clients, servers
    and issuers, and no more.
    """

    def __init__(self) -> None:
        self.ended: dict[tuple[str, str, str], int] = {}
        """By client (empty if clients have no names), server and outcome."""
        self._durations: dict[tuple[str, str], _Durations] = {}

    def add(self, client: Principal | None, server: str, outcome: str, seconds: float) -> None:
        """A call has ended; `outcome` is ``ok``, ``tool_error``, or an error type."""
        name = metric_name(None if client is None else client.name)
        key = (name, server, outcome)
        self.ended[key] = self.ended.get(key, 0) + 1
        durations = self._durations.get((name, server))
        if durations is None:
            durations = self._durations[name, server] = _Durations()
        durations.counts[bisect_left(BOUNDS, seconds)] += 1
        durations.seconds += seconds

    def durations(self) -> dict[tuple[str, str], tuple[list[int], float]]:
        """By client and server: how many calls took no longer than each bound, then all; and their seconds in all."""
        return {key: (list(accumulate(one.counts)), one.seconds) for key, one in self._durations.items()}


@dataclass
class Checks:
    """What calls pass on their way to servers and back. Belongs to the gateway's event loop."""

    limits: Limits | None = None
    """None: there are none."""
    audit: Audit | None = None
    """None: calls are not recorded."""
    counts: CallCounts = field(default_factory=CallCounts)
    refusals: Refusals = field(default_factory=Refusals)
    shares: Shares = field(init=False)
    withheld: EventRate = field(default_factory=lambda: EventRate(10.0))
    """Of log events about errors whose text a client is not shown."""

    def __post_init__(self) -> None:
        self.shares = Shares(self.refusals)
