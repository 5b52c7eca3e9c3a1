"""Deadlines that travel with calls over HTTP to a gateway, whose clock is not the caller's.

Each answer of a gateway has ``Gaia-Clock: <clock id> <milliseconds>``, a reading of the gateway's monotonic clock. Its
clients send ``Gaia-Deadline: <clock id> <milliseconds>`` with a call: the call's deadline as a reading of that clock.
The gateway ignores the deadline if the clock is another gateway's, as happens behind a load balancer. The first request
of a client, which knows no clock yet, has ``Gaia-Timeout: <milliseconds>`` instead: how long the client waits.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

_CLOCK = b"gaia-clock"
_DEADLINE = b"gaia-deadline"
_TIMEOUT = b"gaia-timeout"

_MAX_ID = 64
_MAX_DIGITS = 18

_DRIFT = 0.001
"""By how many seconds two clocks may come apart in one second. Real clocks do by a tenth of it, or less."""


class GatewayClock:
    """The clock of one gateway, as its clients see it. Readings are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._id = secrets.token_hex(8).encode()

    def header(self, now: float) -> tuple[bytes, bytes]:
        """The header of an answer that is sent now."""
        return _CLOCK, b"%b %d" % (self._id, now * 1000)

    def deadline(self, headers: Mapping[bytes, bytes], now: float) -> float | None:
        """The deadline of a request that came now with these headers; None if they have none for this clock."""
        value = headers.get(_DEADLINE)
        if value is None:
            left = headers.get(_TIMEOUT, b"")
            return now + int(left) / 1000 if _is_reading(left) else None
        identifier, _, reading = value.partition(b" ")
        return int(reading) / 1000 if identifier == self._id and _is_reading(reading) else None


class RemoteClock:
    """What a client knows of a gateway's clock. For one thread at a time; others may read it.

    An answer shows that the far clock had passed its reading when the answer arrived. So the far clock is at least as
    far ahead as the fastest answer says, and at most by that answer's round trip further. A deadline that is
    converted by this estimate is never too late. It is too early only by the time that the fastest answer needed for
    its way back, so what is refused because of it could not have been answered in time.
    """

    def __init__(self) -> None:
        self._id = b""
        self._ahead = 0.0
        """By how many seconds the far clock is ahead of this one, at least."""
        self._noted = 0.0

    @property
    def is_known(self) -> bool:
        """Whether the server has shown a clock: it is a gateway then."""
        return bool(self._id)

    def note(self, headers: Mapping[bytes, bytes], now: float) -> None:
        """Note the headers of an answer that has just arrived. Other headers than a gateway's change nothing."""
        value = headers.get(_CLOCK)
        if value is None:
            return
        identifier, _, reading = value.partition(b" ")
        if not _is_reading(reading):
            return
        ahead = int(reading) / 1000 - now
        if identifier != self._id:
            # It is sent back, so nothing may be in it that ends a header.
            if not (identifier.isalnum() and len(identifier) <= _MAX_ID):
                return
            self._id = identifier
        elif ahead < self._ahead - _DRIFT * (now - self._noted):
            return
        self._ahead, self._noted = ahead, now

    def header(self, deadline: float, now: float | None = None) -> bytes:
        """The line of a request's head that tells the deadline.

        Empty if the far clock is unknown; but if `now` is given, the line then tells how much time is left.
        """
        if deadline > _MAX_SECONDS or (not self._id and now is None):
            return b""
        if not self._id and now is not None:
            return b"Gaia-Timeout: %d\r\n" % (max(0.0, deadline - now) * 1000)
        return b"Gaia-Deadline: %b %d\r\n" % (self._id, max(0.0, (deadline + self._ahead) * 1000))


_MAX_SECONDS = 1e12
"""A later deadline is none. Infinite ones are later, too."""


def _is_reading(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _MAX_DIGITS
