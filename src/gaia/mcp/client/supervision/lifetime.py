"""What happens to running workers when the interpreter exits, and in a forked child."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

from gaia.telemetry import metrics

__all__ = ["live_workers"]


class Mortal(Protocol):
    def request_stop(self) -> None: ...

    def stop(self) -> None: ...

    def disown(self) -> None: ...


live_workers: weakref.WeakSet[Mortal] = weakref.WeakSet()
"""Workers whose thread runs. They add and remove themselves; everybody else goes over a copy."""


@atexit.register
def _stop_all() -> None:
    workers = list(live_workers)
    for worker in workers:
        worker.request_stop()
    for worker in workers:
        worker.stop()


def _disown_all() -> None:
    for worker in list(live_workers):
        worker.disown()
    live_workers.clear()
    metrics.observed.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
