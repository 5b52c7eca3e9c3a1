"""The objects that an exchange over HTTP awaits, and functions that drive an exchange on one thread.

An exchange is a coroutine that uses neither threads nor selectors: the thread that drives it decides how to wait. `run`
waits in the calling thread. `run_here` does so too, but stops where only the I/O thread may continue.
`gaia.http.io_thread` drives many exchanges at once.
"""

from __future__ import annotations

import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from gaia.runtime.threads import DaemonPool

T = TypeVar("T")

Deadline = float | Callable[[], float | None] | None
"""A reading of `time.monotonic`, or a function that returns the current one, or None for no limit."""

TURN_SECONDS = 50e-6
"""Long enough for a thread that waits for the interpreter to get it."""

MAX_SECONDS = 3600.0
"""The longest single wait, because the system accepts no very large numbers."""

LATE = "the deadline of the request has passed"

Exchange = Coroutine["Wait", Any, T]


def time_of(deadline: Deadline) -> float | None:
    return deadline() if callable(deadline) else deadline


class Wait(ABC):
    """An exchange awaits it, and gets its result. For one exchange at a time."""

    __slots__ = ("deadline",)

    in_callers_thread = False

    def __init__(self, deadline: Deadline = None) -> None:
        self.deadline = deadline

    def __await__(self) -> Generator[Wait, Any, Any]:
        return (yield self)

    @abstractmethod
    def here(self) -> object:
        """Wait in this thread. The exchange gets its return value or exception."""


class Ready(Wait):
    """Waits until a socket can be read from or written to. Gives False if the deadline passes first."""

    __slots__ = ("_poll", "events", "socket")

    in_callers_thread = True

    def __init__(self, waited_for: socket.socket, *, writable: bool = False) -> None:
        super().__init__()
        self.socket = waited_for
        self.events = select.POLLOUT if writable else select.POLLIN
        self._poll = select.poll()
        self._poll.register(waited_for, self.events)

    def is_ready(self) -> bool:
        """Whether the socket is ready, or its connection has ended. Never waits."""
        return bool(self._poll.poll(0))

    def here(self) -> bool:
        poll, deadline = self._poll.poll, self.deadline
        while True:
            # The deadline may have been moved.
            at = deadline() if callable(deadline) else deadline
            left = None if at is None else min(at - monotonic(), MAX_SECONDS) * 1000
            if left is not None and left <= 0:
                return False
            if poll(left):
                return True


class Sleep(Wait):
    __slots__ = ()

    def here(self) -> None:
        while (at := time_of(self.deadline)) is not None and (left := at - monotonic()) > 0:
            time.sleep(left)


class Turn(Wait):
    """Waits until other exchanges and other threads have had their turn."""

    __slots__ = ()

    in_callers_thread = True

    def here(self) -> None:
        time.sleep(TURN_SECONDS)


class IoThreadOnly(Wait):
    """Waits until the caller's thread has left the exchange to the I/O thread."""

    __slots__ = ()

    def here(self) -> None:
        pass


class Job(Wait):
    """Waits for a function that may block, on a thread of `pool`. Gives its return value, or raises its exception.

    Without a pool, a helper of the I/O thread runs it. Jobs with the same key at the same time run once. Raises
    `TimedOut` if the deadline passes first; the function still runs on.
    """

    __slots__ = ("function", "key", "pool")

    def __init__(
        self,
        function: Callable[[], object],
        pool: DaemonPool | None = None,
        deadline: Deadline = None,
        key: object = None,
    ) -> None:
        super().__init__(deadline)
        self.function = function
        self.pool = pool
        self.key = key

    def here(self) -> object:
        return self.function()


def run(exchange: Exchange[T]) -> T:
    """Drive an exchange to its end. All waiting is in this thread."""
    results: list[T] = []

    async def keep() -> None:
        results.append(await exchange)

    run_here(keep(), waits_for_all=True)
    return results[0]


def run_here(exchange: Exchange[object], *, waits_for_all: bool = False) -> Wait | None:
    """Drive an exchange on a caller's thread. None at its end, or the `Wait` at which the I/O thread takes over."""
    step: Callable[[Any], Wait] = exchange.send
    value: object = None
    while True:
        try:
            wait = step(value)
        except StopIteration:
            return None
        if not (wait.in_callers_thread or waits_for_all):
            return wait
        try:
            step, value = exchange.send, wait.here()
        except BaseException as error:  # noqa: BLE001 - a signal handler's too: the exchange has to end, and raises it
            step, value = exchange.throw, error
