"""The lease of a host: until when its owners want the server, and the messages about it.

An owner is one channel of a program to the host. It sends a `Beat` to ``/lease`` every third of the lease. A beat may
be delivered late, so it says when it was sent, on the host's own clock.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import msgspec

LEASE_PATH = "/lease"
OWNER = "Gaia-Owner"
"""The header with the random id of an owner."""

FIRST_SECONDS = 60.0
"""How long a host waits for its first owner."""


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    clock: float | None = None
    """The host's clock, as it was in the last answer; None in the first beat, which extends nothing."""
    since: float = 0.0
    """Seconds since that answer has arrived."""
    settings: dict[str, str] | None = None
    """In the first beat: the fingerprints of the entry's values."""


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a beat."""

    state: str
    pid: int | None
    """The process of the server."""
    generation: int
    restarts: int
    owners: int
    clock: float
    memory: int | None = None
    """Bytes of main memory that the server's processes use."""


class Owners:
    """The owners of one host. All times are readings of the host's clock."""

    def __init__(self, lease: float, now: float) -> None:
        self._lease = lease
        self._until: dict[str, float] = {}
        self.until = now + max(lease, FIRST_SECONDS)
        """When the lease of the last owner ends."""

    def hear(self, owner: str, beat: Beat, now: float) -> None:
        if beat.clock is None:
            return
        # The beat was sent then, or later.
        sent = min(now, beat.clock + beat.since)
        if sent + self._lease > now:
            self._until[owner] = sent + self._lease
            self.until = max(self._until.values())

    def leave(self, owner: str) -> None:
        if self._until.pop(owner, None) is not None:
            self.until = max(self._until.values(), default=float("-inf"))

    def count(self, now: float) -> int:
        return sum(until > now for until in self._until.values())

    def have_left(self, now: float) -> bool:
        """Whether no owner wants the server any more."""
        return now >= self.until


def fingerprints(entry: Mapping[str, Any], token: str) -> dict[str, str]:
    """A fingerprint of each value of an entry. It tells nothing of the value."""
    return {
        key: hmac.new(token.encode(), msgspec.json.encode(value, order="deterministic"), hashlib.sha256).hexdigest()
        for key, value in entry.items()
    }
