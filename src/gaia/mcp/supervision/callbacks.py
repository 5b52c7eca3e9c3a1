"""The threads for user code: listeners, callbacks of futures, and progress callbacks of calls that no thread waits for.

Tasks of one lane run in order, one at a time; a busy lane occupies one thread. The lanes of one server form a group
with its own limit of threads, so that user code that never returns affects only its own server. No thread of a
supervisor or a connection ever runs user code or waits for it.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import exception_text, get_logger
from gaia.runtime.threads import DaemonPool
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics

if TYPE_CHECKING:
    from gaia.runtime.coroutine_thread import CoroutineThread
    from gaia.runtime.loop_work import LoopWork

logger = get_logger(__name__)

Task = Callable[[], object]

_MAX_THREADS = 1024
"""For all groups and listeners of a manager."""

_MAX_GROUP_THREADS = 32

_MAX_TASKS = 10_000
"""Tasks that may wait in one lane for one server."""

MAX_LISTENER_BYTES = 4 * 1024 * 1024
"""Bytes from one server, in all tasks that wait for one listener."""

_MAX_FUTURE_BYTES = 256 * 1024
"""The same for one future; there may be as many futures as calls in flight."""

_JOIN_SECONDS = 2.0


def require_runs_on_thread(name: str, function: object) -> None:
    """Raise ValueError for a coroutine function: a callback thread has no event loop that would run its coroutine."""
    of_object = getattr(type(function), "__call__", None)  # noqa: B004 - the type is the subject
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_object):
        raise ValueError(
            f"{name}: runs on a thread, so it cannot be an async function; give a function that runs the coroutine on "
            "your event loop: asyncio.run_coroutine_threadsafe(coroutine, loop).result()"
        )


class Callbacks(Protocol):
    """Runs the user code of one call: a lane, or the event loop of the task that waits for the call."""

    def post(self, task: Task, /, *, size: int = 0) -> object: ...


class _Source:
    __slots__ = ("dropped", "size", "tasks", "told")

    def __init__(self) -> None:
        self.tasks: deque[tuple[int, Task]] = deque()
        self.size = 0
        self.dropped = 0
        self.told = False
        """Whether the owner was notified of dropped tasks since tasks of this server began to wait."""

    def add(self, size: int, task: Task, max_bytes: int) -> int:
        self.tasks.append((size, task))
        self.size += size
        dropped = 0
        while len(self.tasks) > 1 and (len(self.tasks) > _MAX_TASKS or self.size > max_bytes):
            self.size -= self.tasks.popleft()[0]
            dropped += 1
        self.dropped += dropped
        return dropped

    def take(self) -> Task:
        size, task = self.tasks.popleft()
        self.size -= size
        return task


class Lane:
    """Runs the tasks of one server in order, and the tasks of several servers in turn. Thread-safe.

    If a lane falls far behind with the tasks of one server, it drops the oldest of these; other servers' tasks stay.
    """

    def __init__(
        self,
        schedule: Callable[[Lane], None],
        server: str = "",
        *,
        max_bytes: int = _MAX_FUTURE_BYTES,
        on_dropped: Callable[[str, int], object] | None = None,
    ) -> None:
        """`schedule` has a thread run the lane. Tasks belong to `server` unless `post` says otherwise.

        ``on_dropped(server, count)`` runs on the lane in place of the dropped tasks: when the lane has begun to drop
        tasks of a server, and again when it has caught up, if more were dropped in between.
        """
        self._schedule = schedule
        self._server = server
        self._max_bytes = max_bytes
        self._on_dropped = on_dropped
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = reentrant_lock()
        """Owns everything below. Reentrant, because a signal handler may post too."""
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        """The servers for which tasks wait. The next one is first."""
        self._scheduled = False

    def post(self, task: Task, server: str | None = None, size: int = 0) -> None:
        """Run `task` soon on a callback thread. It holds `size` bytes from the server. Never blocks."""
        if self._process != os.getpid():
            self._begin()
        server = self._server if server is None else server
        with self._lock:
            source = self._sources.setdefault(server, _Source())
            known = source.dropped > 0 or source.told
            dropped = source.add(size, task, self._max_bytes)
            begin, self._scheduled = not self._scheduled, True
        if dropped:
            metrics.instruments.callbacks_dropped.add(dropped, {names.SERVER_NAME: server})
            if not known:
                logger.warning("callbacks_dropped", server=server)
        if begin:
            try:
                self._schedule(self)
            except BaseException:
                # The next `post` tries to schedule again.
                self._scheduled = False
                raise

    def run(self) -> None:
        """Run the waiting tasks, and those that arrive meanwhile. For the thread of the lane."""
        while (task := self.take()) is not None:
            try:
                task()
            except BaseException as error:  # noqa: BLE001 - user code may raise anything, and must not end the thread
                # A log handler of the application may raise on this thread too, and the lane must go on.
                with contextlib.suppress(BaseException):
                    logger.error("callback_failed", error=exception_text(error))
            # Release the task before waiting for the next one.
            del task

    def take(self) -> Task | None:
        """The next task, for the thread of the lane. After None, the next `post` schedules the lane again."""
        with self._lock:
            if not self._sources:
                self._scheduled = False
                return None
            server, source = next(iter(self._sources.items()))
            if source.dropped and (not source.told or len(source.tasks) == 1):
                source.told = True
                count, source.dropped = source.dropped, 0
                return lambda: self._tell_dropped(server, count)
            task = source.take()
            if source.tasks:
                self._sources.move_to_end(server)
            else:
                del self._sources[server]
            return task

    def _tell_dropped(self, server: str, count: int) -> None:
        if self._on_dropped is not None:
            self._on_dropped(server, count)


class CallbackGroup:
    """Lanes that run on a limited number of threads of a pool; further lanes wait. Thread-safe."""

    def __init__(self, server: str, run: Callable[[Task], object], limit: int) -> None:
        self._server = server
        self._run = run
        self._limit = limit
        self._process = 0
        self._lock = reentrant_lock()
        self._running = 0
        self._waiting: deque[Lane] = deque()

    def lane(self) -> Lane:
        return Lane(self._schedule, self._server)

    def _schedule(self, lane: Lane) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._process, self._running, self._waiting = os.getpid(), 0, deque()
            if self._running >= self._limit:
                self._waiting.append(lane)
                return
            self._running += 1
        try:
            self._run(lambda: self._run_lanes(lane))
        except BaseException:
            with self._lock:
                self._running -= 1
            raise

    def _run_lanes(self, lane: Lane) -> None:
        while True:
            lane.run()
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                lane = self._waiting.popleft()


class CallbackPool:
    """The threads behind the lanes; they start when needed and end when idle. Thread-safe."""

    def __init__(self, name: str, purpose: str = "callbacks") -> None:
        self._threads = DaemonPool(f"mcp-{name}-{purpose}", _MAX_THREADS)
        self._coroutines: CoroutineThread | None = None
        """Set once an async function needed the loop of the process."""

    def lane(self, on_dropped: Callable[[str, int], object] | None = None) -> Lane:
        """A lane outside all groups, for a listener: the application limits their number."""
        return Lane(lambda lane: self._run(lane.run), max_bytes=MAX_LISTENER_BYTES, on_dropped=on_dropped)

    def group(self, server: str, limit: int = _MAX_GROUP_THREADS) -> CallbackGroup:
        """Lanes for user code about `server`, on at most `limit` threads at a time."""
        return CallbackGroup(server, self._run, limit)

    def _run(self, task: Task) -> None:
        # Even if no thread can be started, the task is kept: a running thread, or the next one, takes it.
        self._threads.submit(task, keep=True)

    def loop(self) -> LoopWork:
        """The event loop of the process for async functions whose callers have none. It runs until `close`."""
        # The import loads asyncio, which most programs with plain functions do without.
        from gaia.runtime.coroutine_thread import coroutine_thread

        self._coroutines = coroutine_thread
        return coroutine_thread.loop_for(self)

    def close(self) -> None:
        """Run the posted tasks, then end the threads. Waits at most 2 s. A later `post` starts threads again."""
        self._threads.drain(_JOIN_SECONDS)
        if self._coroutines is not None:
            self._coroutines.let_go(self)
