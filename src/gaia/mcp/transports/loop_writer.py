"""`LoopWriter`: writes together what one turn of a gateway's event loop sends to a server.

A loop that serves many clients hands over several calls before it waits again. These leave in one write at the end of
the turn, and wake up the server once. A call that comes alone is written at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO

from gaia.mcp.rpc.channel import Outgoing
from gaia.mcp.transports.loop_reader import PipeLoop
from gaia.mcp.transports.pipe_writer import PipeWriter

_ALONE_SECONDS = 100e-6
"""A call that comes so long after the last one is taken to be alone in its turn: reading one takes half as long."""


class LoopWriter(PipeWriter):
    """See `PipeWriter`. What other threads send is written at once, after what the loop has left."""

    def __init__(
        self,
        pipe: IO[bytes],
        name: str,
        *,
        max_pending: int,
        on_broken: Callable[[], None],
        loop: PipeLoop,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(pipe, name, max_pending=max_pending, on_broken=on_broken)
        self._loop = loop
        self._now = now
        self._sent_at = 0.0
        """When the loop sent something the last time. This and `_will_flush` belong to the loop's thread."""
        self._will_flush = False
        """At the end of this turn. A turn more of the loop takes longer than the write of a call that is alone."""

    def send(self, item: Outgoing) -> bool:
        if not self._loop.is_current():
            return super().send(item)
        now = self._now()
        is_alone = now - self._sent_at > _ALONE_SECONDS
        self._sent_at = now
        if self._will_flush:
            return self.put(item)
        if is_alone:
            return super().send(item)
        self._will_flush = True
        self._loop.call_soon(self._end_turn)
        return self.put(item)

    def _end_turn(self) -> None:
        self._will_flush = False
        if self.has_waiting:
            self.flush()
