"""Waiting for what announces itself to nobody: files that others write, processes that are not our children."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait until the condition holds; return whether it did within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True
