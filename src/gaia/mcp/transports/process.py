"""One server process and everything it starts: how it is ended, its memory, and what it leaves behind.

Each server has a mark in its environment. Where a server has no reaper, descendants that left its process group are
found by that mark; a process that also cleared its environment is not found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING

from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports.fork_server import MARK_VARIABLE
from gaia.runtime.locks import Latch, reentrant_lock
from gaia.runtime.log import get_logger

if TYPE_CHECKING:
    import psutil

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


_FRESH_SECONDS = 2.0
"""Many servers are looked at by one walk over the processes of the system, which takes milliseconds."""


class _ProcessTable:
    """Which process started which. Thread-safe."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        """Owns the two below."""
        self._children: dict[int, list[int]] = {}
        self._as_of = float("-inf")

    def children(self) -> dict[int, list[int]]:
        """By the process id of the parent; some seconds old at most."""
        import psutil

        with self._lock:
            if time.monotonic() - self._as_of > _FRESH_SECONDS:
                found: defaultdict[int, list[int]] = defaultdict(list)
                for process in psutil.process_iter(["ppid"]):
                    found[process.info["ppid"]].append(process.pid)
                self._children, self._as_of = dict(found), time.monotonic()
            return self._children


_table = _ProcessTable()


def tree_memory(pid: int, *, with_root: bool = True) -> int:
    """The resident memory in bytes of a process and its descendants, or of the descendants alone.

    Pages that several of them share count for each of them. A process that ended meanwhile has none.
    """
    import psutil

    children = _table.children()
    total, pending = 0, [pid] if with_root else [*children.get(pid, ())]
    while pending:
        each = pending.pop()
        pending.extend(children.get(each, ()))
        try:
            total += psutil.Process(each).memory_info().rss
        except psutil.Error:
            continue
    return total


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
