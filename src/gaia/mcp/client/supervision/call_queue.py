"""Where calls enter: they go to the ready connection, into the backlog, or back to the caller with the reason.

The backlog outlives connections. Callers' threads and the supervisor meet here, and only here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.connection import Connection
from gaia.mcp.client.supervision.events import ServerState
from gaia.mcp.errors import (
    CallCancelled,
    MCPError,
    NeedsAuthorization,
    NotConnected,
    Overloaded,
    ServerCrashed,
    ServerUnavailable,
)

__all__ = ["CallQueue"]

Refusal = Callable[[str], MCPError | None]
"""``refusal(tool)``: what the caller of a tool is told instead of sending its call; None to send it."""

_WAITING_STATES = {
    ServerState.STARTING,
    ServerState.READY,
    ServerState.RESTARTING,
    ServerState.EXITED,
    ServerState.AUTHORIZING,
}


class CallQueue:
    """State, backlog and ready connection of a server. Thread-safe; only the supervisor changes the first and last."""

    def __init__(
        self,
        server: str,
        max_pending: int,
        on_wanted: Callable[[], None],
        on_expired: Callable[[Call], None],
        may_be_let_in: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_wanted` is called, from a caller's thread, when a call comes for a server that has exited.

        So it is for one that let nobody in, if `may_be_let_in` says that this may have changed; that is asked for each
        such call, and must be quick. `on_expired` is told of calls that timed out while there was a connection.
        """
        self._server = server
        self._max_pending = max_pending
        self._on_wanted = on_wanted
        self._on_expired = on_expired
        self._may_be_let_in = may_be_let_in
        self._lock = threading.Lock()
        """Owns everything below."""
        self._state = ServerState.CREATED
        self._reason: str | None = None
        self._backlog: deque[Call] = deque()
        self._ready: Connection | None = None

    @property
    def state(self) -> ServerState:
        return self._state

    @property
    def reason(self) -> str | None:
        return self._reason

    @property
    def ready(self) -> Connection | None:
        """The connection that calls go to."""
        return self._ready

    def __len__(self) -> int:
        """How many calls wait."""
        with self._lock:
            return sum(not call.ended for call in self._backlog)

    def submit(self, call: Call) -> bool:
        """Send the call, or let it wait for the server. A call that has no chance is ended at once. Always True."""
        while True:
            # Every call comes along here, so the ready connection is read without the lock. A connection that has
            # closed meanwhile says so, and is no longer `_ready` then: the supervisor clears that first.
            connection = self._ready
            if connection is not None and connection.submit(call):
                return True
            with self._lock:
                if self._ready is not None:
                    continue
                error = self._refusal()
                if error is None or (isinstance(error, NeedsAuthorization) and self._may_be_let_in()):
                    error = self._overload()
                if error is None:
                    self._backlog.append(call)
            if error is not None:
                call.finish(error=error)
                return True
            if call.observer is not None:
                call.observer.queued()
            if self._state in (ServerState.EXITED, ServerState.NEEDS_AUTHORIZATION):
                self._on_wanted()
            return True

    def expire(self, call: Call) -> bool:
        """End a call whose deadline has passed. False if it ended just before."""
        if not self._give_up(call, call.timed_out(), "timeout"):
            return False
        if self._ready is not None and not call.bound:
            self._on_expired(call)
        return True

    def cancel(self, call: Call, error: CallCancelled) -> bool:
        """End a call that its caller no longer wants. False if it ended just before."""
        return self._give_up(call, error, error.message)

    def repeat(self, call: Call, next_id: Callable[[], int]) -> bool:
        """Make a call anew whose answer was lost on a connection that goes on. False if it may not be repeated.

        For the thread that has taken the call out of the connection's table. A lost stream loses its request, and what
        is sent instead of it has a new id (2026-07-28, "Streamable HTTP").
        """
        if call.bound or not call.repeatable:
            return False
        call.prepare_repeat(next_id())
        self.submit(call)
        return True

    def _give_up(self, call: Call, error: MCPError, reason: str) -> bool:
        if not call.finish(error=error):
            return False
        connection = self._ready
        if connection is not None:
            connection.cancel_call(call, reason)
        return True

    # For the supervisor.

    def move_to(self, state: ServerState, reason: str | None) -> ServerState:
        """Change the state; returns the old one. Calls that the new state refuses are ended."""
        with self._lock:
            old, self._state = self._state, state
            self._reason = reason
            refused: Iterable[Call] = ()
            if state not in _WAITING_STATES:
                refused, self._backlog = self._backlog, deque()
        for call in refused:
            # Calls that were there when the server was disconnected did nothing wrong.
            closed = CallCancelled(f"server {self._server!r} is closed: {reason}")
            call.finish(error=closed if state is ServerState.CLOSED else self._refusal())
        return old

    def admit(self, connection: Connection, refusal: Refusal) -> None:
        """Calls go to `connection` from now on, those that waited first.

        `refusal` is asked of each tool call that waited: what is ready now may be another program than the one that
        its caller knew.
        """
        with self._lock:
            waiting, self._backlog = self._backlog, deque()
            self._ready = connection
        for call in waiting:
            if call.ended:
                continue
            error = None if call.tool is None else refusal(call.tool)
            if error is not None:
                call.finish(error=error)
                continue
            call.readmit()
            if call.observer is not None:
                call.observer.resumed()
            self.submit(call)

    def suspend(self) -> None:
        """Calls wait from now on."""
        with self._lock:
            self._ready = None

    def take_back(
        self, orphans: Iterable[Call], reason: str, next_id: Callable[[], int], *, unauthorized: bool = False
    ) -> bool:
        """Decide about the unanswered calls of a lost connection.

        What it has not written, or may be repeated, waits for the next connection, before all others; the rest fails
        with `reason`, and as `unauthorized` if the server lets nobody in any more. True if anybody wanted something of
        the server.
        """
        kept = []
        wanted = len(self) > 0
        for call in orphans:
            wanted = wanted or not (call.bound or call.ended)
            unwritten = call.withdraw()
            if call.bound or not (unwritten or call.repeatable):
                lost = f"server {self._server!r} was lost during {call.method}: {reason}"
                call.finish(error=NeedsAuthorization(lost, status=401) if unauthorized else ServerCrashed(lost))
                continue
            if not unwritten:
                call.prepare_repeat(next_id())
            if call.observer is not None:
                if unwritten:
                    call.observer.requeued(reason)
                else:
                    call.observer.repeated(call.id, reason)
            kept.append(call)
        with self._lock:
            self._backlog.extendleft(reversed(kept))
        return wanted

    def after_fork(self) -> None:
        """In a forked child: nothing here works any more. The old lock may be held by a thread that is gone."""
        self._lock = threading.Lock()
        self._ready = None
        self._backlog = deque()
        self._state = ServerState.CLOSED
        self._reason = "it belongs to the parent process; create a new client after fork()"

    def _refusal(self) -> MCPError | None:
        state = self._state
        if state is ServerState.CREATED:
            return NotConnected(f"Not connected to server {self._server!r}: call connect() first")
        if state is ServerState.CLOSED:
            return NotConnected(f"Not connected to server {self._server!r}: {self._reason}")
        if state is ServerState.NEEDS_AUTHORIZATION:
            return NeedsAuthorization(str(self._reason), status=401, delivery="not_sent")
        if state is ServerState.FAILED:
            return ServerUnavailable(f"server {self._server!r} is unavailable: {self._reason}")
        return None

    def _overload(self) -> MCPError | None:
        if len(self._backlog) >= self._max_pending:
            self._backlog = deque(call for call in self._backlog if not call.ended)
        if len(self._backlog) < self._max_pending:
            return None
        return Overloaded(
            f"{len(self._backlog)} calls already wait for server {self._server!r} to be ready; try again later"
        )
