"""What an exchange over HTTP waits for, and how one thread waits for it.

An exchange is a coroutine that knows neither threads nor selectors: it awaits the objects below, and the thread that
drives it decides how to wait. `run` waits in the calling thread. `run_here` does so too, and stops where only the I/O
thread may go on. `gaia.http.io_thread` drives many exchanges at once.
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
"""A reading of `time.monotonic`, or what gives one whenever it is needed, or None for no limit."""

TURN_SECONDS = 50e-6
"""Long enough for a thread that waits for the interpreter to get it."""

MAX_SECONDS = 3600.0
"""Of one wait: the system takes no very large numbers."""

LATE = "the deadline of the request has passed"

Exchange = Coroutine["Wait", Any, T]


def time_of(deadline: Deadline) -> float | None:
    return deadline() if callable(deadline) else deadline


class Wait(ABC):
    """Awaited, it gives what the exchange goes on with; for one exchange at a time."""

    __slots__ = ("deadline",)

    in_callers_thread = False
    """Whether `run_here` may wait for it."""

    def __init__(self, deadline: Deadline = None) -> None:
        self.deadline = deadline

    def __await__(self) -> Generator[Wait, Any, Any]:
        return (yield self)

    @abstractmethod
    def here(self) -> object:
        """Wait in this thread. What it returns or raises goes to the exchange."""


class Ready(Wait):
    """Until a socket can be read from or written to. Gives False if the deadline passes first."""

    __slots__ = ("_poll", "events", "socket")

    in_callers_thread = True

    def __init__(self, waited_for: socket.socket, *, writable: bool = False) -> None:
        super().__init__()
        self.socket = waited_for
        self.events = select.POLLOUT if writable else select.POLLIN
        self._poll = select.poll()
        self._poll.register(waited_for, self.events)

    def is_ready(self) -> bool:
        """Never waits. Also true at the end of the connection."""
        return bool(self._poll.poll(0))

    def here(self) -> bool:
        poll, deadline = self._poll.poll, self.deadline
        while True:
            # It may have been moved.
            at = deadline() if callable(deadline) else deadline
            left = None if at is None else min(at - monotonic(), MAX_SECONDS) * 1000
            if left is not None and left <= 0:
                return False
            if poll(left):
                return True


class Sleep(Wait):
    """Until a time has come: the deadline."""

    __slots__ = ()

    def here(self) -> None:
        while (at := time_of(self.deadline)) is not None and (left := at - monotonic()) > 0:
            time.sleep(left)


class Turn(Wait):
    """Until other exchanges and other threads have had their turn."""

    __slots__ = ()

    in_callers_thread = True

    def here(self) -> None:
        time.sleep(TURN_SECONDS)


class IoThreadOnly(Wait):
    """Until the caller's thread has left the exchange to the I/O thread."""

    __slots__ = ()

    def here(self) -> None:
        pass


class Job(Wait):
    """Until a function that may block has returned on a thread of `pool`. Gives what it returns; raises what it raises.

    Without a pool, the I/O thread's helpers run it. Jobs with the same key at the same time are done once. Raises
    `TimedOut` if the deadline passes first; the function runs on.
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
    """Drive an exchange to its end, waiting in this thread for whatever it awaits."""
    results: list[T] = []

    async def keep() -> None:
        results.append(await exchange)

    run_here(keep(), waits_for_all=True)
    return results[0]


def run_here(exchange: Exchange[object], *, waits_for_all: bool = False) -> Wait | None:
    """Drive an exchange on a caller's thread. None at its end, or the `Wait` with which the I/O thread goes on."""
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
