"""The thread of this program that serves all of its placed servers: what happened to them, and their deadlines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from gaia.daemon_pool import DaemonPool
from gaia.engine_thread import EngineThread
from gaia.exception_text import exception_text, traceback_text
from gaia.locks import lock_held_over_forks
from gaia.log import get_logger
from gaia.mcp.client.cluster.link import OnAnswer
from gaia.mcp.client.rpc.clock import Clock, SystemClock
from gaia.mcp.client.supervision.event_loop import EventLoop, Task, Waiting

__all__ = ["Alarm", "ClusterLoop", "cluster_loop"]

logger = get_logger(__name__)


_STEP_THREADS = 4
_JOIN_SECONDS = 2.0


class Alarm:
    """A task that is run at a time, unless it is cancelled before. A `Waiting`."""

    def __init__(self, deadline: float, task: Task) -> None:
        """`deadline` is a reading of the clock."""
        self.deadline = deadline
        self.expire = task
        self.ended = False

    def cancel(self) -> None:
        self.ended = True


class _Watched:
    """Something else that ends at its deadline at the latest. A `Waiting`."""

    __slots__ = ("_waiting", "expire")

    def __init__(self, waiting: Waiting, expire: Task) -> None:
        self._waiting = waiting
        self.expire = expire

    @property
    def deadline(self) -> float:
        return self._waiting.deadline

    @property
    def ended(self) -> bool:
        return self._waiting.ended


class ClusterLoop:
    """Its thread runs while it has users. `post` and what watches deadlines may be used from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
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
        self.steps.drain(_JOIN_SECONDS)

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
        alarm = Alarm(self._clock.monotonic() + seconds, task)
        self._loop.watch(alarm)
        return alarm

    def watch(self, waiting: Waiting, expire: Callable[[], object]) -> None:
        """Have `expire` called on the thread if `waiting` has not ended at its deadline."""
        self._loop.watch(_Watched(waiting, expire))

    def after_fork(self) -> None:
        """In a forked child, which has no such thread."""
        self._users.clear()
        self._thread = None
        self._loop = EventLoop(self._clock)

    def _run(self) -> None:
        while True:
            task = self._loop.next_task()
            if task is None:
                for late in self._loop.timers.due(self._clock.monotonic())[1]:
                    if isinstance(late, Alarm | _Watched):
                        self._guarded(late.expire)
            else:
                self._guarded(task)
            with self._lock:
                if not self._users and self._loop.pending == 0:
                    self._thread = None
                    return

    @staticmethod
    def _guarded(task: Task) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - one server's mistake must not end the thread of all
            logger.error("cluster_task_failed", error=exception_text(error), exception=traceback_text(error))


cluster_loop = ClusterLoop(SystemClock())
