"""`ProcessEngine`: hosts on this machine, as processes. `HostProcess` is for other engines, too."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec
import psutil

from gaia.mcp.errors import ConfigError, StartFailed
from gaia.mcp.placement.engine import Address, Launch, Placed, PlacedServer, Ready
from gaia.mcp.transports.command import server_environment
from gaia.mcp.transports.process import ending_of
from gaia.runtime import json_file, private_files
from gaia.runtime.locks import Latch
from gaia.runtime.redaction import Redactor
from gaia.runtime.threads import EngineThread

HOST_COMMAND = [sys.executable, "-m", "gaia.mcp.gateway.host"]

_DETACH = ["/bin/sh", "-c", 'exec 3<&0; "$@" <&3 3<&- &', "sh"]
"""Starts a command that is no child of this process, and has its standard input."""

_KILL_SECONDS = 5.0
_POLL_SECONDS = 0.02
_TAIL_LINES = 20
_LINE_BYTES = 4096


class HostProcess:
    """A host, or a program such as ssh that stands for it, as a child process. Thread-safe.

    It gets the `Launch` on its standard input, which stays open: its end ends the host. It answers `Ready`.
    """

    def __init__(
        self,
        command: list[str],
        launch: Launch,
        on_ended: Callable[[str], None] = lambda _: None,
        *,
        environment: Mapping[str, str] | None = None,
        is_detached: bool = False,
    ) -> None:
        """`on_ended` is as for `Engine.start`. `is_detached`: the host outlives this process.

        Raises StartFailed if the command cannot be started.
        """
        self._launch = launch
        self._on_ended = on_ended
        self._is_detached = is_detached
        self._owner = os.getpid()
        self._redact = Redactor([launch.token, *launch.secrets])
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._ready: Ready | None = None
        self._settled = Latch()
        self._ended = Latch()
        self._is_stopping = False
        self._why_ended: str | None = None
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

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, timeout: float) -> Ready:
        """See `Placed.wait`; the message does not name the machine."""
        is_settled = self._settled.wait(timeout)
        ready = self._ready
        if ready is not None and ready.problem is None:
            return ready
        self.stop(0.0)
        if ready is not None:
            raise StartFailed(ready.problem or "")
        if not is_settled:
            raise StartFailed(f"its host was not ready within {timeout:g} s")
        told = self._redact("\n".join(self._tail))
        raise StartFailed(f"its host ended before it was ready{': ' + told if told else ''}")

    @property
    def exit_code(self) -> int | None:
        """That of the process, once it has ended."""
        return self._process.returncode

    def why_ended(self) -> str | None:
        return self._why_ended

    def stop(self, grace: float) -> bool:
        """See `Placed.stop`. True means that the process has ended."""
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
            if self._is_detached:
                self._stdin.close()
        while line := self._stdout.readline(_LINE_BYTES):
            with contextlib.suppress(msgspec.MsgspecError):
                self._ready = msgspec.json.decode(line, type=Ready)
                break
            self._tail.append(line.decode("utf-8", "replace").rstrip())
        self._settled.open()
        # The host writes nothing any more.
        code = self._process.wait()
        with contextlib.suppress(OSError, ValueError):
            # Whatever ends the server's processes after a sudden end of the host has the other end of the pipe.
            while not self._is_detached and self._stdout.read(_LINE_BYTES):
                pass
        self._stdout.close()
        self._why_ended = f"ended with its host, which {ending_of(code)}"
        self._ended.open()
        if not self._is_stopping and not self._is_detached and self._ready is not None:
            self._on_ended(self._why_ended)


class _OwnHost:
    """A host that ends with this program."""

    def __init__(self, launch: Launch, on_ended: Callable[[str], None]) -> None:
        self._launch = launch
        self._process = HostProcess(HOST_COMMAND, launch, on_ended, environment=_environment(launch))
        self.why_ended, self.stop = self._process.why_ended, self._process.stop
        self.after_fork = self._process.after_fork

    def wait(self, timeout: float) -> Address:
        return _address(self._launch, self._wait(timeout))

    def _wait(self, timeout: float) -> Ready:
        try:
            return self._process.wait(timeout)
        except StartFailed as error:
            raise StartFailed(f"on {socket.gethostname()}: {error.message}") from error


class _SharedHost:
    """A host that programs find by its name, in a file. The file is locked while a host is looked for or started."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._is_stopped = False
        self._file = _folder() / f"{quote(launch.name, safe='')}.json"
        self._process: HostProcess | None = None
        self._record: _Record | None = None

    def wait(self, timeout: float) -> Address:
        try:
            return self._wait(time.monotonic() + timeout)
        except (ConfigError, StartFailed, psutil.Error) as error:
            raise StartFailed(f"on {socket.gethostname()}: {error}") from error

    def _wait(self, until: float) -> Address:
        while not self._is_stopped:
            try:
                with json_file.locked(self._file, _POLL_SECONDS) as target:
                    record = _read(target)
                    if record is None:
                        record = self._started(until - time.monotonic())
                        json_file.write(target, msgspec.to_builtins(record))
                    self._record = record
                return record.address
            except ConfigError:
                # Another program starts the host.
                if time.monotonic() >= until:
                    raise
        raise StartFailed("it was stopped meanwhile")

    def _started(self, timeout: float) -> _Record:
        launch = self._launch
        process = HostProcess(HOST_COMMAND, launch, environment=_environment(launch), is_detached=True)
        self._process = process
        ready = process.wait(timeout)
        started = psutil.Process(ready.pid).create_time()
        return _Record(
            address=_address(launch, ready),
            started=started,
            name=launch.name,
            started_by=launch.started_by,
        )

    def why_ended(self) -> str | None:
        record = self._record
        return None if record is None or record.is_running() else "ended with its host"

    def stop(self, grace: float) -> bool:
        self._is_stopped = True
        record, until = self._record, time.monotonic() + grace
        if record is None:
            return self._process is None or self._process.stop(0.0)
        while record.is_running():
            if time.monotonic() >= until:
                with contextlib.suppress(psutil.Error):
                    psutil.Process(record.address.pid).kill()
                return not record.is_running()
            time.sleep(_POLL_SECONDS)
        with contextlib.suppress(ConfigError), json_file.locked(self._file, 0.0) as target:
            _read(target)
        return True

    def after_fork(self) -> None:
        """It has no descriptors."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a shared host. It holds the host's token."""

    address: Address
    started: float
    """When the process was started, as the system tells it: another process may have its id by now."""
    name: str
    started_by: str

    def is_running(self) -> bool:
        try:
            process = psutil.Process(self.address.pid)
            return process.create_time() == self.started and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


class ProcessEngine:
    """See `Engine`. The files of shared hosts are in ``~/.gaia/hosts``."""

    def start(self, launch: Launch, on_ended: Callable[[str], None]) -> Placed:
        return _SharedHost(launch) if launch.is_shared else _OwnHost(launch, on_ended)

    def list(self) -> list[PlacedServer]:
        """The shared hosts of this user. Files of hosts that have ended are deleted."""
        return list(_listed())

    def look(self) -> str:
        return f"this machine, {socket.gethostname()}"

    def end(self, host: str) -> bool:
        for record in (_read(file) for file in _folder().glob("[!.]*.json")):
            if record is not None and record.address.id == host:
                psutil.Process(record.address.pid).terminate()
                with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
                    psutil.Process(record.address.pid).wait(_KILL_SECONDS)
                return not record.is_running()
        return True

    def close(self) -> None:
        """It keeps nothing."""


def _listed() -> Iterator[PlacedServer]:
    for file in sorted(_folder().glob("[!.]*.json")):
        with json_file.locked(file) as target:
            record = _read(target)
        if record is not None:
            address, age = record.address, time.time() - record.started
            yield PlacedServer(
                name=record.name,
                node=address.node,
                id=address.id,
                is_shared=True,
                started_by=record.started_by,
                age=age,
            )


def _read(target: Path) -> _Record | None:
    """The record of a host that runs; None if there is none, and then there is no file."""
    try:
        record = msgspec.json.decode(json_file.read_bytes(target), type=_Record)
    except msgspec.MsgspecError:
        record = None
    if record is None or not record.is_running():
        target.unlink(missing_ok=True)
        return None
    return record


def _folder() -> Path:
    return json_file.home_folder("hosts") / "hosts"


def _environment(launch: Launch) -> dict[str, str]:
    """The environment of a host: that of a server, because its other variables may hold secrets."""
    extra = {private_files.VARIABLE: os.pathsep.join(private_files.private_files())}
    if "PYTHONPATH" in os.environ:
        extra["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return server_environment(extra, inherit_all=launch.entry.get("inheritEnv") is True)


def _address(launch: Launch, ready: Ready) -> Address:
    return Address(
        url=f"http://{launch.listen}:{ready.port}",
        node=ready.node,
        id=str(ready.pid),
        pid=ready.pid,
        token=launch.token,
    )
