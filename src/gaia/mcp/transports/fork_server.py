"""The host's side of its fork server, which starts servers on Linux and runs while it is needed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

MARK_VARIABLE = "GAIA_MCP_SERVER_MARK"
"""A unique value in each server's environment, by which its stray descendants are found."""

_CODE = "import sys; sys.path.append(sys.argv[1]); from fork_server_process import main; main(int(sys.argv[2]))"
"""As a module the code is compiled once; as a script it would be compiled at each start, which takes a megabyte."""

_ARGUMENTS = ["-I", "-S", "-c", _CODE, str(Path(__file__).parent)]
_UNSUPPORTED = 3

_SEND_SECONDS = 5.0
EXIT_SECONDS = 5.0
_LOST_SECONDS = 1.0
"""How long to wait for the exit status of a process that has ended, or is about to. Any other is killed then."""

_INHERITED_STATUS = (b"Umask", b"Uid", b"Gid", b"Groups", b"Cap", b"NoNewPrivs", b"Seccomp")
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid_for_children", "user", "uts")


class ForkServerProcess:
    def __init__(self, inherited: bytes) -> None:
        """Raises OSError."""
        self.inherited = inherited
        self.servers = 0
        """The number of servers that it was given and that are not released."""
        self.socket, other = socket.socketpair()
        with other:
            try:
                self.popen = start_helper(_ARGUMENTS, stdin=other.fileno())
            except BaseException:
                self.socket.close()
                raise
        self.socket.settimeout(_SEND_SECONDS)

    def stop(self) -> None:
        """Block until it has ended. It ends by itself when it has no servers; otherwise it is killed."""
        self.socket.close()
        end_helper(self.popen, _LOST_SECONDS if self.servers else EXIT_SECONDS)


class ForkServer:
    """Starts the fork server's process when it is needed, and gives servers to it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        """Owns everything below, and the processes."""
        self._current: ForkServerProcess | None = None
        self._processes: set[ForkServerProcess] = set()
        self._holders: set[object] = set()
        self._is_supported = sys.platform == "linux"

    @property
    def pid(self) -> int | None:
        current = self._current
        return None if current is None else current.popen.pid

    def give(self, descriptors: Sequence[int]) -> ForkServerProcess | None:
        """Let the process fork a reaper for a server, until `release`. None if no fork server can run here."""
        with self._lock:
            process = self._ready()
            if process is None:
                return None
            # Counted before the write, because it must be released whether the write succeeds or not.
            process.servers += 1
            with contextlib.suppress(OSError):
                # If this fails, the reaper's socket is closed, and the caller, who waits on that socket, notices.
                socket.send_fds(process.socket, [b"+"], descriptors)
            return process

    def prepare(self, holder: object) -> None:
        """Start the process now, for servers that come soon, and `hold` it. Does not wait until it runs."""
        self.hold(holder)
        with self._lock:
            self._ready()

    def _ready(self) -> ForkServerProcess | None:
        if not self._is_supported or not can_start_helpers():
            return None
        try:
            inherited = _inherited()
            if self._current is not None and self._current.inherited != inherited:
                self._retire(self._current)
            if self._current is None:
                self._current = ForkServerProcess(inherited)
                self._processes.add(self._current)
        except OSError as error:
            logger.warning("guard_start_failed", error=str(error))
            return None
        return self._current

    def release(self, process: ForkServerProcess) -> None:
        with self._lock:
            process.servers -= 1
            is_held = process is self._current and bool(self._holders)
            if not process.servers and process in self._processes and not is_held:
                self._retire(process)

    def hold(self, holder: object) -> None:
        """Keep the process even without servers, until `let_go(holder)`: starting it takes longer than many servers."""
        with self._lock:
            self._holders.add(holder)

    def let_go(self, holder: object) -> None:
        with self._lock:
            self._holders.discard(holder)
            if not self._holders and self._current is not None and not self._current.servers:
                self._retire(self._current)

    def lose(self, process: ForkServerProcess) -> None:
        """Release a process that did not start its server, and use another one for the next server."""
        with self._lock:
            if process in self._processes:
                self._processes.discard(process)
                if self._current is process:
                    self._current = None
                process.stop()
                if process.popen.returncode == _UNSUPPORTED:
                    logger.debug("guard_unavailable")
                    self._is_supported = False
                else:
                    logger.warning("guard_lost", pid=process.popen.pid)
            process.servers -= 1

    def _retire(self, process: ForkServerProcess) -> None:
        if self._current is process:
            self._current = None
        if not process.servers:
            self._processes.discard(process)
            process.stop()

    def after_fork(self) -> None:
        """In a forked child: close only the child's copies of the sockets."""
        self._lock = reentrant_lock()
        for process in self._processes:
            # If this copy stayed open, the fork server would not notice the parent's end before this child's.
            process.socket.close()
            process.popen.returncode = 0
        self._processes, self._holders, self._current = set(), set(), None


def can_start_helpers() -> bool:
    # In a frozen application sys.executable is the application, which would not run the script.
    return bool(sys.executable) and not getattr(sys, "frozen", False)


inherited: list[int] = []
"""Descriptors that the helpers, and with them the servers, inherit: their last copy is closed when all have ended."""


def start_helper(arguments: Sequence[str], stdin: int) -> subprocess.Popen[bytes]:
    """Start a program that ends servers when this process is gone. Its last argument is our id. Raises OSError."""
    with _signals_blocked():
        return subprocess.Popen(
            [sys.executable, *arguments, str(os.getpid())],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            # If this host is itself a supervised server, the helper must outlive it and not count as its stray.
            env={name: value for name, value in os.environ.items() if name != MARK_VARIABLE},
            pass_fds=inherited,
        )


def end_helper(popen: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for the end of a helper whose input is closed; kill it after so many seconds."""
    try:
        popen.wait(seconds)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block signals: a helper inherits the mask, so none can end it before it ignores them."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _inherited() -> bytes:
    """The properties that a server inherits. If the host gives up privileges, its later servers must not get them."""
    status = Path("/proc/thread-self/status").read_bytes().splitlines()
    return b"\n".join(
        [
            *(line for line in status if line.startswith(_INHERITED_STATUS)),
            Path("/proc/self/limits").read_bytes(),
            Path("/proc/self/cgroup").read_bytes(),
            *(os.readlink(f"/proc/self/ns/{name}").encode() for name in _NAMESPACES),
            os.fsencode(os.readlink("/proc/self/root")),
        ]
    )


fork_server = ForkServer()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=fork_server.after_fork)
