"""The host's side of the fork server, which starts servers on Linux (see `fork_server_process`).

There is one for each host, started with the first server and ended when no server runs or may be started again.
"""

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
"""Set in each server's environment to a value of its own, by which stray descendants are recognised."""

_CODE = "import sys; sys.path.append(sys.argv[1]); from fork_server_process import main; main(int(sys.argv[2]))"
"""As a module it is compiled once, and not at each start, which would also take a megabyte."""

_ARGUMENTS = ["-I", "-S", "-c", _CODE, str(Path(__file__).parent)]
_UNSUPPORTED = 3
"""See `fork_server_process.UNSUPPORTED`."""

_SEND_SECONDS = 5.0
_EXIT_SECONDS = 5.0
_LOST_SECONDS = 1.0
"""For one that has ended, or is about to, so that its exit status is known. Another is killed after that."""

_INHERITED_STATUS = (b"Umask", b"Uid", b"Gid", b"Groups", b"Cap", b"NoNewPrivs", b"Seccomp")
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid_for_children", "user", "uts")


class ForkServerProcess:
    """One running fork server. Owned by `ForkServer`."""

    def __init__(self, inherited: bytes) -> None:
        """Raises OSError."""
        self.inherited = inherited
        self.servers = 0
        """How many it has been given that have not been released."""
        self.socket, other = socket.socketpair()
        with other:
            try:
                self.popen = _popen(other)
            except BaseException:
                self.socket.close()
                raise
        self.socket.settimeout(_SEND_SECONDS)

    def stop(self) -> None:
        """Returns when it has ended. It ends by itself when it has no servers, and is killed otherwise."""
        self.socket.close()
        try:
            self.popen.wait(_LOST_SECONDS if self.servers else _EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


class ForkServer:
    """Starts the fork server's process when it is needed, and gives servers to it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        """Owns everything below, and the processes."""
        self._current: ForkServerProcess | None = None
        self._processes: set[ForkServerProcess] = set()
        """The current one, and those before it that still have servers."""
        self._holders: set[object] = set()
        """One for each `hold` that goes on."""
        self._is_supported = sys.platform == "linux"

    @property
    def pid(self) -> int | None:
        """The process that starts servers at present."""
        current = self._current
        return None if current is None else current.popen.pid

    def give(self, descriptors: Sequence[int]) -> ForkServerProcess | None:
        """Have a reaper forked for a server, and `release` the result in the end.

        `descriptors` are described in `fork_server_process`, and remain the caller's. None if no fork server can run
        here.
        """
        with self._lock:
            process = self._ready()
            if process is None:
                return None
            # Counted before it is written to: it has to be released, whether that succeeds or not.
            process.servers += 1
            with contextlib.suppress(OSError):
                # If this fails, the reaper's socket is closed, and that is where the caller waits for the answer.
                socket.send_fds(process.socket, [b"+"], descriptors)
            return process

    def prepare(self, holder: object) -> None:
        """Start the process now, for servers that are about to come, and `hold` it. Does not wait until it runs."""
        self.hold(holder)
        with self._lock:
            self._ready()

    def _ready(self) -> ForkServerProcess | None:
        """The process for the next server, started if there is none; None if none can run here."""
        # A frozen application is its own sys.executable, and starting it again would not run our script.
        if not self._is_supported or not sys.executable or getattr(sys, "frozen", False):
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
        """The server is gone."""
        with self._lock:
            process.servers -= 1
            is_held = process is self._current and bool(self._holders)
            if not process.servers and process in self._processes and not is_held:
                self._retire(process)

    def hold(self, holder: object) -> None:
        """Keep the process also while it has no servers, until `let_go(holder)`.

        The start of another one would take longer than that of many servers.
        """
        with self._lock:
            self._holders.add(holder)

    def let_go(self, holder: object) -> None:
        """See `hold`. Does nothing for what holds it no more."""
        with self._lock:
            self._holders.discard(holder)
            if not self._holders and self._current is not None and not self._current.servers:
                self._retire(self._current)

    def lose(self, process: ForkServerProcess) -> None:
        """It has not started a server that it was given: the next server gets another one. Also releases it."""
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
        """Give it no more servers, and stop it once it has none."""
        if self._current is process:
            self._current = None
        if not process.servers:
            self._processes.discard(process)
            process.stop()

    def after_fork(self) -> None:
        """In a forked child: the servers belong to the parent. Only our copies of the sockets are closed."""
        self._lock = reentrant_lock()
        for process in self._processes:
            # Otherwise the fork server would wait for this child too before it notices that the parent is gone.
            process.socket.close()
            process.popen.returncode = 0
        self._processes, self._holders, self._current = set(), set(), None


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


def _popen(stdin: socket.socket) -> subprocess.Popen[bytes]:
    with signals_blocked():
        return subprocess.Popen(
            [sys.executable, *_ARGUMENTS, str(os.getpid())],
            stdin=stdin.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # When this host is itself a server under supervision, its fork server must outlive it, not be its stray.
            env={name: value for name, value in os.environ.items() if name != MARK_VARIABLE},
        )


def _inherited() -> bytes:
    """What a server gets from its parent process besides what it is told: privileges, limits, namespaces, the root.

    A host that has given up privileges since it started its fork server must not get servers that still have them.
    """
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
"""The fork server of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=fork_server.after_fork)
