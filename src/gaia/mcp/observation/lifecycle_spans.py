"""Records a server's life: spans for its starts, losses and stops, and their metrics.

A start or a restart is one trace: ``gaia.mcp.start <server>`` or ``gaia.mcp.restart <server>``. Its children are the
steps until the server is ready or given up. A call that survives a restart has a link to it. The start of a stand-by,
``gaia.mcp.standby <server>``, is a trace of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from typing import Any, Final, Literal

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Status, StatusCode

from gaia.mcp.observation.request_spans import Observer
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics, spans
from gaia.telemetry.spans import Attributes, Executor

LossReason = Literal[
    "exit_code",
    "exited",
    "signal",
    "output_closed",
    "unreachable",
    "session_lost",
    "hung",
    "handshake_failed",
    "internal_error",
    "start_failed",
    "disconnected",
]
"""Why a connection was lost: `error.type` in spans and metrics. "disconnected" is not an error."""

_FIRST_WITHOUT_SESSIONS: Final = "2026-07-28"
"""From this revision on, the protocol has no sessions whose duration could be measured."""


class LifecycleSpans:
    """Records for one supervisor, or for the driver's side of a placed server. `requested` is for any thread.

    During a start or restart, its span is the current one in the supervisor's thread, so messages, processes and log
    events of that time belong to it.
    """

    def __init__(self, observer: Observer, executor: Executor, *, has_thread: bool = True) -> None:
        """`executor` runs the application's span processors, because the supervisor must not wait for them.

        With `has_thread`, the supervisor has its own thread. Otherwise `entered` makes the span the current one.
        """
        self._observer = observer
        self._labels = observer.labels
        self._executor = executor
        self._has_thread = has_thread
        self._where: Attributes = {}
        self._requested_in: Context | None = None
        self._token: Token[Context] | None = None
        self._episode: _Step | None = None
        self._step: _Step | None = None
        self._by_standby = False

    def requested(self) -> None:
        """Let the next spans belong to the trace of the current thread, which requests a start or stop."""
        self._requested_in = contexts.get_current()

    def located(self, attributes: Attributes) -> None:
        self._where = attributes
        for one in (self._episode, self._step):
            if one is not None:
                one.span.set_attributes(attributes)

    @property
    def is_under_way(self) -> bool:
        return self._episode is not None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make the present span the current one, on a thread that has other work too."""
        present = self._step or self._episode
        token = contexts.attach(contexts.get_current() if present is None else present.context)
        try:
            yield
        finally:
            contexts.detach(token)

    def opening(self, generation: int) -> None:
        self._open("spawn", generation)

    def hosted(self, generation: int) -> None:
        """The server has a host, which is about to start it and reports when it is ready."""
        self._open("handshake", generation)

    def _open(self, step: str, generation: int) -> None:
        self._end_step()
        if self._episode is None:
            self._begin_episode("start" if generation == 1 else "restart")
        self._begin_step(step, {names.GENERATION: generation})

    def spawned(self, pid: int | None) -> None:
        if self._step is not None:
            self._step.note({names.PID: pid})
        self._end_step()
        self._begin_step("handshake", {})

    def took_over(self, generation: int, pid: int | None) -> None:
        """A stand-by replaces the server. Its handshake may still be in progress."""
        self._end_step()
        episode = self._episode or self._begin_episode("restart")
        episode.note({names.STANDBY: True, names.GENERATION: generation, names.PID: pid})
        self._by_standby = True

    def not_spawned(self, message: str) -> None:
        self._crashed("start_failed", message)

    def ready(self, protocol_version: str | None, downtime: float | None) -> None:
        """Calls can be sent. `downtime` is in seconds; None if there was none."""
        self._observer.protocol_version = protocol_version
        self._end_step()
        if downtime is not None:
            self.restarted(downtime)

    def restarted(self, downtime: float) -> None:
        """Count a completed restart: the server was not ready for `downtime` seconds."""
        labels: Attributes = {**self._labels, names.STANDBY: True} if self._by_standby else self._labels
        metrics.instruments.restarts.add(1, labels)
        metrics.instruments.recovery_duration.record(downtime, labels)

    def admitted(self) -> None:
        """The calls that waited are sent. Their spans link to the restart, which must be current until then."""
        self._end_episode()

    def lost(self, reason: LossReason, uptime: float | None) -> None:
        """The connection is lost. `uptime` is in seconds, None if it was never ready."""
        self._end_step()
        if uptime is not None:
            self._count_session(uptime, None if reason == "exited" else reason)
        if self._episode is None:
            self._begin_episode("restart")
        self._begin_step("exit" if reason == "exited" else "crash", {} if uptime is None else {names.UPTIME: uptime})

    def terminated(
        self,
        reason: LossReason,
        message: str,
        *,
        exit_code: int | None,
        signal: str | None,
        stderr_tail: str,
        expected: bool,
    ) -> None:
        """The lost server has ended; an `expected` end is no crash. `message` and `stderr_tail` must be masked."""
        self._describe_step(reason, exit_code, signal, stderr_tail)
        if expected:
            self._end_step()
        else:
            self._crashed(reason, message)

    def stays_exited(self) -> None:
        """The server does not run, and the next call starts it."""
        self._end_step()
        if self._episode is not None:
            self._episode.span.update_name(f"gaia.mcp.rest {self._observer.server}")
        self._end_episode()

    def rests(self, uptime: float | None) -> None:
        """The server is stopped because it is idle. `uptime` as for `lost`."""
        if uptime is not None:
            self._count_session(uptime, None)

    def backing_off(self, delay: float) -> None:
        self._begin_step("backoff", {names.DELAY: delay})

    def gave_up(self, message: str) -> None:
        self._end_step()
        self._end_episode(message)

    def closing(self, uptime: float | None) -> None:
        """The server is being disconnected. `uptime` as for `lost`."""
        self._end_step()
        self._end_episode()
        if uptime is not None:
            self._count_session(uptime, None)
        self._begin_step("close", {} if uptime is None else {names.UPTIME: uptime})

    def closed(self, exit_code: int | None, signal: str | None) -> None:
        self._describe_step("disconnected", exit_code, signal, "")
        self._end_step()

    def _begin_episode(self, what: str) -> _Step:
        self._episode = episode = self._start(what, {}, self._take_request())
        self._enter(episode.context)
        return episode

    def _end_episode(self, error: str | None = None) -> None:
        episode, self._episode = self._episode, None
        self._by_standby = False
        self._enter(None)
        if episode is not None:
            episode.end("gave_up", error)

    def _begin_step(self, what: str, attributes: dict[str, Any]) -> None:
        parent = self._take_request() if self._episode is None else self._episode.context
        self._step = self._start(what, attributes, parent)
        self._enter(self._step.context)

    def _end_step(self, reason: LossReason = "disconnected", error: str | None = None) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.end(reason, error)
        self._enter(None if self._episode is None else self._episode.context)

    def _crashed(self, reason: LossReason, message: str) -> None:
        self._end_step(reason, message)
        metrics.instruments.crashes.add(1, {**self._labels, names.REASON: reason})

    def _describe_step(self, reason: LossReason, exit_code: int | None, signal: str | None, stderr_tail: str) -> None:
        ended = {names.EXIT_CODE: exit_code, names.SIGNAL: signal, names.STDERR_TAIL: stderr_tail or None}
        if self._step is not None:
            self._step.note({names.REASON: reason, **ended})

    def _take_request(self) -> Context:
        parent, self._requested_in = self._requested_in, None
        return Context() if parent is None else parent

    def _start(self, what: str, attributes: dict[str, Any], parent: Context) -> _Step:
        return _Step(self._observer, what, {**self._where, **attributes}, parent, self._executor)

    def _enter(self, context: Context | None) -> None:
        if not self._has_thread:
            return
        if self._token is not None:
            contexts.detach(self._token)
        self._token = None if context is None else contexts.attach(context)

    def _count_session(self, seconds: float, reason: LossReason | None) -> None:
        revision = self._observer.protocol_version
        if revision is None or revision >= _FIRST_WITHOUT_SESSIONS:
            return
        attributes = {**self._observer.common, **self._labels}
        if reason is not None:
            attributes[names.ERROR_TYPE] = reason
        metrics.instruments.session_duration.record(seconds, attributes)


class StandbySpans:
    """Records the starts of one server's stand-bys. Their spans are never the current one."""

    def __init__(self, observer: Observer, executor: Executor) -> None:
        self._observer = observer
        self._executor = executor
        self._step: _Step | None = None

    def opening(self, generation: int) -> None:
        self._step = _Step(self._observer, "standby", {names.GENERATION: generation}, Context(), self._executor)

    def spawned(self, pid: int | None) -> Context | None:
        if self._step is None:
            return None
        self._step.note({names.PID: pid})
        return self._step.context

    def ended(self, error: str | None = None) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.end("standby_failed", error)

    def failed(self, message: str) -> None:
        metrics.instruments.standby_failures.add(1, self._observer.labels)
        self.ended(message)


class ReplacementSpans:
    """Records the planned replacements of one server. Their spans are never the current one."""

    def __init__(self, observer: Observer, executor: Executor) -> None:
        self._observer = observer
        self._executor = executor
        self._step: _Step | None = None
        self._reason = ""

    def began(self, reason: str, asked_in: Context | None) -> None:
        """A replacement was requested, in the trace `asked_in`."""
        self._reason, parent = reason, Context() if asked_in is None else asked_in
        self._step = _Step(self._observer, "recycle", {names.REASON: reason}, parent, self._executor)

    def replaced(self, generation: int, pid: int | None) -> None:
        assert self._step is not None, "it has begun"
        labels = {**self._observer.labels, names.REASON: self._reason}
        metrics.instruments.recyclings.add(1, labels)
        self._step.note({names.GENERATION: generation, names.PID: pid})
        self.ended()

    def ended(self, error: str | None = None) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.end("not_replaced", error)


class _Step:
    def __init__(
        self, observer: Observer, what: str, attributes: Attributes, parent: Context, executor: Executor
    ) -> None:
        attributes = {**observer.labels, **attributes}
        self.span = spans.start_internal_span(f"gaia.mcp.{what} {observer.server}", attributes, parent)
        self.context = trace.set_span_in_context(self.span, parent)
        self._executor = executor

    def note(self, attributes: Mapping[str, Any]) -> None:
        """Set the attributes that are not None."""
        self.span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def end(self, error_type: str = "", error: str | None = None) -> None:
        """`error` is None for a success."""
        if error is not None:
            self.span.set_attribute(names.ERROR_TYPE, error_type)
            self.span.set_status(Status(StatusCode.ERROR, error or None))
        if self.span.is_recording():
            now = time.time_ns()
            self._executor(lambda: self.span.end(now))
