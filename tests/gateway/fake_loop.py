"""The part of an event loop that limits and the audit need, whose time passes when a test says so."""

import itertools
from collections.abc import Callable
from typing import Any


class FakeTimer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop:
    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[tuple[float, int, FakeTimer, Callable[[], Any]]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., Any], *arguments: Any) -> FakeTimer:
        timer = FakeTimer()
        self._timers.append((self.now + delay, next(self._order), timer, lambda: callback(*arguments)))
        return timer

    def call_soon_threadsafe(self, callback: Callable[..., Any], *arguments: Any) -> None:
        callback(*arguments)

    def advance(self, seconds: float) -> None:
        """Let time pass: what is due by then is called, each at its time."""
        end = self.now + seconds
        while due := sorted((each for each in self._timers if each[0] <= end and not each[2].is_cancelled), key=_order):
            first = due[0]
            self._timers.remove(first)
            self.now = max(self.now, first[0])
            first[3]()
        self.now = end

    @property
    def pending(self) -> int:
        """How many timers have yet to come."""
        return sum(not timer.is_cancelled for _, _, timer, _ in self._timers)


def _order(timer: tuple[float, int, FakeTimer, Callable[[], Any]]) -> tuple[float, int]:
    return timer[0], timer[1]
