"""What is recorded of a placed server's life: in the program, because nodes have no telemetry of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager

from gaia.mcp.cluster.placed_context import PlacedContext
from gaia.mcp.cluster.wire import StateReached
from gaia.mcp.observation.lifecycle_spans import LifecycleSpans
from gaia.mcp.supervision.events import Restarted, ServerState
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics


class PlacedSpans:
    """Follows one placed server, or one replica, over all of its hosts. For the thread of the loop.

    What its hosts do without telling is not seen: a start on a node is one step, with the waits before it. Durations in
    seconds; `uptime` is None if the server was not ready.
    """

    def __init__(self, context: PlacedContext) -> None:
        self._labels = {names.SERVER_NAME: context.name}
        self._replica = {} if context.replica is None else {names.REPLICA: context.replica}
        self._observer = context.observer
        self._life = LifecycleSpans(context.observer, context.executor, has_thread=False)
        self._life.located(self._replica)

    def requested(self) -> None:
        """It is to be placed or ended: what comes next belongs to the current trace."""
        self._life.requested()

    def entered(self) -> AbstractContextManager[None]:
        """Make the start or restart that is under way the current span."""
        return self._life.entered()

    def placing(self) -> None:
        """Its first host is about to be placed."""
        self._life.opening(1)

    def host_greeted(self, node: str, generation: int) -> None:
        """Another host than before has been greeted. Its next start has the number `generation`, over all hosts."""
        self._life.located({**self._replica, names.NODE: node})
        self._life.hosted(generation)

    def ready(self, event: StateReached, downtime: float | None) -> None:
        """Its host says that it is ready. `downtime` is None unless its host was lost or silent."""
        version = self._observer.protocol_version if event.profile is None else event.profile.protocol_version
        self._life.ready(version, downtime)

    def admitted(self) -> None:
        """The calls that waited are sent."""
        self._life.admitted()

    def reached(self, event: StateReached, generation: int, uptime: float | None) -> None:
        """Its host says that it has another state than READY; `uptime` is how long it had been ready.

        Its next start has the number `generation`, over all hosts.
        """
        state = event.state
        if uptime is not None and (state is not ServerState.EXITED or event.loss is not None):
            self._lost(event, uptime)
        if state in (ServerState.FAILED, ServerState.NEEDS_AUTHORIZATION):
            self._life.gave_up(event.reason or "")
        elif state is not ServerState.EXITED:
            if uptime is not None or not self._life.is_under_way:
                self._life.hosted(generation)
        elif uptime is not None and event.loss is None:
            self._life.rests(uptime)
        elif event.generation > 0:
            self._life.stays_exited()
        else:
            # It is lazy, and there as far as calls are concerned.
            self._life.admitted()

    def _lost(self, event: StateReached, uptime: float) -> None:
        reason = event.loss or "internal_error"
        self._life.lost(reason, uptime)
        self._life.terminated(
            reason,
            event.reason or "",
            exit_code=event.exit_code,
            signal=event.signal,
            stderr_tail="",
            expected=event.state is ServerState.EXITED,
        )

    def host_lost(self, message: str, generation: int, uptime: float | None) -> None:
        """Its host is lost, and another one is waited for. Its next start has the number `generation`."""
        self._life.lost("host_lost", uptime)
        self._life.terminated("host_lost", message, exit_code=None, signal=None, stderr_tail="", expected=False)
        self._life.located(self._replica)
        self._life.opening(generation)

    def gave_up(self, message: str) -> None:
        """It is not there in time, or will never be."""
        self._life.gave_up(message)

    def returned(self, event: Restarted) -> None:
        """Its host says that it is ready again, or that a fresh process has taken its place as planned."""
        kind, _, reason = (event.reason or "").partition(": ")
        if kind == "recycled":
            metrics.instruments.recyclings.add(1, {**self._labels, names.REASON: reason})
        else:
            self._life.restarted(event.downtime)

    def closing(self, uptime: float | None) -> None:
        """It is being ended, on its node."""
        self._life.closing(uptime)

    def closed(self) -> None:
        """Nothing is left of it."""
        self._life.closed(None, None)
