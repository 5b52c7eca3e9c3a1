"""`CallQueue`: each call goes to the ready connection, into the backlog, or back to the caller with the reason."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable

from gaia.mcp.errors import (
    CallCancelled,
    CallTimeout,
    MCPError,
    NeedsAuthorization,
    NotConnected,
    Overloaded,
    ServerCrashed,
    ServerUnavailable,
    SessionLost,
)
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.events import ServerState
from gaia.runtime.locks import completed
from gaia.runtime.log import exception_text

Refusal = Callable[[str], MCPError | None]
"""``refusal(tool)``: the error that ends a tool call instead of sending it; None to send it."""

_WAITING_STATES = {
    ServerState.STARTING,
    ServerState.READY,
    ServerState.RESTARTING,
    ServerState.EXITED,
    ServerState.AUTHORIZING,
}

_CALL_WANTED_STATES = {
    ServerState.EXITED,
    ServerState.NEEDS_AUTHORIZATION,
    # On trial: no connection takes all calls until a first call has succeeded.
    ServerState.READY,
}
"""In these states the supervisor is notified of each call that waits."""


class CallQueue:
    """State, backlog and ready connection of a server. Thread-safe; only the supervisor sets state and connection."""

    def __init__(
        self,
        server: str,
        max_pending: int,
        next_id: Callable[[], int],
        on_call_waiting: Callable[[], None],
        on_expired: Callable[[Call], None],
        has_new_login: Callable[[], bool] = lambda: False,
        retry_in: Callable[[], float | None] = lambda: None,
        safe_to_repeat: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`on_call_waiting` is called, from a caller's thread, when a call comes for a server that has exited.

        It is also called for a server that requires a login if `has_new_login` returns True. `on_expired` gets the
        calls that timed out while there was a connection. `retry_in` returns the seconds until the next attempt to
        start a failed server. ``safe_to_repeat(tool)`` is called for calls that have waited.
        """
        self.next_id = next_id
        """Returns the id of the next request, unique among all connections of the server. For any thread."""
        self._server = server
        self.max_pending = max_pending
        self._on_call_waiting = on_call_waiting
        self._on_expired = on_expired
        self.has_new_login = has_new_login
        self.retry_in = retry_in
        self._safe_to_repeat = safe_to_repeat
        # No lock: a caller's thread that is interrupted while it holds one would block the supervisor.
        self.state = ServerState.CREATED
        self.reason: str | None = None
        self.ready: Connection | None = None
        self._connection: Connection | None = None
        """`ready`, or the connection of a server on trial, to which the supervisor gives one call after the other."""
        self._draining: tuple[Connection, ...] = ()
        """Old connections that still finish their calls. Replaced as a whole."""
        self._backlog: deque[Call] = deque()
        self._successor: CallQueue | None = None
        """The queue of the supervisor that has taken over: calls that would wait here go there."""

    def __len__(self) -> int:
        return sum(not call.ended for call in list(self._backlog))

    @property
    def queued(self) -> int:
        return len(self)

    @property
    def in_flight(self) -> int:
        return sum(connection.in_flight for connection in self._connections)

    @property
    def _connections(self) -> tuple[Connection, ...]:
        connection = self._connection
        return self._draining if connection is None else (connection, *self._draining)

    def submit(self, call: Call) -> bool:
        """Send the call, or let it wait for the server. Ends a call that can do neither. Always True."""
        while True:
            # A connection that has just closed takes no call. The supervisor has cleared `ready` before.
            connection = self.ready
            if connection is not None:
                if connection.submit(call):
                    return True
            elif self._wait(call):
                return True

    def _wait(self, call: Call) -> bool:
        """Let the call wait, or end it. False if it can be sent by now, and was taken back."""
        error = self._refusal_of_new() or self._overload()
        # Only now: the state changes after the successor is set.
        if self._successor is not None:
            return self._successor.submit(call)
        if error is not None:
            call.finish(error=error)
            return True
        if call.ended:
            return True
        self._backlog.append(call)
        if call.ended and self._take_out(call):
            # The caller has just given the call up, and it must not start a server.
            return True
        # The supervisor sets `ready`, or the state, then takes the calls out of the backlog. So either it finds this
        # call there, or this thread sees the new value. `hand_over` does likewise.
        can_go_on = self._may_send(call) or self._refusal_of_new() is not None or self._successor is not None
        if can_go_on and self._take_out(call):
            return False
        if call.observer is not None:
            call.observer.queued()
        self._want()
        return True

    def _may_send(self, call: Call) -> bool:  # noqa: ARG002 - a pool looks at the call
        return self.ready is not None

    def _want(self) -> None:
        if self.state in _CALL_WANTED_STATES:
            self._on_call_waiting()

    def takes(self, call: Call) -> bool:  # noqa: ARG002 - a replica looks at the call
        """Whether the call may be sent to a connection of this queue. For any thread."""
        return True

    def hand_over(self, successor: CallQueue, refusal: Refusal) -> list[Call]:
        """Have calls that wait, now and later, wait in `successor`; those under way stay.

        Returns those that a lost connection might still write: see `take_over`.
        """
        self._successor = successor
        waiting = self._take_all()
        successor.take_over((call for call in waiting if not call.withdrawn), refusal)
        return [call for call in waiting if call.withdrawn]

    def take_over(self, calls: Iterable[Call], refusal: Refusal) -> None:
        """Send calls that have waited in another queue, or let them wait here. No connection can write them."""
        for call in calls:
            if self._may_go_on(call, refusal):
                self.submit(call)

    def _has_moved(self, call: Call) -> bool:
        return not any(connection.has(call) for connection in self._connections)

    def expire(self, call: Call) -> bool:
        if self._successor is not None and self._has_moved(call):
            return self._successor.expire(call)
        # Only the text depends on this check: the call may leave the backlog between the check and its end.
        late = timeout_of_waiting(call, self._server, self.state) if call in self._backlog else call.timed_out()
        if not self._give_up(call, late, "timeout"):
            return False
        if self._connection is not None and not call.bound:
            self._on_expired(call)
        return True

    def cancel(self, call: Call, error: CallCancelled) -> bool:
        if self._successor is not None and self._has_moved(call):
            return self._successor.cancel(call, error)
        return self._give_up(call, error, error.message)

    def repeat(self, call: Call) -> bool:
        """Submit a call again whose answer was lost on a connection that goes on. False if it may not be repeated.

        For the thread that has taken it out of the connection's table. The request that replaces the one of a lost
        stream has a new id (2026-07-28, "Streamable HTTP").
        """
        if call.bound or call.pinned or not call.repeatable:
            return False
        call.prepare_repeat(self.next_id())
        # A first call to a server on trial goes to that server again.
        connection = None if self.ready is not None else self._connection
        if connection is None or not connection.submit(call):
            self.submit(call)
        return True

    def _give_up(self, call: Call, error: MCPError, reason: str) -> bool:
        # An interruption must not leave the call in a table.
        return completed(lambda: self._end(call, error, reason))

    def _end(self, call: Call, error: MCPError, reason: str) -> bool:
        is_ended = call.finish(error=error)
        for connection in self._connections:
            connection.cancel_call(call, reason)
        if self._backlog:
            self._take_out(call)
        return is_ended

    def _take_out(self, call: Call) -> bool:
        try:
            self._backlog.remove(call)
        except ValueError:
            return False
        return True

    def _take_all(self) -> list[Call]:
        taken: list[Call] = []
        call: Call | None = None
        try:
            while self._backlog:
                # A caller may have taken out the last call meanwhile.
                with contextlib.suppress(IndexError):
                    call = self._backlog.popleft()
                    taken.append(call)
                call = None
        except BaseException:
            self._backlog.extendleft(reversed(taken if call is None or call in taken else [*taken, call]))
            raise
        return taken

    # For the supervisor.

    def move_to(self, state: ServerState, reason: str | None) -> ServerState:
        """Change the state and end the calls that the new state refuses. Returns the old state."""
        self.reason = reason
        old, self.state = self.state, state
        if state not in _WAITING_STATES:
            # A call that waited when the application disconnected must not be reported as a misuse of the client.
            self.fail(self._take_all(), self._closed if state is ServerState.CLOSED else self._refusal)
        return old

    def fail(self, calls: Iterable[Call], error: Callable[[], MCPError | None]) -> None:
        """End all calls. An exception in between is raised after the last one."""
        failure: BaseException | None = None
        for call in calls:
            try:
                call.finish(error=error())
            except BaseException as caught:  # noqa: BLE001 - raised below
                self._crashed(call, caught)
                failure = failure or caught
        if failure is not None:
            raise failure

    def admit(self, connection: Connection, refusal: Refusal, *, withdrawn: bool = True) -> None:
        """Send calls to `connection` from now on; first the calls that waited.

        The server may no longer offer the same tool, so `refusal` checks each tool call that waited. Without
        `withdrawn`, calls that were taken back from a lost connection keep waiting: its channel is not closed yet and
        could still write them.
        """
        self.ready = self._connection = connection
        waiting, call = deque(self._take_all()), None
        if not withdrawn:
            self._backlog.extend(one for one in waiting if one.withdrawn)
            waiting = deque(one for one in waiting if not one.withdrawn)
        try:
            while waiting:
                call = waiting.popleft()
                if self._may_go_on(call, refusal):
                    self.submit(call)
        except BaseException as error:
            if call is not None:
                self._crashed(call, error)
            self._backlog.extendleft(reversed(waiting))
            raise

    def admit_one(self, connection: Connection, refusal: Refusal, on_ended: Callable[[Call], None]) -> Call | None:
        """Hand the call that has waited longest to `connection`, and return it. The others keep waiting.

        `on_ended` runs on the thread that ends the call, and must be quick.
        """
        self._connection = connection
        while self._backlog:
            call = self._backlog.popleft()
            try:
                if not self._may_go_on(call, refusal):
                    continue
                call.on_done = both(call.on_done, on_ended)
                if call.ended:
                    # The call may have ended before `on_done` was set.
                    continue
                submitted = connection.submit(call)
            except BaseException as error:
                self._crashed(call, error)
                raise
            if submitted:
                return call
            self._backlog.appendleft(call)
            return None
        return None

    def _may_go_on(self, call: Call, refusal: Refusal) -> bool:
        if call.ended:
            return False
        error = error_of_waited(call, self._server, refusal, self._safe_to_repeat)
        if error is not None:
            call.finish(error=error)
            return False
        call.readmit()
        if call.observer is not None:
            call.observer.resumed()
        return True

    def drain(self, connection: Connection) -> None:
        """Let `connection` finish its calls. Call this before another connection is admitted in its place."""
        self._draining = (*self._draining, connection)

    def drained(self, connection: Connection) -> None:
        self._draining = tuple(other for other in self._draining if other is not connection)

    def suspend(self) -> None:
        self.ready = self._connection = None

    def take_back(self, connection: Connection, reason: str, *, unauthorized: bool = False) -> bool:
        """Close a lost connection, and let its unanswered calls wait for the next one, or end them.

        A call that was not written, or may be repeated, waits, before all others. The rest fails with `reason`, or with
        NeedsAuthorization if `unauthorized`. True if any call of the application waited, here or for an answer.
        """
        kept: list[Call] = []
        call: Call | None = None
        had_calls = len(self) > 0
        try:
            for call in connection.close():
                had_calls = had_calls or not (call.bound or call.ended)
                if self._take_back(call, reason, unauthorized=unauthorized):
                    kept.append(call)
            self._backlog.extendleft(reversed(kept))
        except BaseException as error:
            for lost in (*kept, call):
                if lost is not None:
                    self._crashed(lost, error)
            raise
        self._refuse_all()
        return had_calls

    def _refuse_all(self) -> None:
        if self.state not in _WAITING_STATES:
            # They come from a connection that was draining when the server failed.
            self.fail(self._take_all(), self._refusal)

    def call_ended(self, call: Call) -> None:
        """A call of a handle has ended. For any thread. Nothing to do: no call waits for room."""

    def silenced(self, connection: Connection) -> None:
        """`connection` can write nothing any more. For any thread.

        Nothing to do: the lifecycle lets the calls that were taken back from it wait until then.
        """

    def _take_back(self, call: Call, reason: str, *, unauthorized: bool) -> bool:
        """False if the call cannot go to the next connection; this has ended it then."""
        unwritten = call.withdraw()
        if call.pinned:
            call.finish(error=SessionLost(session_lost(self._server, reason)))
            return False
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
        self.ready = self._connection = None
        self._draining = ()
        self._backlog = deque()
        self.state = ServerState.CLOSED
        self.reason = "it belongs to the parent process; create a new client after fork()"

    def _refusal_of_new(self) -> MCPError | None:
        error = self._refusal()
        return None if isinstance(error, NeedsAuthorization) and self.has_new_login() else error

    def _refusal(self) -> MCPError | None:
        state = self.state
        if state is ServerState.CREATED:
            return NotConnected(f"Not connected to server {self._server!r}: call connect() first")
        if state is ServerState.CLOSED:
            return NotConnected(f"Not connected to server {self._server!r}: {self.reason}")
        if state is ServerState.NEEDS_AUTHORIZATION:
            return NeedsAuthorization(str(self.reason), status=401, delivery="not_sent")
        if state is ServerState.FAILED:
            return ServerUnavailable.of(self._server, str(self.reason), self.retry_in())
        return None

    def not_ready(self) -> MCPError:
        """The error for an application that needs a connection now."""
        reason = f"it is {self.state.value}" if self.reason is None else f"it is {self.state.value}: {self.reason}"
        return self._refusal() or ServerUnavailable(f"server {self._server!r} is not ready ({reason}); try again later")

    def _overload(self) -> MCPError | None:
        if len(self._backlog) >= self.max_pending:
            for call in [call for call in list(self._backlog) if call.ended]:
                self._take_out(call)
        if len(self._backlog) < self.max_pending:
            return None
        return Overloaded(
            f"{len(self._backlog)} calls already wait for server {self._server!r} to be ready; try again later"
        )


def both(first: Callable[[Call], None] | None, second: Callable[[Call], None]) -> Callable[[Call], None]:
    if first is None:
        return second

    def on_done(call: Call) -> None:
        try:
            first(call)
        finally:
            second(call)

    return on_done


def session_lost(server: str, reason: str) -> str:
    return (
        f"the process of server {server!r} that this handle stays with is lost ({reason}), and its memory is gone; "
        "open another handle with pinned(), and set up there what the work needs"
    )


_DOINGS = {ServerState.EXITED: "it has exited", ServerState.AUTHORIZING: "a person is asked to log in at it"}


def error_of_waited(
    call: Call, server: str, refusal: Refusal, safe_to_repeat: Callable[[str], bool]
) -> MCPError | None:
    """The error that ends a call that has waited; None if it may be sent.

    ``refusal(tool)`` is the client's error for a tool that the server no longer offers. ``safe_to_repeat(tool)`` says
    whether the server's present definition allows a repetition.
    """
    tool = call.tool
    if tool is None:
        return None
    error = refusal(tool)
    if error is None and call.owner is not None:
        error = call.owner.refusal(tool)
    if error is not None or not (call.repeatable or call.repeated) or safe_to_repeat(tool):
        return error
    # The call may rely on an older definition of the tool.
    call.repeatable = False
    if not call.repeated:
        return None
    return ServerCrashed(
        f"server {server!r} was lost during {call.method}; it says no longer that {tool} may be repeated"
    )


def timeout_of_waiting(call: Call, server: str, state: ServerState) -> CallTimeout:
    """The error for a call that still waits for its server, which is in `state`, at the call's deadline."""
    if state is ServerState.READY:
        return CallTimeout(f"server {server!r} was busy with other calls for {call.seconds:g} s")
    doing = _DOINGS.get(state, f"it is {state.value}")
    return CallTimeout(f"server {server!r} was not ready within {call.seconds:g} s: {doing}")
