"""`EventLoop`: the tasks and timers of one supervisor's thread."""

from __future__ import annotations

import contextlib
import enum
import queue
from collections.abc import Callable, Iterator

from gaia.runtime.clock import Clock
from gaia.runtime.locks import TimedQueue, get_within

Task = Callable[[], object]


def run_all(*tasks: Task) -> None:
    """Run all tasks, even after one raises; then raise the first exception."""
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
    COOLDOWN = enum.auto()
    TRIAL = enum.auto()
    """Admit all calls to a server that has run for long enough after the circuit was open."""
    HEALTH = enum.auto()
    LISTING = enum.auto()
    """List the tools of a server that announces changes faster than the supervisor lists them."""
    SUBSCRIPTION = enum.auto()
    """Make a request for subscriptions again that was ended or lost."""
    RECYCLING = enum.auto()
    """Check whether the server has reached a limit, at which a new process replaces it."""
    IDLE = enum.auto()
    STANDBY = enum.auto()
    STANDBY_HEALTH = enum.auto()
    DRAINING = enum.auto()
    """Check whether replaced servers have answered their calls."""


_MOMENT_SECONDS = 0.1


class Timers:
    """One task with a deadline for each `Timer`. Belongs to the supervisor's thread."""

    def __init__(self) -> None:
        self._named: dict[Timer, tuple[float, Task]] = {}

    def set(self, timer: Timer, deadline: float, task: Task) -> None:
        """Run `task` at `deadline`, instead of the timer's earlier task."""
        self._named[timer] = (deadline, task)

    def cancel(self, *timers: Timer) -> None:
        for timer in timers:
            self._named.pop(timer, None)

    def any_set(self, *timers: Timer) -> bool:
        return any(timer in self._named for timer in timers)

    def next_deadline(self) -> float | None:
        return min((deadline for deadline, _ in self._named.values()), default=None)

    def due(self, now: float) -> list[Task]:
        timers = [timer for timer, (deadline, _) in self._named.items() if deadline <= now]
        return [self._named.pop(timer)[1] for timer in timers]


class EventLoop:
    """Tasks and timers. `post` and `pending` are for any thread; everything else is for the supervisor's thread."""

    def __init__(self, clock: Clock) -> None:
        self.timers = Timers()
        self._clock = clock
        self._tasks: TimedQueue[Task] = TimedQueue()

    def post(self, task: Task) -> None:
        """Run `task` on the supervisor's thread, after all tasks posted before."""
        self._tasks.put(task)

    @property
    def pending(self) -> int:
        return self._tasks.qsize()

    def next_task(self) -> Task | None:
        """Wait for the next task until the next timer; None once a timer is due, even if tasks wait."""
        deadline = self.timers.next_deadline()
        if deadline is not None and deadline <= self._clock.monotonic():
            return None
        try:
            task: Task = self._clock.get(self._tasks, deadline)
        except queue.Empty:
            return None
        return task

    def next_task_soon(self) -> Task | None:
        """The next task, if one comes within 0.1 s. For use when the clock or the timers fail."""
        try:
            return get_within(self._tasks, _MOMENT_SECONDS)
        except queue.Empty:
            return None

    def drain(self) -> Iterator[Task]:
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._tasks.get_nowait()
