"""Threads that cannot be started, and programs of their own."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gaia.runtime.threads import EngineThread
from tests.waiting import PATIENCE


@contextmanager
def no_threads() -> Iterator[None]:
    """No thread can be started in the block."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def run_program(program: str) -> None:
    """Run a program that has to succeed and to write nothing on standard error."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


def on_engine(function: Callable[[], object]) -> EngineThread:
    """Run the function on a thread of gaia's, to its end."""
    thread = EngineThread(function, "test-engine")
    thread.start()
    thread.join(PATIENCE)
    return thread
