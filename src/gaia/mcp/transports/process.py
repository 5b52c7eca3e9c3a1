"""One server process and all processes that it starts: ends them, and measures their memory.

Each server has a mark in its environment. If a server has no reaper, the mark is used to find descendants that have
left its process group; a process that also cleared its environment is not found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING

from gaia.mcp.errors import StartFailed
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports.fork_server import MARK_VARIABLE
from gaia.runtime.locks import Latch, reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.threads import EngineThread

if TYPE_CHECKING:
    import psutil

logger = get_logger(__name__)

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)

_TERMINATE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL, as in the specification's shutdown sequence."""

_KILL_SECONDS = 5.0


class ServerProcess(ABC):
    """A running server. `wait` is for any thread; `stop` for one.

    The server leads its own session and process group. So a Ctrl-C in the terminal does not reach it, and one signal
    reaches all of its children that did not leave the group.
    """

    popen: subprocess.Popen[bytes]
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]
    _is_started = False

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        name: str,
        on_exit: Callable[[], None],
    ) -> None:
        """Start the server. `on_exit` is called once. Raises StartFailed, and then leaves nothing behind."""
        self._on_exit = on_exit
        self._exited = Latch()
        self._ending = Ending()
        self._mark = uuid.uuid4().hex
        self._watcher = EngineThread(self._watch, f"{name}-exit", on_exit)
        try:
            self._start(argv, {**environment, MARK_VARIABLE: lineage(self._mark)}, cwd)
            self._watcher.start()
        except BaseException as error:
            if self._is_started:
                self._give_up()
                for pipe in (self.stdin, self.stdout, self.stderr):
                    pipe.close()
            if isinstance(error, RuntimeError):
                raise StartFailed(f"no thread for the server: {error}") from error
            if isinstance(error, OSError | ValueError | TypeError):
                raise StartFailed(f"{argv[0]} could not be started{f' in {cwd}' if cwd else ''}: {error}") from error
            raise

    @property
    def pid(self) -> int:
        return self.popen.pid

    def wait(self, timeout: float) -> Ending | None:
        """How the process ended, waiting at most `timeout` seconds; None if it is still running."""
        return self._ending if self._exited.wait(timeout) else None

    def stop(self, grace: float) -> Ending:
        """End the server with all its processes, after the end of its stdin. It gets `grace` seconds to exit."""
        if self.wait(grace) is None:
            self._signal_group(signal.SIGTERM)
            if self.wait(_TERMINATE_SECONDS) is None:
                self._signal_group(KILL)
                if self.wait(_KILL_SECONDS) is None:
                    logger.error("server_survives_kill", pid=self.pid)
        self._end_rest()
        return self._ending

    def after_fork(self) -> None:
        """In a forked child: close only the child's copies of the pipes."""
        self.popen.returncode = 0
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()

    def memory(self) -> int:
        """Bytes of main memory of the server and all processes that it has started."""
        return tree_memory(self.pid)

    @abstractmethod
    def _start(self, argv: Sequence[str], environment: Mapping[str, str], cwd: str | None) -> None:
        """Start the server, and set `popen`, the pipes and `_is_started`. Raises OSError, ValueError or TypeError."""

    @abstractmethod
    def _give_up(self) -> None:
        """Without a watcher: end the server, and release everything except the pipes."""

    @abstractmethod
    def _watch(self) -> None:
        """Wait for the end of the server, and call `_has_ended`. On a separate thread."""

    @abstractmethod
    def _signal_group(self, number: int) -> None:
        """Send a signal to the server and its process group; continue stopped processes."""

    @abstractmethod
    def _end_rest(self) -> None:
        """End the processes that the server has left behind, and release everything except the pipes."""

    def _has_ended(self, ending: Ending) -> None:
        self._ending = ending
        self._exited.open()
        self._on_exit()


def lineage(mark: str) -> str:
    """`mark`, after the marks of the servers that this host runs under: if those are ended, this one is too."""
    return f"{os.environ.get(MARK_VARIABLE, '')}.{mark}".lstrip(".")


def ending_of(exit_code: int) -> Ending:
    """The ending for an exit code of `subprocess`, where a negative number is a signal."""
    if exit_code >= 0:
        return Ending(exit_code=exit_code)
    try:
        return Ending(signal=signal.Signals(-exit_code).name)
    except ValueError:
        return Ending(signal=f"signal {-exit_code}")


_FRESH_SECONDS = 2.0
"""One walk over the system's processes takes milliseconds, so its result serves many servers for this long."""


_lock = reentrant_lock()
_walks: list[tuple[float, dict[int, list[int]]]] = [(float("-inf"), {})]
"""The time of the last walk, and the children of each process by its id. `_lock` owns it."""


def _children() -> dict[int, list[int]]:
    import psutil

    with _lock:
        if time.monotonic() - _walks[0][0] > _FRESH_SECONDS:
            found: defaultdict[int, list[int]] = defaultdict(list)
            for process in psutil.process_iter(["ppid"]):
                found[process.info["ppid"]].append(process.pid)
            _walks[0] = (time.monotonic(), found)
        return _walks[0][1]


def tree_memory(pid: int, *, with_root: bool = True) -> int:
    """The resident bytes of a process and its descendants, or only of these. Shared pages count for each process."""
    import psutil

    children = _children()
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
    """End the processes of `group`, except its leader, and those with `mark`. Raises OSError or ImportError."""
    # Repeated until none is found, because a process may start another one during the search.
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
    """Living processes of the group, or with the mark, except the group's leader."""
    import psutil

    if sys.platform == "linux" and os.readlink("/proc/self") != str(os.getpid()):
        # /proc shows another PID namespace: its numbers mean other processes here.
        raise OSError("/proc does not show the processes of this PID namespace")
    strays = []
    for process in psutil.process_iter():
        # It has ended, or belongs to another user: it is not this program's.
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid not in (group, os.getpid()) and (
                (os.name != "nt" and os.getpgid(process.pid) == group)
                or mark in process.environ().get(MARK_VARIABLE, "")
            ):
                strays += [process] if _is_alive(process) else []
    return strays


def signal_each(processes: Iterable[psutil.Process], number: int) -> None:
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _wait_for_end(processes: list[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Wait at most `timeout` seconds; returns the processes that still live.

    Unlike `psutil.wait_procs` it does not wait until they are reaped: they are not children of this process, and the
    first process of a container may reap them late or never.
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
