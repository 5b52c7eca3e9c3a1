"""The event loop of one supervisor: tasks that other threads post to it, and deadlines."""

from __future__ import annotations

import contextlib
import enum
import heapq
import itertools
import math
import queue
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from gaia.locks import TimedQueue, get_within
from gaia.mcp.client.rpc.clock import Clock

__all__ = ["EventLoop", "Task", "Timer", "Timers", "Waiting", "run_all"]

Task = Callable[[], object]


def run_all(*tasks: Task) -> None:
    """Run all tasks, those after one that raises too; raises the first exception in the end."""
    failure: BaseException | None = None
    for task in tasks:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failure = failure or error
    if failure is not None:
        raise failure


class Timer(enum.Enum):
    BACKOFF = enum.auto()
    """Start the server again."""

    COOLDOWN = enum.auto()
    """Try once more after the circuit opened."""

    TRIAL = enum.auto()
    """Admit all calls to a server that has run for long enough after the circuit was open."""

    HEALTH = enum.auto()
    """Check an idle server."""

    LISTING = enum.auto()
    """List the tools of a server that announces changes faster than they are listed."""

    RECYCLING = enum.auto()
    """Look whether the server has reached a limit, so that a fresh process has to take its place."""

    IDLE = enum.auto()
    """Look whether the server is used."""

    STANDBY = enum.auto()
    """Start the stand-by."""

    STANDBY_HEALTH = enum.auto()
    """Check the stand-by."""

    DRAINING = enum.auto()
    """Look whether servers that were replaced have answered their calls."""


class Waiting(Protocol):
    """A call or a server's request: it ends at its deadline at the latest."""

    @property
    def deadline(self) -> float: ...

    @property
    def ended(self) -> bool: ...


_MIN_TIDY = 64
_MOMENT_SECONDS = 0.1
_MAX_ARRIVED = 64
"""So many calls and requests are taken over at once at the latest; some have ended by then, and need not be kept."""


class Timers:
    """The deadlines of a supervisor: one for each `Timer`, and those of calls and requests that no thread waits for.

    Belongs to the supervisor's thread. Entries that have ended are dropped long before their deadlines: never more of
    them are kept than of open ones, and a few.
    """

    def __init__(self) -> None:
        self._named: dict[Timer, tuple[float, Task]] = {}
        self._waiting: list[tuple[float, int, Waiting]] = []
        self._order = itertools.count()
        self._tidy_at = _MIN_TIDY
        """How many entries there are when those that have ended are dropped."""

    def set(self, timer: Timer, deadline: float, task: Task) -> None:
        """Run `task` at `deadline`, instead of what was set for this timer before."""
        self._named[timer] = (deadline, task)

    def cancel(self, *timers: Timer) -> None:
        for timer in timers:
            self._named.pop(timer, None)

    def any_set(self, *timers: Timer) -> bool:
        return any(timer in self._named for timer in timers)

    def watch(self, waiting: Waiting) -> None:
        heapq.heappush(self._waiting, (waiting.deadline, next(self._order), waiting))
        if len(self._waiting) > self._tidy_at:
            self._waiting = [entry for entry in self._waiting if not entry[2].ended]
            heapq.heapify(self._waiting)
            self._tidy_at = max(_MIN_TIDY, 2 * len(self._waiting))

    def next_deadline(self) -> float | None:
        while self._waiting and self._waiting[0][2].ended:
            heapq.heappop(self._waiting)
        deadlines = [deadline for deadline, _ in self._named.values()]
        return min(deadlines + [entry[0] for entry in self._waiting[:1]], default=None)

    def due(self, now: float) -> tuple[list[Task], list[Waiting]]:
        """Take what has come due: the tasks of timers, and the calls and requests that have expired."""
        timers = [timer for timer, (deadline, _) in self._named.items() if deadline <= now]
        tasks = [self._named.pop(timer)[1] for timer in timers]
        late = []
        while self._waiting and self._waiting[0][0] <= now:
            waiting = heapq.heappop(self._waiting)[2]
            if waiting.ended:
                continue
            if waiting.deadline > now:
                # Progress has set its deadline back.
                self.watch(waiting)
            else:
                late.append(waiting)
        return tasks, late


class EventLoop:
    """`post`, `watch` and `pending` may be used from any thread; everything else belongs to the supervisor's thread."""

    def __init__(self, clock: Clock) -> None:
        self.timers = Timers()
        self._clock = clock
        self._tasks: TimedQueue[Task] = TimedQueue()
        self._arrived: deque[Waiting] = deque()
        """To be watched. Other threads append, and the supervisor's thread takes them before it waits the next time."""
        self._wakes_at = -math.inf
        """Until when the supervisor's thread waits if no task comes; in the past while it does not wait."""

    def post(self, task: Task) -> None:
        """Have the supervisor's thread run `task`, after all that was posted before."""
        self._tasks.put(task)

    def watch(self, waiting: Waiting) -> None:
        """Enforce the deadline of a call or a server's request that no thread waits for."""
        if waiting.ended:
            return
        # The supervisor's thread sets `_wakes_at` and then looks whether something has arrived. One of the two sees the
        # other. Most calls end long before their deadlines, and are not worth a switch of threads each.
        self._arrived.append(waiting)
        if waiting.deadline < self._wakes_at or len(self._arrived) >= _MAX_ARRIVED:
            self.post(self._watch_arrived)

    def _watch_arrived(self) -> None:
        while self._arrived:
            # If this raises, the next turn tries it again: nothing else would end it.
            self.timers.watch(self._arrived[0])
            self._arrived.popleft()

    @property
    def pending(self) -> int:
        """How many tasks are posted and not taken yet."""
        return self._tasks.qsize()

    def next_task(self) -> Task | None:
        """Wait for the next task, at most until the next deadline; None if that has passed, however many tasks wait."""
        self._watch_arrived()
        deadline = self.timers.next_deadline()
        if deadline is not None and deadline <= self._clock.monotonic():
            return None
        try:
            self._wakes_at = math.inf if deadline is None else deadline
            if self._arrived:
                self.post(self._watch_arrived)
            task: Task = self._clock.get(self._tasks, deadline)
        except queue.Empty:
            return None
        finally:
            self._wakes_at = -math.inf
        return task

    def next_task_soon(self) -> Task | None:
        """The next task, if one comes within a moment. For when the clock or the timers cannot be used."""
        try:
            return get_within(self._tasks, _MOMENT_SECONDS)
        except queue.Empty:
            return None

    def drain(self) -> Iterator[Task]:
        """Take tasks without waiting, until none is left."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._tasks.get_nowait()
