"""The thread of this program that serves all of its placed servers: what happened to them, and what is due."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from gaia.mcp.cluster.link import OnAnswer
from gaia.runtime.clock import Clock, SystemClock
from gaia.runtime.deadlines import DeadlineHandle, deadlines_of
from gaia.runtime.event_loop import EventLoop, Task
from gaia.runtime.locks import lock_held_over_forks
from gaia.runtime.log import exception_text, get_logger, traceback_text
from gaia.runtime.threads import DaemonPool, EngineThread

logger = get_logger(__name__)


_STEP_THREADS = 4
_JOIN_SECONDS = 2.0


class Alarm:
    """A task that is run at a time, unless it is cancelled before. A `Waiting`."""

    def __init__(self, loop: ClusterLoop, deadline: float, task: Task) -> None:
        """`deadline` is a reading of the clock."""
        self.watched: DeadlineHandle | None = None
        self.deadline = deadline
        self._loop = loop
        self._task = task
        self._is_cancelled = False

    @property
    def ended(self) -> bool:
        return self._is_cancelled or not self._loop.is_running

    def expire(self) -> None:
        """On the thread for deadlines."""
        self._loop.post(lambda: None if self._is_cancelled else self._task())

    def cancel(self) -> None:
        self._is_cancelled = True
        if self.watched is not None:
            self.watched.release()


class ClusterLoop:
    """Its thread runs while it has users. `post` and `alarm` may be used from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.deadlines = deadlines_of(clock)
        """Of its servers' calls and questions, and when its alarms go off."""
        self.steps = DaemonPool("mcp-cluster-steps", _STEP_THREADS, is_engine=True)
        """Runs what waits for an engine, such as joining a cluster."""
        self._lock = lock_held_over_forks()
        """Owns the two below."""
        self._users: set[object] = set()
        self._thread: EngineThread | None = None
        self._loop = EventLoop(clock)

    def hold(self, user: object) -> None:
        """Run, until `let_go` was called for all users."""
        with self._lock:
            self._users.add(user)
            if self._thread is None:
                thread = EngineThread(self._run, "mcp-cluster")
                thread.start()
                self._thread = thread
                self.deadlines.hold(self)

    def let_go(self, user: object) -> None:
        with self._lock:
            self._users.discard(user)
        self.post(lambda: None)

    def wait_idle(self) -> None:
        """Wait for the end of the threads, if there is no user any more."""
        with self._lock:
            thread = None if self._users else self._thread
        if self._users or thread is threading.current_thread():
            return
        if thread is not None:
            thread.join(_JOIN_SECONDS)
        self.deadlines.wait_idle()
        self.steps.drain(_JOIN_SECONDS)

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def post(self, task: Task) -> None:
        """Have the thread run `task`, after all that was posted before. Takes no lock."""
        self._loop.post(task)

    def receiver(self, task: Callable[[Any, BaseException | None, float], object]) -> OnAnswer:
        """Have the thread run ``task(answer, failure, now)`` when an answer comes; `now` is when it came."""

        def received(answer: Any, failure: BaseException | None) -> None:
            now = self._clock.monotonic()
            self.post(lambda: task(answer, failure, now))

        return received

    def alarm(self, seconds: float, task: Task) -> Alarm:
        """Run `task` on the thread in so many seconds."""
        alarm = Alarm(self, self._clock.monotonic() + seconds, task)
        self.deadlines.watch(alarm)
        return alarm

    def after_fork(self) -> None:
        """In a forked child, which has no such thread."""
        self._users.clear()
        self._thread = None
        self._loop = EventLoop(self._clock)

    def _run(self) -> None:
        while True:
            task = self._loop.next_task()
            if task is not None:
                self._guarded(task)
            with self._lock:
                if not self._users and self._loop.pending == 0:
                    self._thread = None
                    self.deadlines.let_go(self)
                    return

    @staticmethod
    def _guarded(task: Task) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - one server's mistake must not end the thread of all
            logger.error("cluster_task_failed", error=exception_text(error), exception=traceback_text(error))


cluster_loop = ClusterLoop(SystemClock())
