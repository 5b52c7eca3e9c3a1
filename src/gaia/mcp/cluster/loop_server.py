"""What a session starts, uses and stops: one server of the cluster's loop, with one host or with several replicas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from opentelemetry import context as contexts

from gaia.mcp.cluster.bound_calls import BoundCalls
from gaia.mcp.cluster.cluster_loop import cluster_loop
from gaia.mcp.cluster.placed_calls import PlacedCalls
from gaia.mcp.cluster.placed_context import PlacedContext
from gaia.mcp.cluster.placed_ending import ENDING_SECONDS
from gaia.mcp.cluster.replica_calls import ReplicaCalls
from gaia.mcp.cluster.running_servers import running
from gaia.mcp.requests.caller import ServerFacts
from gaia.mcp.supervision.events import ServerState, StateChanged
from gaia.runtime import log
from gaia.runtime.event_loop import Task
from gaia.runtime.locks import Latch
from gaia.runtime.log import get_logger
from gaia.telemetry import metrics

logger = get_logger(__name__)

_STOP_SECONDS = ENDING_SECONDS + 10.0
"""Within which nothing is left of a server without a drain."""
_DISCONNECTED = "it was disconnected"
_DROPPED = "its client was dropped"
_NOT_STARTED = "it could not be started"


class _Facts(ServerFacts, Protocol):
    """What is known of the server."""

    @property
    def generation(self) -> int: ...


class LoopServer(ABC):
    """Lives once, from `start` to `stop`. Public methods are for any thread.

    A subclass decides what is placed, and what becomes of it; all of that on the loop's thread.
    """

    condition: _Facts
    replica: int | None = None

    def __init__(
        self,
        context: PlacedContext,
        calls: PlacedCalls | ReplicaCalls,
        on_ended: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_ended` is called, on the loop's thread, when nothing is left of it."""
        self.name = context.name
        self.is_forked = False
        self.call_queue = calls
        self.next_id = calls.next_id
        self._context = context
        self._loop = cluster_loop
        self._on_ended = on_ended
        self._settled = Latch()
        """Opened when the first start has succeeded or failed."""
        self._all_done = Latch()
        """Opened when nothing of it is left."""
        self._was_started = False
        # Below is what the loop's thread alone changes.
        self._closing: str | None = None
        """Why it is being ended."""
        self._release: Callable[[], object] = lambda: None

    @property
    def state(self) -> ServerState:
        return self.call_queue.state

    @property
    def queued(self) -> int:
        return len(self.call_queue)

    @property
    def in_flight(self) -> int:
        return self.call_queue.in_flight

    # What a session calls.

    def start(self, *, keep_trying: bool = False) -> bool:
        """Have the server placed and started, and wait until it is ready or has failed; True if it is ready.

        With `keep_trying` it is placed and started as soon as that is possible, until `stop`.
        """
        running.add(self)
        metrics.observed.add(self)
        self.begin(keep_trying=keep_trying)
        self._settled.wait()
        if self.state is ServerState.FAILED and not self.condition.keep_trying:
            # As a supervisor that has failed: nothing is left of it but its state.
            self._loop.post(lambda: self._end_hosts(_NOT_STARTED, 0.0))
            self._all_done.wait(_STOP_SECONDS)
            self._loop.wait_idle()
        log.flush()
        return self.state is ServerState.READY or (self.state is ServerState.EXITED and self._context.is_lazy)

    def begin(self, *, keep_trying: bool) -> None:
        """Begin what `start` does, without waiting for it."""
        self._was_started = True
        self._loop.hold(self)
        self._loop.post(_within(lambda: None if self._closing is not None else self._begin(keep_trying)))

    def stop(self, drain: float = 0.0) -> None:
        """Stop the server, and return when nothing of it is left, on whichever nodes it was.

        A server that is ready has `drain` seconds to finish its calls, while new ones are refused.
        """
        if not self._was_started or self.is_forked:
            return
        self.request_stop(drain)
        if not self._all_done.wait(_STOP_SECONDS + drain):
            logger.error("supervisor_stuck", server=self.name)
            return
        self._loop.wait_idle()
        log.flush()

    def request_stop(self, drain: float = 0.0) -> None:
        self._loop.post(_within(lambda: self._close(_DISCONNECTED, drain)))

    def abandon(self, release: Callable[[], object]) -> bool:
        if self.is_forked or not self._was_started or self._all_done.is_open:
            return False
        self._loop.post(lambda: self._abandoned(release))
        return self._closing is None

    def after_fork(self) -> None:
        self.is_forked = True
        self.call_queue.after_fork()

    @abstractmethod
    def pin(self) -> BoundCalls:
        """A way to one host that does not outlive the present process of its server.

        Raises NotConnected or ServerUnavailable.
        """

    # The thread of the loop.

    @abstractmethod
    def _begin(self, keep_trying: bool) -> None:
        """Have the first host or hosts started."""

    @abstractmethod
    def _close(self, reason: str, drain: float) -> None:
        """Refuse calls from now on, and have all hosts ended. May come again, with less time."""

    @abstractmethod
    def _end_hosts(self, reason: str, drain: float) -> None:
        """Have all hosts ended, after `drain` seconds for their calls; `_ended` is called when none is left."""

    def _abandoned(self, release: Callable[[], object]) -> None:
        self._release = release
        self._close(_DROPPED, 0.0)

    def _move_to(self, new: ServerState, reason: str | None = None, *, finish: bool = False) -> None:
        old = self.call_queue.move_to(new, reason, finish=finish)
        if old is not new:
            self._context.hooks.happened(StateChanged(self.name, old, new, self.condition.generation, reason))

    def _ended(self) -> None:
        """Nothing is left of it."""
        if self._all_done.is_open:
            return
        running.discard(self)
        metrics.observed.discard(self)
        try:
            self._release()
        finally:
            self._loop.let_go(self)
            self._all_done.open()
            self._on_ended()


def _within(task: Task) -> Task:
    """For the loop's thread: the current trace is that of the task, too."""
    context = contexts.get_current()

    def run() -> None:
        token = contexts.attach(context)
        try:
            task()
        finally:
            contexts.detach(token)

    return run
