"""`HostProcess`: a host, or a program that stands for it, as a child process of this program."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from gaia.mcp.errors import StartFailed
from gaia.mcp.placement.engine import Address, Launch, Placed, Ready
from gaia.mcp.transports.process import ending_of
from gaia.runtime.locks import Latch
from gaia.runtime.redaction import Redactor
from gaia.runtime.threads import EngineThread

_DETACH = ["/bin/sh", "-c", 'exec 3<&0; "$@" <&3 3<&- &', "sh"]
"""Starts a command that is no child of this process, and has its standard input."""

_KILL_SECONDS = 5.0
_TAIL_LINES = 20
_LINE_BYTES = 4096


class HostProcess(Placed):
    """A host, or a program such as ssh that stands for it, as a child process.

    It gets the `Launch` on its standard input, which stays open: its end ends the host. It answers `Ready`.
    """

    def __init__(
        self,
        command: list[str],
        launch: Launch,
        on_ended: Callable[[str], None],
        *,
        where: str,
        environment: Mapping[str, str] | None = None,
        is_detached: bool = False,
    ) -> None:
        """`where` is its machine, for messages. `is_detached`: the host outlives this process.

        Raises StartFailed if the command cannot be started.
        """
        super().__init__(on_ended)
        self._launch = launch
        self._where = where
        self._is_detached = is_detached
        self._owner = os.getpid()
        self._redact = Redactor([launch.token, *launch.secrets])
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._answer: Ready | None = None
        self._settled = Latch()
        self._ended = Latch()
        try:
            self._process = subprocess.Popen(
                [*_DETACH, *command] if is_detached else command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Without buffers, whose locks another thread may hold during a fork.
                bufsize=0,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise StartFailed(f"its host cannot be started: {error}") from error
        assert self._process.stdin is not None and self._process.stdout is not None, "they are pipes"  # noqa: PT018
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._watcher = EngineThread(self._watch, f"mcp-{launch.name}-host")
        self._watcher.start()

    def wait(self, timeout: float) -> Address:
        deadline = time.monotonic() + timeout
        try:
            return self._address(self.ready(timeout), deadline)
        except StartFailed as error:
            self.stop(0.0)
            raise StartFailed(f"on {self._where}: {error.message}") from error

    def _address(self, ready: Ready, deadline: float) -> Address:  # noqa: ARG002 - nothing has to be waited for
        """Where this program reaches the host. Raises StartFailed."""
        return ready.address(self._launch)

    def ready(self, timeout: float) -> Ready:
        """See `Placed.wait`; the message does not name the machine."""
        is_settled = self._settled.wait(timeout)
        ready = self._answer
        if ready is not None and ready.problem is None:
            return ready
        self.stop(0.0)
        if ready is not None:
            raise StartFailed(ready.problem or "")
        if not is_settled:
            raise StartFailed(f"its host was not ready within {timeout:g} s")
        told = self._redact("\n".join(self._tail))
        raise StartFailed(f"its host ended before it was ready{': ' + told if told else ''}")

    def stop(self, grace: float) -> bool:
        """True means that the process has ended."""
        if os.getpid() != self._owner:
            return False
        self._is_stopping = True
        with contextlib.suppress(OSError):
            self._stdin.close()
        if not self._ended.wait(grace):
            self._process.kill()
        has_ended = self._ended.wait(_KILL_SECONDS)
        self._watcher.join(_KILL_SECONDS)
        return has_ended

    def after_fork(self) -> None:
        # The child must not wait for it, either.
        self._process.returncode = 0
        self._stdin.close()
        self._stdout.close()

    def _watch(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            # `stop` may close it meanwhile.
            line = self._launch.line()
            while line := line[self._stdin.write(line) :]:
                pass
        while line := self._stdout.readline(_LINE_BYTES):
            with contextlib.suppress(msgspec.MsgspecError):
                self._answer = msgspec.json.decode(line, type=Ready)
                break
            self._tail.append(line.decode("utf-8", "replace").rstrip())
        if self._is_detached:
            self._stdin.close()
        self._settled.open()
        # The host writes nothing any more.
        code = self._process.wait()
        with contextlib.suppress(OSError, ValueError):
            # Whatever ends the server's processes after a sudden end of the host has the other end of the pipe.
            while not self._is_detached and self._stdout.read(_LINE_BYTES):
                pass
        self._stdout.close()
        why = self._process_ended(f"ended with its host, which {ending_of(code)}")
        self._ended.open()
        if not self._is_detached and self._answer is not None:
            self._tell(why)

    def _process_ended(self, why: str) -> str:
        """The process stands for the host. Returns what the program is told."""
        self._why_ended = why
        return why
