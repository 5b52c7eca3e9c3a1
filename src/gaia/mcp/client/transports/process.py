"""One server process and everything it starts: spawning, noticing its end, and ending the whole tree.

The server leads a session and process group of its own, so a Ctrl-C in the terminal does not reach it, and one signal
reaches all of its children that did not leave the group. Those that did are found by a mark in their environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from gaia.engine_thread import EngineThread
from gaia.log import get_logger
from gaia.mcp.client.rpc.channel import Ending
from gaia.mcp.client.transports.guard import MARK_VARIABLE, host_guard
from gaia.mcp.errors import StartFailed

if TYPE_CHECKING:
    import psutil

__all__ = ["ServerProcess"]

logger = get_logger(__name__)

_TERMINATE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL, as the specification's shutdown sequence wants."""

_KILL_SECONDS = 5.0
_STRAY_SECONDS = 1.0
_STRAY_ROUNDS = 3
_POLL_SECONDS = 0.01


class ServerProcess:
    """A running server. `wait` may be called from any thread; `stop` from one."""

    def __init__(
        self,
        argv: list[str],
        environment: Mapping[str, str],
        cwd: str | None,
        name: str,
        on_exit: Callable[[], None],
    ) -> None:
        """Start it. `on_exit` is called once, from a thread of ours. Raises StartFailed, and leaves nothing then."""
        self._mark = uuid.uuid4().hex
        self._on_exit = on_exit
        self._exited = threading.Event()
        self._ending = Ending()
        """Written by the watcher before it sets `_exited`."""
        try:
            self.popen = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment, MARK_VARIABLE: _lineage(self._mark)},
                cwd=cwd,
                bufsize=0,
                start_new_session=True,
                creationflags=_CREATION_FLAGS,
            )
        except (OSError, ValueError, TypeError) as error:
            raise StartFailed(f"{argv[0]} could not be started{f' in {cwd}' if cwd else ''}: {error}") from error
        assert self.popen.stdin is not None, "it is a pipe"
        assert self.popen.stdout is not None, "it is a pipe"
        assert self.popen.stderr is not None, "it is a pipe"
        self.stdin, self.stdout, self.stderr = self.popen.stdin, self.popen.stdout, self.popen.stderr
        self.pid = self.popen.pid
        try:
            host_guard.protect(self.pid, self._mark)
            self._watcher = EngineThread(self._watch, f"{name}-exit", on_exit)
            self._watcher.start()
        except BaseException as error:
            self._signal_tree(_KILL)
            self.popen.wait()
            for pipe in (self.stdin, self.stdout, self.stderr):
                pipe.close()
            host_guard.release(self.pid)
            if isinstance(error, RuntimeError):
                raise StartFailed(f"no thread for the server: {error}") from error
            raise

    def wait(self, timeout: float) -> Ending | None:
        """How the process ended, waiting at most `timeout` seconds; None if it is still running."""
        return self._ending if self._exited.wait(timeout) else None

    def stop(self, grace: float) -> Ending:
        """End the process and all it started; its stdin has been closed. `grace` is the time to leave by itself."""
        if self.wait(grace) is None:
            self._signal_tree(_TERMINATE)
            if self.wait(_TERMINATE_SECONDS) is None:
                self._signal_tree(_KILL)
                if self.wait(_KILL_SECONDS) is None:
                    logger.error("server_survives_kill", pid=self.pid)
        # The leader is dead but not reaped yet, so its group id cannot belong to strangers.
        self._end_strays()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(_KILL_SECONDS)
        self._watcher.join(_KILL_SECONDS)
        host_guard.release(self.pid)
        return self._ending

    def _watch(self) -> None:
        if hasattr(os, "waitid"):
            # WNOWAIT leaves the zombie: see `stop`. ECHILD: the application reaps all children by itself.
            with contextlib.suppress(ChildProcessError):
                self._ending = _ending(os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT))
        else:
            code = self.popen.wait()
            self._ending = Ending(exit_code=code) if code >= 0 else Ending(signal=_signal_name(-code))
        self._exited.set()
        self._on_exit()

    def _signal_tree(self, number: int) -> None:
        if os.name == "nt":
            self._signal_each(self._descendants(), number)
            self.popen.kill()
        else:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)
                # A stopped process receives no signal but SIGKILL until it is continued.
                os.killpg(self.pid, signal.SIGCONT)

    def _end_strays(self) -> None:
        try:
            self._find_and_end_strays()
        except (OSError, ImportError) as error:
            # No descriptor is left to look for processes with. Those of the group are known all the same.
            logger.error("strays_not_found", pid=self.pid, error=str(error))
            self._signal_tree(_KILL)

    def _find_and_end_strays(self) -> None:
        # Until none is found, because one may have started another while it was looked for.
        for _ in range(_STRAY_ROUNDS):
            strays = self._strays()
            if not strays:
                return
            logger.debug("strays_ended", pid=self.pid, strays=[stray.pid for stray in strays])
            for number in (_TERMINATE, _KILL):
                self._signal_each(strays, number)
                strays = _wait_for_end(strays, _STRAY_SECONDS)
                if not strays:
                    break
        logger.error("strays_survive", pid=self.pid)

    def _strays(self) -> list[psutil.Process]:
        """Living processes of our group, or with our mark, other than the server itself."""
        import psutil

        strays = []
        for process in psutil.process_iter():
            if process.pid in (self.pid, os.getpid()):
                continue
            try:
                if self._is_ours(process) and _is_alive(process):
                    strays.append(process)
            except (psutil.Error, OSError):
                # Gone in the meantime, or another user's: not one of ours.
                continue
        return strays

    def _is_ours(self, process: psutil.Process) -> bool:
        if os.name != "nt" and os.getpgid(process.pid) == self.pid:
            return True
        return self._mark in process.environ().get(MARK_VARIABLE, "")

    def _descendants(self) -> list[psutil.Process]:
        import psutil

        try:
            return list(psutil.Process(self.pid).children(recursive=True))
        except psutil.Error:
            return []

    @staticmethod
    def _signal_each(processes: Iterable[psutil.Process], number: int) -> None:
        import psutil

        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)


_TERMINATE = signal.SIGTERM
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_CREATION_FLAGS = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)


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


def _lineage(mark: str) -> str:
    """`mark`, behind the marks of the servers that this host itself runs under: ending those ends this one too."""
    return f"{os.environ.get(MARK_VARIABLE, '')}.{mark}".lstrip(".")


def _ending(information: os.waitid_result | None) -> Ending:
    if information is None:
        return Ending()
    if information.si_code == os.CLD_EXITED:
        return Ending(exit_code=information.si_status)
    return Ending(signal=_signal_name(information.si_status))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
