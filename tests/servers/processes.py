"""Whether processes have ended that are not our children."""

import psutil

from tests.waiting import PATIENCE, wait_until


def is_alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not: it has ended, and init takes its time to collect orphans."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for_end(pid: int, seconds: float = PATIENCE) -> bool:
    """Wait until a process has ended; return whether it has."""
    return wait_until(lambda: not is_alive(pid), seconds)
