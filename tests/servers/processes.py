"""Processes that are started by tests, or are not our children."""

import os
from types import ModuleType

import psutil

from tests.waiting import PATIENCE, wait_until


def program(module: ModuleType) -> str:
    """The file with which Python runs a module as a program: as the import has compiled it, if it has.

    A program that is given as source is compiled each time, which takes as long as the rest of a small one's start.
    """
    compiled = module.__cached__
    return compiled if compiled is not None and os.path.exists(compiled) else str(module.__file__)


def is_alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not: it has ended, and init takes its time to collect orphans."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for_end(pid: int, seconds: float = PATIENCE) -> bool:
    """Wait until a process has ended; return whether it has."""
    return wait_until(lambda: not is_alive(pid), seconds)
