"""The call queues of a server with replicas: one for the server, and one for each replica.

`PoolQueue` has the backlog, and gives each call to the ready replica with the fewest calls in flight. `ReplicaQueue`
has the state and the connections of one replica. It puts the calls that its replica loses into the pool's backlog.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from gaia.mcp.errors import MCPError
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision.call_queue import CallQueue, Refusal, both
from gaia.mcp.supervision.events import ServerState


class PoolQueue(CallQueue):
    """The calls of a server with replicas. Thread-safe; the pool replaces `queues` and `leaving` as a whole."""

    def __init__(
        self,
        server: str,
        max_pending: int,
        next_id: Callable[[], int],
        wake: Callable[[Callable[[], int]], None],
        refusal: Refusal,
    ) -> None:
        """``wake(count)`` is called, from any thread: ``count()`` is how many replicas calls could use in addition."""
        super().__init__(
            server,
            max_pending,
            next_id,
            on_call_waiting=lambda: wake(self.__len__),
            on_expired=lambda _: None,
            has_new_login=lambda: any(queue.has_new_login() for queue in self.queues),
            retry_in=lambda: min((s for queue in self.queues if (s := queue.retry_in()) is not None), default=None),
        )
        self.queues: tuple[ReplicaQueue, ...] = ()
        self.leaving: tuple[ReplicaQueue, ...] = ()
        """Those of removed replicas that still finish their calls."""
        self._wake = wake
        self._refusal_of = refusal
        self._ended = self.call_ended
        """One object, so that it can be compared."""
        self._sending: set[int] = set()
        """The threads that send calls which waited."""

    @property
    def _connections(self) -> tuple[Connection, ...]:
        return tuple(one for queue in (*self.queues, *self.leaving) for one in queue._connections)

    def submit(self, call: Call) -> bool:
        if call.on_done is not self._ended:
            # Each end of a call may make room for one that waits.
            call.on_done = both(call.on_done, self._ended)
        while True:
            connection = self.choose(call)
            if connection is not None:
                if connection.load and self._is_one_at_rest() and connection.has_calls:
                    # For later calls.
                    self._wake(lambda: 1)
                if connection.submit(call):
                    return True
            elif self._wait(call):
                return True

    def _is_one_at_rest(self) -> bool:
        return any([queue.state is ServerState.EXITED for queue in self.queues])  # noqa: C419 - faster

    def choose(self, call: Call) -> Connection | None:
        """The connection of the ready replica with the fewest calls in flight; None if each is full or differs."""
        chosen, fewest = None, self.max_pending
        for queue in self.queues:
            connection = queue.ready
            if connection is None or (count := connection.load) >= fewest:
                continue
            if not queue.differing or queue.takes(call):
                chosen, fewest = connection, count
        return chosen

    def _may_send(self, call: Call) -> bool:
        return self.choose(call) is not None

    def expire(self, call: Call) -> bool:
        holder = next((one for one in (*self.queues, *self.leaving) if one.has(call)), None)
        return super().expire(call) if holder is None else holder.expire(call)

    def call_ended(self, call: Call) -> None:  # noqa: ARG002 - whichever has ended
        if self._backlog:
            self.send_waiting()

    def _end(self, call: Call, error: MCPError, reason: str) -> bool:
        is_ended = super()._end(call, error, reason)
        # Only now the call is out of the table of its connection.
        self.call_ended(call)
        return is_ended

    def send_waiting(self) -> None:
        """Give calls that wait to replicas that can take them. For any thread."""
        thread = threading.get_ident()
        if thread in self._sending:
            # A call that was refused at once has ended. The loop below goes on.
            return
        try:
            self._sending.add(thread)
            while (call := self._next_sendable()) is not None:
                self._send(call)
        finally:
            self._sending.discard(thread)
        if self._backlog:
            self._want()

    def _next_sendable(self) -> Call | None:
        """Take the first call out of the backlog that some replica takes now."""
        if not any(queue.ready is not None and queue.ready.load < self.max_pending for queue in self.queues):
            return None
        for call in list(self._backlog):
            if not call.withdrawn and self.choose(call) is not None and self._take_out(call):
                return call
        return None

    def _send(self, call: Call) -> None:
        try:
            if not self._may_go_on(call, self._refusal_of):
                return
            connection = self.choose(call)
            if connection is None or not connection.submit(call):
                self._backlog.appendleft(call)
        except BaseException as error:
            self._crashed(call, error)
            raise

    def changed(self) -> None:
        """Some replica has become ready, or is not ready any more."""
        self.ready = next((queue.ready for queue in self.queues if queue.ready is not None), None)


class ReplicaQueue(CallQueue):
    """The state and the connections of one replica, whose supervisor uses it as any other call queue.

    The backlog is the pool's: a call waits for all replicas.
    """

    def __init__(self, pool: PoolQueue, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.differing: Collection[str] = ()
        """Tools that this replica defines otherwise than the client knows them. The pool sets it."""
        self._pool = pool
        self._backlog = pool._backlog
        self._losing: Connection | None = None
        self._held: dict[Connection, list[Call]] = {}
        """Calls in the backlog that a connection of this replica might still write, by the connection."""

    @property
    def queued(self) -> int:
        return 0

    def has(self, call: Call) -> bool:
        return any(connection.has(call) for connection in self._connections)

    def takes(self, call: Call) -> bool:
        """Only calls of tools that the client has compared go to the replica, and only its list is shown."""
        return not self.differing or (call.tool not in self.differing and call.method != "tools/list")

    def submit(self, call: Call) -> bool:
        return self._pool.submit(call)

    def _end(self, call: Call, error: MCPError, reason: str) -> bool:
        is_ended = super()._end(call, error, reason)
        self._pool.send_waiting()
        return is_ended

    # For the supervisor.

    def move_to(self, state: ServerState, reason: str | None) -> ServerState:
        """The calls that wait go on waiting: the pool knows whether any replica may take them."""
        old, self.state, self.reason = self.state, state, reason
        return old

    def admit(self, connection: Connection, refusal: Refusal, *, withdrawn: bool = True) -> None:  # noqa: ARG002
        """The pool has the refusal, and sees which calls are withdrawn."""
        known = self._pool.ready
        if known is not None and known.negotiated == connection.negotiated:
            # Calls that are encoded for one replica need not be encoded again for another one.
            connection.negotiated = known.negotiated
        self.ready = self._connection = connection
        self._pool.changed()
        self._pool.send_waiting()

    def admit_one(self, connection: Connection, refusal: Refusal, on_ended: Callable[[Call], None]) -> Call | None:
        self._connection = connection
        if self.differing or any(call.withdrawn for call in list(self._backlog)):
            return None
        return super().admit_one(connection, refusal, on_ended)

    def suspend(self) -> None:
        super().suspend()
        self._pool.changed()

    def take_back(self, connection: Connection, reason: str, *, unauthorized: bool = False) -> bool:
        self._losing = connection
        return super().take_back(connection, reason, unauthorized=unauthorized)

    def _take_back(self, call: Call, reason: str, *, unauthorized: bool) -> bool:
        is_kept = super()._take_back(call, reason, unauthorized=unauthorized)
        if is_kept and self._losing is not None:
            self._held.setdefault(self._losing, []).append(call)
        return is_kept

    def _refuse_all(self) -> None:
        """Nothing: see `move_to`."""

    def call_ended(self, call: Call) -> None:
        self._pool.call_ended(call)

    def silenced(self, connection: Connection) -> None:
        for call in self._held.pop(connection, ()):
            call.readmit()
        self._pool.send_waiting()

    def after_fork(self) -> None:
        super().after_fork()
        self._backlog = self._pool._backlog
        self._pool.after_fork()
