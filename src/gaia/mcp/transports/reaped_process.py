"""A server process below a reaper, on Linux.

The reaper is the server's parent, and can end all of its descendants. It gets commands over a socket, and ends the
server by itself when this process is gone. See `fork_server_process`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports.fork_server import ForkServerProcess, fork_server
from gaia.mcp.transports.process import KILL, ServerProcess, end_strays, ending_of, tree_memory
from gaia.runtime.locks import Latch
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_START_SECONDS = 10.0
"""How long to wait for a reaper's answer, which takes milliseconds; for the first server, a small program starts."""

_ATTEMPTS = 2
_END_SECONDS = 10.0
"""How long a reaper may take to end the rest of a server. It gives up earlier itself, unless it has been stopped."""

_COMMANDS = {signal.SIGTERM: b"T", KILL: b"K"}
_END_REST = b"E"


class ReapedPopen(subprocess.Popen[bytes]):
    """`subprocess.Popen` for a process that is not a child of this one."""

    _child_created = False  # Otherwise the base class would wait for a child.

    def __init__(self, pid: int, args: Sequence[str], pipes: Sequence[IO[bytes]]) -> None:
        self.pid, self.args = pid, args
        self.stdin, self.stdout, self.stderr = pipes
        self.returncode: int | None = None
        """The watcher sets it before it opens `exited`."""
        self.exited = Latch()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self.exited.wait(timeout) or self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode


class NoReapers(Exception):
    """No fork server can run here."""


class _Started(NamedTuple):
    pid: int
    reaper: int
    pipes: tuple[IO[bytes], IO[bytes], IO[bytes]]
    control: socket.socket
    replies: Iterator[list[bytes]]
    forked_by: ForkServerProcess


class ReapedProcess(ServerProcess):
    popen: ReapedPopen

    def _start(self, argv: Sequence[str], environment: Mapping[str, str], cwd: str | None) -> None:
        self._started = started = _start(_request(argv, environment), cwd)
        self._forked_by: ForkServerProcess | None = started.forked_by
        """None after the release of the server."""
        self._is_rest_ended = False
        self.stdin, self.stdout, self.stderr = started.pipes
        self._is_started = True
        self.popen = ReapedPopen(started.pid, argv, started.pipes)

    def _give_up(self) -> None:
        # The reaper ends the server when its socket is closed.
        self._started.control.close()
        fork_server.release(self._started.forked_by)

    def memory(self) -> int:
        # Including processes that have left the server and are the reaper's children now.
        return tree_memory(self._started.reaper, with_root=False)

    def after_fork(self) -> None:
        super().after_fork()
        # If this copy stayed open, the reaper would not notice the parent's end before this child's.
        self._started.control.close()

    def _watch(self) -> None:
        for word, *values in self._started.replies:
            if word == b"exited":
                self._exited_with(os.waitstatus_to_exitcode(int(values[0])))
            elif word == b"ended":
                self._is_rest_ended = True
                if values:
                    logger.error("strays_survive", pid=self.pid)
        # `exited` was reported, unless the reaper was killed. In that case the fork server ends the server.
        if not self._exited.is_open:
            self._has_ended(Ending())

    def _exited_with(self, code: int) -> None:
        self.popen.returncode = code
        self.popen.exited.open()
        self._has_ended(ending_of(code))

    def _signal_group(self, number: int) -> None:
        self._command(_COMMANDS[signal.Signals(number)])

    def _end_rest(self) -> None:
        self._command(_END_REST)
        self._watcher.join(_END_SECONDS)
        if self._watcher.is_alive():
            # The server, or another process, has stopped the reaper. The fork server gets the reaper's children.
            with contextlib.suppress(OSError):
                os.kill(self._started.reaper, KILL)
            self._watcher.join(_END_SECONDS)
        self._started.control.close()
        # A stop that an exception has interrupted is repeated, and must not release the server twice.
        forked_by, self._forked_by = self._forked_by, None
        if forked_by is not None:
            fork_server.release(forked_by)
        if not self._is_rest_ended:
            # The fork server may have been killed too.
            try:
                end_strays(None, self._mark)
            except (OSError, ImportError) as error:
                logger.error("strays_not_found", pid=self.pid, error=str(error))

    def _command(self, command: bytes) -> None:
        with contextlib.suppress(OSError):
            self._started.control.sendall(command)


def _request(argv: Sequence[str], environment: Mapping[str, str]) -> bytes:
    arguments = [os.fsencode(argument) for argument in argv]
    names = [os.fsencode(name) for name in environment]
    values = [os.fsencode(value) for value in environment.values()]
    if any(b"\0" in text for text in (*arguments, *names, *values)):
        raise ValueError("embedded null byte")
    if any(b"=" in name for name in names):
        raise ValueError("illegal environment variable name")
    assignments = [b"%b=%b" % pair for pair in zip(names, values, strict=True)]
    content = b"".join(b"\0" + field for field in (str(len(arguments)).encode(), *arguments, *assignments))
    return len(content).to_bytes(8, "big") + content


def _start(request: bytes, cwd: str | None) -> _Started:
    """Raises NoReapers, and OSError."""
    for _ in range(_ATTEMPTS):
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            control, remote = socket.socketpair()
            ours.enter_context(control)
            theirs.enter_context(remote)
            pipes = [_pipe(ours, theirs, mode) for mode in ("wb", "rb", "rb")]
            # A server without its own working directory gets the present one of the host.
            directory = os.open(cwd or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            theirs.callback(os.close, directory)
            forked_by = fork_server.give([remote.fileno(), *(other for _, other in pipes), directory])
            if forked_by is None:
                raise NoReapers
            theirs.close()
            stdin, stdout, stderr = (pipe for pipe, _ in pipes)
            replies = _replies(control)
            try:
                control.settimeout(_START_SECONDS)
                control.sendall(request)
                word, *values = next(replies, [b""])
                control.settimeout(None)
            except OSError:
                word, values = b"", []
            except BaseException:
                fork_server.release(forked_by)
                raise
            if word == b"started":
                ours.pop_all()
                pid, reaper = map(int, values)
                return _Started(pid, reaper, (stdin, stdout, stderr), control, replies, forked_by)
            if word == b"failed":
                fork_server.release(forked_by)
                raise OSError(b" ".join(values).decode(errors="replace"))
            fork_server.lose(forked_by)
    raise NoReapers


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack, mode: str) -> tuple[IO[bytes], int]:
    reading, writing = os.pipe()
    our_end, their_end = (writing, reading) if mode == "wb" else (reading, writing)
    theirs.callback(os.close, their_end)
    pipe: IO[bytes] = ours.enter_context(os.fdopen(our_end, mode, buffering=0))
    return pipe, their_end


def _replies(control: socket.socket) -> Iterator[list[bytes]]:
    # Not a file object: closing one in a forked child could wait for a lock that a thread of the parent held.
    pending = b""
    while True:
        *lines, pending = pending.split(b"\n")
        for line in lines:
            yield line.split(b" ")
        try:
            chunk = control.recv(4096)
        except TimeoutError:
            raise
        except OSError:
            return
        if not chunk:
            return
        pending += chunk
