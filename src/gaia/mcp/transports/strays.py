"""Processes that a server has left behind, found by their process group and by a mark in their environment.

This is for where a server has no reaper. It does not find a process that left the group and cleared its environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gaia.mcp.transports.guard import MARK_VARIABLE
from gaia.mcp.transports.process import KILL
from gaia.runtime.log import get_logger

if TYPE_CHECKING:
    import psutil

logger = get_logger(__name__)

_SECONDS = 1.0
_ROUNDS = 3
_POLL_SECONDS = 0.01


def end_strays(group: int | None, mark: str) -> None:
    """End the processes of `group`, but for its leader, and those with `mark`. Raises OSError or ImportError."""
    # Until none is found, because one may have started another while it was looked for.
    for _ in range(_ROUNDS):
        strays = find_strays(group, mark)
        if not strays:
            return
        logger.debug("strays_ended", pid=group, strays=[stray.pid for stray in strays])
        for number in (signal.SIGTERM, KILL):
            signal_each(strays, number)
            strays = _wait_for_end(strays, _SECONDS)
            if not strays:
                break
    logger.error("strays_survive", pid=group)


def find_strays(group: int | None, mark: str) -> list[psutil.Process]:
    """Living processes of the group, or with the mark, other than the group's leader."""
    import psutil

    if sys.platform == "linux" and os.readlink("/proc/self") != str(os.getpid()):
        # It shows another PID namespace: here its numbers belong to other processes.
        raise OSError("/proc does not show the processes of this PID namespace")
    strays = []
    for process in psutil.process_iter():
        if process.pid in (group, os.getpid()):
            continue
        try:
            if _belongs(process, group, mark) and _is_alive(process):
                strays.append(process)
        except (psutil.Error, OSError):
            # Gone in the meantime, or another user's: not one of ours.
            continue
    return strays


def signal_each(processes: Iterable[psutil.Process], number: int) -> None:
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _belongs(process: psutil.Process, group: int | None, mark: str) -> bool:
    if os.name != "nt" and os.getpgid(process.pid) == group:
        return True
    return mark in process.environ().get(MARK_VARIABLE, "")


def _wait_for_end(processes: list[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Those that still live after `timeout` seconds at most.

    Unlike `psutil.wait_procs` it does not wait until they are reaped: they are not our children, and the first process
    of a container may reap them late or never.
    """
    deadline = time.monotonic() + timeout
    while True:
        processes = [process for process in processes if _is_alive(process)]
        if not processes or time.monotonic() >= deadline:
            return processes
        time.sleep(_POLL_SECONDS)


def _is_alive(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
