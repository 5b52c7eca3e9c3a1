"""One server process and everything it starts: how it is ended, whichever process is its parent."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import IO

from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports.guard import MARK_VARIABLE
from gaia.mcp.transports.process_memory import tree_memory
from gaia.runtime.locks import Latch
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)

_TERMINATE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL, as the specification's shutdown sequence wants."""

_KILL_SECONDS = 5.0


class ServerProcess(ABC):
    """A running server. `wait` may be called from any thread; `stop` from one.

    The server leads a session and process group of its own, so a Ctrl-C in the terminal does not reach it, and one
    signal reaches all of its children that did not leave the group.
    """

    popen: subprocess.Popen[bytes]
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    def __init__(self, on_exit: Callable[[], None]) -> None:
        self._on_exit = on_exit
        self._exited = Latch()
        self._ending = Ending()
        """Written by the watcher before it sets `_exited`."""

    @property
    def pid(self) -> int:
        return self.popen.pid

    def wait(self, timeout: float) -> Ending | None:
        """How the process ended, waiting at most `timeout` seconds; None if it is still running."""
        return self._ending if self._exited.wait(timeout) else None

    def stop(self, grace: float) -> Ending:
        """End the process and all it started; its stdin has been closed. `grace` is the time to leave by itself."""
        if self.wait(grace) is None:
            self._signal_group(signal.SIGTERM)
            if self.wait(_TERMINATE_SECONDS) is None:
                self._signal_group(KILL)
                if self.wait(_KILL_SECONDS) is None:
                    logger.error("server_survives_kill", pid=self.pid)
        self._end_rest()
        return self._ending

    def after_fork(self) -> None:
        """In a forked child: the server belongs to the parent. Only our copies of the descriptors are closed."""
        self.popen.returncode = 0
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()

    def memory(self) -> int:
        """Bytes of main memory of the server and of what it has started."""
        return tree_memory(self.pid)

    @abstractmethod
    def _signal_group(self, number: int) -> None:
        """Send a signal to the server and its process group, and continue them if they have been stopped."""

    @abstractmethod
    def _end_rest(self) -> None:
        """End what the server has left behind, and let go of everything but the pipes."""

    def _has_ended(self, ending: Ending) -> None:
        self._ending = ending
        self._exited.open()
        self._on_exit()


def lineage(mark: str) -> str:
    """`mark`, behind the marks of the servers that this host itself runs under: ending those ends this one too."""
    return f"{os.environ.get(MARK_VARIABLE, '')}.{mark}".lstrip(".")


def ending_of(exit_code: int) -> Ending:
    """The ending for an exit code as `subprocess` has it: a signal is a negative number."""
    if exit_code >= 0:
        return Ending(exit_code=exit_code)
    try:
        return Ending(signal=signal.Signals(-exit_code).name)
    except ValueError:
        return Ending(signal=f"signal {-exit_code}")
