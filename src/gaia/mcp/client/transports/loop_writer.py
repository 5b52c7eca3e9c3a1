"""`LoopWriter`: writes together what one turn of a gateway's event loop sends to a server.

A loop that serves many clients hands over several calls before it waits again. The first is written at once, because it
may be the only one; the others leave in one write at the end of the turn, and wake up the server once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from gaia.mcp.client.rpc.channel import Outgoing
from gaia.mcp.client.transports.loop_reader import PipeLoop
from gaia.mcp.client.transports.pipe_writer import PipeWriter

__all__ = ["LoopWriter"]


class LoopWriter(PipeWriter):
    """See `PipeWriter`. What other threads send is written at once, after what the loop has left."""

    def __init__(
        self, pipe: IO[bytes], name: str, *, max_pending: int, on_broken: Callable[[], None], loop: PipeLoop
    ) -> None:
        super().__init__(pipe, name, max_pending=max_pending, on_broken=on_broken)
        self._loop = loop
        self._has_written = False
        """In this turn. Belongs to the loop's thread."""

    def send(self, item: Outgoing) -> bool:
        if self._loop.is_current():
            if self._has_written:
                return self.put(item)
            self._has_written = True
            self._loop.call_soon(self._end_turn)
        return super().send(item)

    def _end_turn(self) -> None:
        self._has_written = False
        if self.has_waiting:
            self.flush()
