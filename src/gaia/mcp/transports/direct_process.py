"""A server process that is a child of this one: where there is no fork server.

Descendants of the server that left its process group are found by a mark in their environment, see `strays`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gaia.mcp.errors import StartFailed
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.transports.guard import MARK_VARIABLE, host_guard
from gaia.mcp.transports.process import KILL, ServerProcess, ending_of, lineage
from gaia.mcp.transports.strays import end_strays, signal_each
from gaia.runtime.log import get_logger
from gaia.runtime.threads import EngineThread

if TYPE_CHECKING:
    import psutil

logger = get_logger(__name__)

_REAP_SECONDS = 5.0


class DirectProcess(ServerProcess):
    """A running server that this process has started itself."""

    def __init__(
        self,
        argv: list[str],
        environment: Mapping[str, str],
        cwd: str | None,
        name: str,
        on_exit: Callable[[], None],
    ) -> None:
        """Start it. `on_exit` is called once, from a thread of ours. Raises StartFailed, and leaves nothing then."""
        super().__init__(on_exit)
        self._mark = uuid.uuid4().hex
        try:
            self.popen = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment, MARK_VARIABLE: lineage(self._mark)},
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
        try:
            host_guard.protect(self.pid, self._mark)
            self._watcher = EngineThread(self._watch, f"{name}-exit", on_exit)
            self._watcher.start()
        except BaseException as error:
            self._signal_group(KILL)
            self.popen.wait()
            for pipe in (self.stdin, self.stdout, self.stderr):
                pipe.close()
            host_guard.release(self.pid)
            if isinstance(error, RuntimeError):
                raise StartFailed(f"no thread for the server: {error}") from error
            raise

    def _watch(self) -> None:
        ending = Ending()
        if hasattr(os, "waitid"):
            # WNOWAIT leaves the zombie: see `_end_rest`. ECHILD: the application reaps all children by itself.
            with contextlib.suppress(ChildProcessError):
                result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
                if result is not None:
                    ending = ending_of(result.si_status if result.si_code == os.CLD_EXITED else -result.si_status)
        else:
            ending = ending_of(self.popen.wait())
        self._has_ended(ending)

    def _signal_group(self, number: int) -> None:
        if os.name == "nt":
            signal_each(self._descendants(), number)
            self.popen.kill()
        else:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)
                # A stopped process receives no signal but SIGKILL until it is continued.
                os.killpg(self.pid, signal.SIGCONT)

    def _end_rest(self) -> None:
        # The leader is dead but not reaped yet, so its group id cannot belong to strangers.
        try:
            end_strays(self.pid, self._mark)
        except (OSError, ImportError) as error:
            # No descriptor is left to look for processes with. Those of the group are known all the same.
            logger.error("strays_not_found", pid=self.pid, error=str(error))
            self._signal_group(KILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(_REAP_SECONDS)
        self._watcher.join(_REAP_SECONDS)
        host_guard.release(self.pid)

    def _descendants(self) -> list[psutil.Process]:
        import psutil

        try:
            return list(psutil.Process(self.pid).children(recursive=True))
        except psutil.Error:
            return []


_CREATION_FLAGS = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
