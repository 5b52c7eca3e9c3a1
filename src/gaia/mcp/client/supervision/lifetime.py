"""What happens to running supervisors when the interpreter exits, and in a forked child."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

from gaia.telemetry import metrics

__all__ = ["live_supervisors"]


class Mortal(Protocol):
    def request_stop(self) -> None: ...

    def stop(self) -> None: ...

    def after_fork(self) -> None: ...


live_supervisors: weakref.WeakSet[Mortal] = weakref.WeakSet()
"""Supervisors whose thread runs. They add and remove themselves; everybody else goes over a copy."""


@atexit.register
def _stop_all() -> None:
    supervisors = list(live_supervisors)
    for supervisor in supervisors:
        supervisor.request_stop()
    for supervisor in supervisors:
        supervisor.stop()


def _after_fork() -> None:
    for supervisor in list(live_supervisors):
        supervisor.after_fork()
    live_supervisors.clear()
    metrics.observed.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
