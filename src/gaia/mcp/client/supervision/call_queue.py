"""Where calls enter: they go to the ready connection, into the backlog, or back to the caller with the reason.

The backlog outlives connections. Callers' threads and the supervisor meet here, and only here.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable

from gaia.exception_text import exception_text
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
"""``refusal(tool)``: the error that ends the call of a tool instead of sending it; None to send it."""

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
        on_call_waiting: Callable[[], None],
        on_expired: Callable[[Call], None],
        has_new_login: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_call_waiting` is called, from a caller's thread, when a call comes for a server that has exited.

        So it is for one that requires a login, if `has_new_login` says that there may be one; that is asked for each
        such call, and must be quick. `on_expired` is told of calls that timed out while there was a connection.
        """
        self.next_id: Callable[[], int] = itertools.count(1).__next__
        """The id of the next request, unique among all connections of the server. For any thread."""
        self._server = server
        self._max_pending = max_pending
        self._on_call_waiting = on_call_waiting
        self._on_expired = on_expired
        self._has_new_login = has_new_login
        self._lock = threading.Lock()
        """Owns the writing of everything below. Other threads read `state`, `reason` and `ready` without it."""
        self.state = ServerState.CREATED
        self.reason: str | None = None
        """Why the server is in this state, for people."""
        self.ready: Connection | None = None
        """The connection that calls go to."""
        self._backlog: deque[Call] = deque()

    def __len__(self) -> int:
        """How many calls wait."""
        with self._lock:
            return sum(not call.ended for call in self._backlog)

    @property
    def in_flight(self) -> int:
        """How many calls were handed to the server and are not answered yet."""
        ready = self.ready
        return 0 if ready is None else ready.in_flight

    def submit(self, call: Call) -> bool:
        """Send the call, or let it wait for the server. A call that has no chance is ended at once. Always True."""
        while True:
            # Every call comes along here, so the ready connection is read without the lock. A connection that has
            # closed meanwhile says so, and is no longer `ready` then: the supervisor clears that first.
            connection = self.ready
            if connection is not None and connection.submit(call):
                return True
            with self._lock:
                if self.ready is not None:
                    continue
                error = self._refusal()
                if error is None or (isinstance(error, NeedsAuthorization) and self._has_new_login()):
                    error = self._overload()
                if error is None:
                    self._backlog.append(call)
            if error is not None:
                call.finish(error=error)
                return True
            if call.observer is not None:
                call.observer.queued()
            if self.state in (ServerState.EXITED, ServerState.NEEDS_AUTHORIZATION):
                self._on_call_waiting()
            return True

    def expire(self, call: Call) -> bool:
        """End a call whose deadline has passed. False if it ended just before."""
        if not self._give_up(call, call.timed_out(), "timeout"):
            return False
        if self.ready is not None and not call.bound:
            self._on_expired(call)
        return True

    def cancel(self, call: Call, error: CallCancelled) -> bool:
        """End a call that its caller has given up. False if it ended just before."""
        return self._give_up(call, error, error.message)

    def repeat(self, call: Call) -> bool:
        """Submit a call again whose answer was lost on a connection that goes on. False if it may not be repeated.

        For the thread that has taken the call out of the connection's table. A lost stream loses its request; the
        request that replaces it has a new id (2026-07-28, "Streamable HTTP").
        """
        if call.bound or not call.repeatable:
            return False
        call.prepare_repeat(self.next_id())
        self.submit(call)
        return True

    def _give_up(self, call: Call, error: MCPError, reason: str) -> bool:
        if not call.finish(error=error):
            return False
        connection = self.ready
        if connection is not None:
            connection.cancel_call(call, reason)
        return True

    # For the supervisor.

    def move_to(self, state: ServerState, reason: str | None) -> ServerState:
        """Change the state; returns the old one. Calls that the new state refuses are ended."""
        with self._lock:
            old, self.state = self.state, state
            self.reason = reason
            refused: Iterable[Call] = ()
            if state not in _WAITING_STATES:
                refused, self._backlog = self._backlog, deque()
        # A call that waited when the application disconnected is not to be reported as a misuse of the client.
        self.fail(refused, self._closed if state is ServerState.CLOSED else self._refusal)
        return old

    def fail(self, calls: Iterable[Call], error: Callable[[], MCPError | None]) -> None:
        """End calls, all of them even if an exception is raised in between, which is raised in the end."""
        failure: BaseException | None = None
        for call in calls:
            try:
                call.finish(error=error())
            except BaseException as caught:  # noqa: BLE001 - raised below
                self._crashed(call, caught)
                failure = failure or caught
        if failure is not None:
            raise failure

    def admit(self, connection: Connection, refusal: Refusal) -> None:
        """Calls go to `connection` from now on, those that waited first.

        `refusal` is asked for each tool call that waited: the server may not offer the tool any more that its caller
        knew, or not the same.
        """
        with self._lock:
            waiting, self._backlog = self._backlog, deque()
            self.ready = connection
        call: Call | None = None
        try:
            while waiting:
                call = waiting.popleft()
                self._admit(call, refusal)
        except BaseException as error:
            if call is not None:
                self._crashed(call, error)
            with self._lock:
                self._backlog.extendleft(reversed(waiting))
            raise

    def _admit(self, call: Call, refusal: Refusal) -> None:
        if call.ended:
            return
        error = None if call.tool is None else refusal(call.tool)
        if error is not None:
            call.finish(error=error)
            return
        call.readmit()
        if call.observer is not None:
            call.observer.resumed()
        self.submit(call)

    def suspend(self) -> None:
        """Calls wait from now on."""
        with self._lock:
            self.ready = None

    def take_back(self, orphans: Iterable[Call], reason: str, *, unauthorized: bool = False) -> bool:
        """Decide about the unanswered calls of a lost connection.

        A call that was not written, or may be repeated, waits for the next connection, before all others; the rest
        fails with `reason`, and as `unauthorized` if the server requires a login. True if any call of the application
        waited, here or for an answer.
        """
        kept: list[Call] = []
        call: Call | None = None
        had_calls = len(self) > 0
        try:
            for call in orphans:
                had_calls = had_calls or not (call.bound or call.ended)
                if self._take_back(call, reason, unauthorized=unauthorized):
                    kept.append(call)
            with self._lock:
                self._backlog.extendleft(reversed(kept))
        except BaseException as error:
            for lost in (*kept, call):
                if lost is not None:
                    self._crashed(lost, error)
            raise
        return had_calls

    def _take_back(self, call: Call, reason: str, *, unauthorized: bool) -> bool:
        """False if the call cannot go to the next connection; then it has ended."""
        unwritten = call.withdraw()
        if call.bound or not (unwritten or call.repeatable):
            lost = f"server {self._server!r} was lost during {call.method}: {reason}"
            call.finish(error=NeedsAuthorization(lost, status=401) if unauthorized else ServerCrashed(lost))
            return False
        if not unwritten:
            call.prepare_repeat(self.next_id())
        if call.observer is not None:
            if unwritten:
                call.observer.requeued(reason)
            else:
                call.observer.repeated(call.id, reason)
        return True

    def _crashed(self, call: Call, error: BaseException) -> None:
        lost = f"server {self._server!r} was lost during {call.method}: {exception_text(error)}"
        call.finish(error=ServerCrashed(lost))

    def _closed(self) -> CallCancelled:
        return CallCancelled(f"server {self._server!r} is closed: {self.reason}")

    def after_fork(self) -> None:
        """In a forked child: refuse all calls. The old lock may be held by a thread that does not exist here."""
        self._lock = threading.Lock()
        self.ready = None
        self._backlog = deque()
        self.state = ServerState.CLOSED
        self.reason = "it belongs to the parent process; create a new client after fork()"

    def _refusal(self) -> MCPError | None:
        state = self.state
        if state is ServerState.CREATED:
            return NotConnected(f"Not connected to server {self._server!r}: call connect() first")
        if state is ServerState.CLOSED:
            return NotConnected(f"Not connected to server {self._server!r}: {self.reason}")
        if state is ServerState.NEEDS_AUTHORIZATION:
            return NeedsAuthorization(str(self.reason), status=401, delivery="not_sent")
        if state is ServerState.FAILED:
            return ServerUnavailable(f"server {self._server!r} is unavailable: {self.reason}")
        return None

    def _overload(self) -> MCPError | None:
        if len(self._backlog) >= self._max_pending:
            self._backlog = deque(call for call in self._backlog if not call.ended)
        if len(self._backlog) < self._max_pending:
            return None
        return Overloaded(
            f"{len(self._backlog)} calls already wait for server {self._server!r} to be ready; try again later"
        )
