"""`Checks`: the limits, the audit and the counts of a gateway."""

from __future__ import annotations

from dataclasses import dataclass, field

from gaia.mcp.gateway.access.audit import Audit
from gaia.mcp.gateway.access.call_counts import CallCounts
from gaia.mcp.gateway.access.limits import Limits

__all__ = ["Checks"]


@dataclass
class Checks:
    """What calls pass on their way to servers and back. Belongs to the gateway's event loop."""

    limits: Limits | None = None
    """None: there are none."""
    audit: Audit | None = None
    """None: calls are not recorded."""
    counts: CallCounts = field(default_factory=CallCounts)
