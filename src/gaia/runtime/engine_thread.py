"""`EngineThread`: a daemon thread on which a server or its callers depend, such as a reader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gaia.runtime.exception_text import exception_text, traceback_text
from gaia.runtime.handover import mark_engine_thread
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_STEPS = 64
_PAUSE_SECONDS = 50e-6
"""Long enough for a thread that waits for the interpreter to get it."""

Item = TypeVar("Item")


def with_pauses(items: Iterable[Item]) -> Iterator[Item]:
    """The items, with a short pause after each 64 of them.

    For a thread that reads what a server wrote. Without a pause, every other thread waits for the interpreter for 5 ms
    each time that it needs it (`sys.getswitchinterval`), for as long as the server writes.
    """
    for number, item in enumerate(items, 1):
        yield item
        if not number % _STEPS:
            time.sleep(_PAUSE_SECONDS)


class EngineThread(threading.Thread):
    """Runs no code of the application: its log events are handed over (`gaia.runtime.log`). It never ends unnoticed."""

    def __init__(
        self, target: Callable[[], object], name: str, on_failure: Callable[[], object] = lambda: None
    ) -> None:
        """`on_failure` is called, on this thread, after an exception in `target`, which is logged."""
        super().__init__(name=name, daemon=True)
        self._body = target
        self._on_failure = on_failure

    def run(self) -> None:
        mark_engine_thread()
        try:
            self._body()
        except BaseException as error:  # noqa: BLE001 - a mistake of ours, or code of the application where none is expected
            text, trace = exception_text(error), traceback_text(error)
            logger.error("thread_failed", thread=self.name, error=text, exception=trace)
            self._on_failure()
