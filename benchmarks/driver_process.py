"""The harness's side of a driver: sends it commands, and binds it to processor cores."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.contenders import Contender
from benchmarks.environments import interpreter_for, variables_for

_DRIVERS = Path(__file__).parent / "drivers"
_MAX_SECONDS = 120.0
_LEAVE_SECONDS = 10.0
_RECOVERY_GRACE_SECONDS = 2.0
"""For a call that is under way when it is time to give up."""

_POLL_SECONDS = 0.005

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
"""The cores that may be used; empty where processes cannot be bound to cores."""


class DriverFailed(RuntimeError):
    """The contender cannot do what was asked of it; the message says why."""


class DriverProcess:
    """One contender in a process of its own. A context manager; nothing of it is left on leaving."""

    def __init__(self, contender: Contender, server: list[str]) -> None:
        """The interpreter is started, and the contender is not loaded yet.

        `server` is the command line of servers, or the URL of the one over HTTP. Raises CannotInstall.
        """
        self.contender = contender
        self._server = server
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            [interpreter_for(contender), _DRIVERS / contender.driver, *contender.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=variables_for(contender),
            bufsize=0,
        )
        self._psutil = psutil.Process(self._process.pid)
        self._received = b""

    def __enter__(self) -> DriverProcess:
        return self

    def __exit__(self, *_: object) -> None:
        family = [*self._family(), self._psutil]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # The driver leaves at the end of its input, and its servers at the end of theirs.
        self._process.stdin.close()
        deadline = time.monotonic() + _LEAVE_SECONDS
        while (left := [process for process in family if _is_running(process)]) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    # Commands to the driver.

    def ask(self, **command: Any) -> dict[str, Any]:
        """Any other command, of a driver that has commands of its own."""
        return self._ask(**command)

    def load(self) -> float:
        """Import the contender; in seconds."""
        return float(self._ask(do="load")["seconds"])

    def connect(self, servers: int) -> float:
        """Start servers and shake hands; in seconds."""
        return float(self._ask(do="connect", argv=self._server, servers=servers)["seconds"])

    def disconnect(self) -> float:
        """End the servers as a program does that is done; in seconds. Raises DriverFailed if one of them is left."""
        seconds = float(self._ask(do="disconnect")["seconds"])
        if left := len(self.servers()):
            raise DriverFailed(f"{left} servers are left after they were disconnected")
        return seconds

    def call(self, size: int, count: int) -> tuple[list[float], float]:
        """Calls one after the other: the latency of each, and the processor time of all, in seconds."""
        answer = self._ask(do="call", size=size, count=count)
        return answer["latencies"], answer["cpu"]

    def crowd(self, callers: int, servers: int, seconds: float) -> float:
        """Calls per second that so many callers get answered."""
        answer = self._ask(do="crowd", callers=callers, servers=servers, seconds=seconds)
        return float(answer["calls"] / answer["seconds"])

    def recover(self, give_up: float) -> float:
        """Seconds from the SIGKILL of the oldest server to the next good answer. Raises DriverFailed if none comes.

        A stand-by is younger than the server that it is for.
        """
        patience = give_up + _RECOVERY_GRACE_SECONDS
        if not self.servers():
            raise DriverFailed("there is no server that could be killed")
        answer = self._ask(patience, do="recover", pid=self.servers()[0].pid, give_up=give_up)
        if answer["seconds"] is None:
            raise DriverFailed(f"no good answer within {give_up:g} s; the last error: {answer['last'] or 'none'}")
        return float(answer["seconds"])

    def lose(self, calls: int, give_up: float) -> tuple[float, int]:
        """Kill the oldest server while it has so many calls of a gateway's clients.

        Seconds until all clients have been told, and how many were told about the delivery. Raises DriverFailed if some
        are told nothing.
        """
        answer = self._ask(
            give_up + _RECOVERY_GRACE_SECONDS, do="lose", pid=self.servers()[0].pid, calls=calls, give_up=give_up
        )
        if answer["seconds"] is None:
            raise DriverFailed(f"only {answer['told']} of {calls} clients were told within {give_up:g} s")
        return float(answer["seconds"]), int(answer["with_delivery"])

    def call_beside(self, sessions: int, count: int) -> tuple[list[float], list[float]]:
        """Latencies of a gateway's client, first alone, then beside one that has a call in each of its sessions."""
        answer = self._ask(do="beside", sessions=sessions, count=count)
        return answer["alone"], answer["beside"]

    def open_sessions(self, sessions: int) -> None:
        """Have so many sessions with a gateway."""
        self._ask(do="sessions", count=sessions)

    # The driver's processes, seen from outside.

    def servers(self) -> list[psutil.Process]:
        """Those that run, the oldest first."""
        found = [process for process in self._family() if _command_line(process) == self._server]
        return sorted(found, key=_age)

    def helpers(self) -> list[psutil.Process]:
        """Processes that the contender has started for its own purposes."""
        servers = {process.pid for process in self.servers()}
        return [process for process in self._family() if process.pid not in servers]

    @property
    def process(self) -> psutil.Process:
        return self._psutil

    def place(self, client: int | None, server: int | None) -> None:
        """Bind client and servers to a core each; None leaves it to the scheduler."""
        if not CORES:
            return
        for process in [self._psutil, *self.helpers()]:
            bind(process, client)
        for process in self.servers():
            bind(process, server)

    def _family(self) -> list[psutil.Process]:
        try:
            return self._psutil.children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _ask(self, patience: float = _MAX_SECONDS, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
        except BrokenPipeError:
            raise DriverFailed(self._failure()) from None
        answer: dict[str, Any] = json.loads(self._line(patience))
        if "error" in answer:
            raise DriverFailed(f"{command['do']}: {answer['error']}")
        return answer

    def _line(self, patience: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + patience
        while b"\n" not in self._received:
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise DriverFailed(f"no answer within {patience:g} s")
            chunk = os.read(descriptor, 1 << 20)
            if not chunk:
                raise DriverFailed(self._failure())
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _failure(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"the driver ended: {lines[-1] if lines else 'without a word'}"


def _is_running(process: psutil.Process) -> bool:
    try:
        # A zombie has ended, even if its parent has not reaped it yet.
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _age(process: psutil.Process) -> tuple[float, int]:
    try:
        return process.create_time(), process.pid
    except psutil.Error:
        return float("inf"), process.pid


def bind(process: psutil.Process, core: int | None) -> None:
    """Bind all threads of a process to a core; None leaves it to the scheduler."""
    if not CORES:
        return
    cores = CORES if core is None else [core]
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        for thread in process.threads():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread.id, cores)
