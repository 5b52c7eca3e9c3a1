"""`EngineThread`: a daemon thread on which a server or its callers depend, such as a reader."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gaia.exception_text import exception_text, traceback_text
from gaia.handover import mark_engine_thread
from gaia.log import get_logger

__all__ = ["EngineThread"]

logger = get_logger(__name__)


class EngineThread(threading.Thread):
    """Runs no code of the application: its log events are handed over (`gaia.log`). It never ends unnoticed."""

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
