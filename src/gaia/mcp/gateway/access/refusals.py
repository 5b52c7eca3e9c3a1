"""`Refusals`: the trace that refused attempts leave: wrong tokens, guessed handles, and sessions of other clients.

All are counted. The log and the audit get one of a kind in a minute from each address, with the number of those since,
so that refused clients cannot fill a disk.
"""

from __future__ import annotations

import secrets
from collections import Counter
from datetime import UTC, datetime
from typing import Literal

from gaia.mcp.gateway.access.audit import Audit, AuditEntry, shown_text
from gaia.mcp.gateway.event_rate import EventRate
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

Reason = Literal[
    "no_token", "wrong_token", "no_rights", "unknown_handle", "foreign_session", "unknown_session", "over_limit"
]

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
        left_out = self._rate.passes((reason, address, client))
        if left_out is None:
            return
        logger.warning(
            "gateway_access_refused", reason=reason, address=address, client=client, error=error, left_out=left_out
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
                left_out=left_out,
                trace=secrets.token_hex(16),
            )
            self.audit.record(entry, lambda: None)
