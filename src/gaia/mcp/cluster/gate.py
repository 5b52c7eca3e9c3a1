"""Where calls may go: one incarnation of a host."""

from __future__ import annotations

from collections.abc import Collection

from gaia.mcp.cluster.lease import HostClock
from gaia.mcp.cluster.link import HostLink
from gaia.mcp.rpc.call import Call


class Gate:
    """Calls may go to one incarnation of a host."""

    __slots__ = ("clock", "differing", "flights", "handles", "incarnation", "link", "listing", "start")

    def __init__(self, link: HostLink, incarnation: str, clock: HostClock, start: int = 0, listing: int = 0) -> None:
        """`start` is the number of the server's start on that host."""
        self.listing = listing
        """The number of the host's last listing of tools that was taken over. Changed by the thread of the loop."""
        self.link = link
        self.incarnation = incarnation
        self.clock = clock
        self.start = start
        self.flights: set[int] = set()
        """The numbers of the calls that are on their way. Owned by the lock of the calls."""
        self.handles = 0
        """How many handles stay with it. Owned by the same lock."""
        self.differing: Collection[str] = ()
        """Tools whose definitions at this host are others than those that the client goes by."""

    @property
    def in_flight(self) -> int:
        """How many calls are on their way."""
        return len(self.flights)

    def takes(self, call: Call) -> bool:
        """Whether a call may go there: only what the client has compared is called, and only it is listed."""
        if not self.differing:
            return True
        return call.method != "tools/list" and call.tool not in self.differing
