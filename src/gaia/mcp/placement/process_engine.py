"""`ProcessEngine`: hosts on this machine, as processes."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import psutil

from gaia.mcp.errors import ConfigError, StartFailed
from gaia.mcp.placement.engine import Address, Engine, Launch, Placed, PlacedServer
from gaia.mcp.placement.host_process import HostProcess
from gaia.mcp.transports.command import server_environment
from gaia.runtime import json_file, private_files

_COMMAND = [sys.executable, "-m", "gaia.mcp.gateway.host"]
_END_SECONDS = 5.0
_POLL_SECONDS = 0.02


class _SharedHost(Placed):
    """A host that programs find by its name, in a file. The file is locked while a host is looked for or started."""

    def __init__(self, launch: Launch, on_ended: Callable[[str], None]) -> None:
        super().__init__(on_ended)
        self._launch = launch
        self._file = _folder() / f"{quote(launch.name, safe='')}.json"
        self._process: HostProcess | None = None
        self._record: _Record | None = None

    def wait(self, timeout: float) -> Address:
        try:
            return self._wait(time.monotonic() + timeout)
        except (ConfigError, StartFailed, psutil.Error) as error:
            raise StartFailed(f"on {socket.gethostname()}: {error}") from error

    def _wait(self, until: float) -> Address:
        while not self._is_stopping:
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
                time.sleep(_POLL_SECONDS)
        raise StartFailed("it was stopped meanwhile")

    def _started(self, timeout: float) -> _Record:
        launch = self._launch
        process = self._process = _process(launch, self._on_ended, is_detached=True)
        ready = process.ready(timeout)
        started = psutil.Process(ready.pid).create_time()
        return _Record(address=ready.address(launch), started=started, name=launch.name, started_by=launch.started_by)

    def why_ended(self) -> str | None:
        record = self._record
        return None if record is None or record.is_running() else "ended with its host"

    def stop(self, grace: float) -> bool:
        """End a start. A host that was found may have other owners, so only its lease ends it."""
        self._is_stopping = True
        record, until = self._record, time.monotonic() + grace
        if record is None:
            return self._process is None or self._process.stop(0.0)
        while record.is_running():
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_SECONDS)
        with contextlib.suppress(ConfigError), json_file.locked(self._file, 0.0) as target:
            _read(target)
        return True


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


class ProcessEngine(Engine):
    """See `Engine`. The files of shared hosts are in ``~/.gaia/hosts``."""

    def start(self, launch: Launch, on_ended: Callable[[str], None]) -> Placed:
        return _SharedHost(launch, on_ended) if launch.is_shared else _process(launch, on_ended)

    def list(self) -> list[PlacedServer]:
        """The shared hosts of this user. Files of hosts that have ended are deleted."""
        return [
            PlacedServer(
                name=record.name,
                node=record.address.node,
                id=record.address.id,
                is_shared=True,
                started_by=record.started_by,
                age=time.time() - record.started,
            )
            for record in _records()
        ]

    def look(self) -> str:
        return f"this machine, {socket.gethostname()}"

    def end(self, host: str) -> bool:
        for record in _records():
            if record.address.id == host:
                with contextlib.suppress(psutil.Error):
                    process = psutil.Process(record.address.pid)
                    process.terminate()
                    process.wait(_END_SECONDS)
                return not record.is_running()
        return True


def _records() -> Iterator[_Record]:
    for file in sorted(_folder().glob("[!.]*.json")):
        with json_file.locked(file) as target:
            record = _read(target)
        if record is not None:
            yield record


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


def _process(launch: Launch, on_ended: Callable[[str], None], *, is_detached: bool = False) -> HostProcess:
    where, environment = socket.gethostname(), _environment(launch)
    return HostProcess(_COMMAND, launch, on_ended, where=where, environment=environment, is_detached=is_detached)


def _environment(launch: Launch) -> dict[str, str]:
    """The environment of a host: that of a server, because its other variables may hold secrets."""
    extra = {private_files.VARIABLE: os.pathsep.join(private_files.private_files())}
    if "PYTHONPATH" in os.environ:
        extra["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return server_environment(extra, inherit_all=launch.entry.get("inheritEnv") is True)
