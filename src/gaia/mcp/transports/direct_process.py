"""A server process that is a child of this one, for systems without a fork server, and its guard.

Each host has one guard process, started with the first such server and ended with the last. It ends the servers even if
the host is killed and they ignore the end of their input. `guard_process` is its program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports.fork_server import EXIT_SECONDS, can_start_helpers, end_helper, start_helper
from gaia.mcp.transports.process import KILL, ServerProcess, end_strays, ending_of, signal_each
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_REAP_SECONDS = 5.0


class DirectProcess(ServerProcess):
    def _start(self, argv: Sequence[str], environment: Mapping[str, str], cwd: str | None) -> None:
        self.popen = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=cwd,
            bufsize=0,
            start_new_session=True,
            creationflags=_CREATION_FLAGS,
        )
        assert self.popen.stdin is not None, "it is a pipe"
        assert self.popen.stdout is not None, "it is a pipe"
        assert self.popen.stderr is not None, "it is a pipe"
        self.stdin, self.stdout, self.stderr = self.popen.stdin, self.popen.stdout, self.popen.stderr
        self._is_started = True
        host_guard.protect(self.pid, self._mark)

    def _give_up(self) -> None:
        self._signal_group(KILL)
        self.popen.wait()
        host_guard.release(self.pid)

    def _watch(self) -> None:
        ending = Ending()
        if hasattr(os, "waitid"):
            # WNOWAIT keeps the zombie: see `_end_rest`. ECHILD: the application reaps all children itself.
            with contextlib.suppress(ChildProcessError):
                result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
                if result is not None:
                    ending = ending_of(result.si_status if result.si_code == os.CLD_EXITED else -result.si_status)
        else:
            ending = ending_of(self.popen.wait())
        self._has_ended(ending)

    def _signal_group(self, number: int) -> None:
        if os.name == "nt":
            import psutil

            with contextlib.suppress(psutil.Error):
                signal_each(psutil.Process(self.pid).children(recursive=True), number)
            self.popen.kill()
        else:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)
                # A stopped process receives no signal but SIGKILL until it is continued.
                os.killpg(self.pid, signal.SIGCONT)

    def _end_rest(self) -> None:
        # The leader is dead but not reaped, so no other process can have its group id.
        try:
            end_strays(self.pid, self._mark)
        except (OSError, ImportError) as error:
            # There is no descriptor left for the search. The processes of the group can still be killed.
            logger.error("strays_not_found", pid=self.pid, error=str(error))
            self._signal_group(KILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(_REAP_SECONDS)
        self._watcher.join(_REAP_SECONDS)
        host_guard.release(self.pid)


_CREATION_FLAGS = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)


_ARGUMENTS = ["-I", "-S", str(Path(__file__).with_name("guard_process.py"))]


class HostGuard:
    """Tells the guard process which servers to end with this host. Thread-safe."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        self._protected: dict[int, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def protect(self, pid: int, mark: str) -> None:
        """Let the process group `pid`, and processes with `mark` in their environment, die with this host."""
        with self._lock:
            self._protected[pid] = mark
            self._tell(f"+ {pid} {mark}\n")

    def release(self, pid: int) -> None:
        """The server is gone, and the system may soon reuse its process id."""
        with self._lock:
            self._protected.pop(pid, None)
            if self._protected:
                self._tell(f"- {pid}\n")
            elif self._process is not None:
                # Without this message the guard would take the end of its input for the end of the host, and kill the
                # process that has the id by then.
                self._write(f"- {pid}\n")
                self._stop()

    def after_fork(self) -> None:
        """In a forked child: close only the child's copy of the pipe."""
        self._lock = reentrant_lock()
        self._protected = {}
        if self._process is not None and self._process.stdin is not None:
            # If this copy stayed open, the guard would not notice the parent's end before this child's.
            self._process.stdin.close()
            self._process.returncode = 0
        self._process = None

    def _tell(self, message: str) -> None:
        if self._process is not None:
            if self._write(message):
                return
            # The guard was killed or stopped from outside. A new one gets the list of all servers.
            logger.warning("guard_lost", pid=self._process.pid)
            self._process.kill()
            self._stop()
        self._start()
        everything = "".join(f"+ {pid} {mark}\n" for pid, mark in self._protected.items())
        if self._process is not None and not self._write(everything):
            logger.warning("guard_not_listening", pid=self._process.pid)

    def _write(self, message: str) -> bool:
        process, data = self._process, message.encode()
        assert process is not None, "there is a guard to write to"
        assert process.stdin is not None, "it was started with a pipe"
        try:
            return process.stdin.write(data) == len(data)
        except OSError:
            return False

    def _start(self) -> None:
        if not can_start_helpers():
            logger.debug("guard_unavailable")
            return
        try:
            self._process = start_helper(_ARGUMENTS, stdin=subprocess.PIPE)
        except OSError as error:
            logger.warning("guard_start_failed", error=str(error))
            return
        if os.name != "nt" and self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            end_helper(process, EXIT_SECONDS)


host_guard = HostGuard()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=host_guard.after_fork)
