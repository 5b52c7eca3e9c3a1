"""Waiting for what announces itself to nobody: files that others write, processes that are not our children."""

import time
from collections.abc import Callable

PATIENCE = 120.0
"""Real seconds that a test waits for something that comes at once when all is well.

It says that a test hangs, and nothing about speed: a machine that stands still for half a minute fails no test. Tests
in which a deadline of gaia's is the subject give that one themselves. The limit of a whole test (``timeout`` in
pyproject.toml) is longer.
"""


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Wait until the condition holds; return whether it did within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True
