"""`EngineThread`: a daemon thread on which a server or its callers depend, such as a reader."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable

from gaia.handover import mark_engine_thread
from gaia.log import get_logger
from gaia.untrusted_text import clean

__all__ = ["EngineThread", "described", "trace_of"]

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
            logger.error("thread_failed", thread=self.name, error=described(error), exception=trace_of(error))
            self._on_failure()


def described(error: BaseException) -> str:
    """`repr` of an exception. Never raises."""
    try:
        return repr(error)
    except Exception:  # noqa: BLE001 - an exception of the application, whose own code this is
        return f"{type(error).__name__}, which cannot be shown"


def trace_of(error: BaseException) -> str:
    """The traceback of an exception, for the field ``exception`` of a log event. Never raises."""
    try:
        return clean("".join(traceback.format_exception(error))).rstrip()
    except Exception:  # noqa: BLE001 - as above
        return f"{type(error).__name__}, whose traceback cannot be shown"
