"""`Checks`: the limits, the audit and the counts of a gateway, and the trace of what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

from gaia.mcp.gateway.access.audit import Audit
from gaia.mcp.gateway.access.call_counts import CallCounts
from gaia.mcp.gateway.access.limits import Limits
from gaia.mcp.gateway.access.refusals import Refusals
from gaia.mcp.gateway.access.shares import Shares
from gaia.mcp.gateway.event_rate import EventRate


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
