"""The host's side of the guard: servers die with their host, even when it is killed and they ignore the end of input.

There is one guard process per host, started with the first server and ended with the last.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

MARK_VARIABLE = "GAIA_MCP_SERVER_MARK"
"""Set in each server's environment to a value of its own, by which stray descendants are recognised."""

_SCRIPT = Path(__file__).with_name("guard_process.py")
_EXIT_SECONDS = 5.0


class HostGuard:
    """Tells the guard process which servers to take along. Thread-safe."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        """Owns everything below."""
        self._protected: dict[int, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def protect(self, pid: int, mark: str) -> None:
        """From now on the process group `pid`, and processes with `mark` in their environment, die with this host."""
        with self._lock:
            self._protected[pid] = mark
            self._tell(f"+ {pid} {mark}\n")

    def release(self, pid: int) -> None:
        """The server is gone; the system may soon give its process id to another process."""
        with self._lock:
            self._protected.pop(pid, None)
            if self._protected:
                self._tell(f"- {pid}\n")
            elif self._process is not None:
                # Otherwise it would take the end of its input for the end of the host, and kill the process that has
                # the id by then.
                self._write(f"- {pid}\n")
                self._stop()

    def after_fork(self) -> None:
        """In a forked child: the servers and the guard belong to the parent. Only our copy of the pipe is closed."""
        self._lock = reentrant_lock()
        self._protected = {}
        if self._process is not None and self._process.stdin is not None:
            # Otherwise the guard would wait for this child too before it notices that the parent is gone.
            self._process.stdin.close()
            self._process.returncode = 0
        self._process = None

    def _tell(self, message: str) -> None:
        if self._process is not None:
            if self._write(message):
                return
            # The guard was killed or stopped from outside. A new one is told of all servers.
            logger.warning("guard_lost", pid=self._process.pid)
            self._process.kill()
            self._stop()
        self._start()
        everything = "".join(f"+ {pid} {mark}\n" for pid, mark in self._protected.items())
        if self._process is not None and not self._write(everything):
            logger.warning("guard_not_listening", pid=self._process.pid)

    def _write(self, message: str) -> bool:
        """False if the guard has ended, or has not read for so long that its pipe is full."""
        process, data = self._process, message.encode()
        assert process is not None, "there is a guard to write to"
        assert process.stdin is not None, "it was started with a pipe"
        try:
            return process.stdin.write(data) == len(data)
        except OSError:
            return False

    def _start(self) -> None:
        # A frozen application is its own sys.executable, and starting it again would not run our script.
        if not sys.executable or getattr(sys, "frozen", False):
            logger.debug("guard_unavailable")
            return
        try:
            with signals_blocked():
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_SCRIPT), str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                    start_new_session=True,
                    # When this host is itself a server under supervision, its guard must outlive it, not be its stray.
                    env={name: value for name, value in os.environ.items() if name != MARK_VARIABLE},
                )
        except OSError as error:
            logger.warning("guard_start_failed", error=str(error))
            return
        if os.name != "nt" and self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """The guard inherits the mask, so a signal cannot end it before it has begun to ignore signals."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


host_guard = HostGuard()
"""The guard of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=host_guard.after_fork)
