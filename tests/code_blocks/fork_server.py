"""Starts ``gaia`` and Python code by forking a process that has imported gaia: ``fork_server.py SOCKET``.

The import takes several times as long as most examples. Each job gets the environment, the working directory, the
standard streams and the process group of its client (`fork_client.py`), and ends as a program does. The server ends
with its standard input.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import marshal
import os
import pkgutil
import select
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

PACKAGES = (
    "gaia.agents.base",
    "gaia.api",
    "gaia.cli",
    "gaia.dashboard",
    "gaia.mcp",
    "gaia.mcp.client",
    "gaia.mcp.authorization",
    "gaia.mcp.transports",
    "gaia.mcp.doctor",
    "gaia.mcp.server",
    "gaia.serving",
    "gaia.telemetry",
)
MODULES = ("filelock", "httpx2", "jsonschema", "mcp.server.streamable_http_manager", "openai", "psutil", "structlog")
"""What gaia imports only when it is used."""


@dataclass(frozen=True)
class Job:
    """What a client asks for."""

    kind: str
    """``gaia``, or ``python`` for a file whose traces show another name."""
    arguments: list[str]
    """Those of the command; for Python the file, its name in traces, and the program's own."""
    directory: str
    environment: dict[str, str]
    group: int
    streams: list[int]

    def enter(self) -> None:
        """Become what the client is: from here on this process is the job's."""
        with contextlib.suppress(OSError):  # The client was killed meanwhile.
            os.setpgid(0, self.group)
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(self.directory)
        os.environ.clear()
        os.environ.update(self.environment)
        # What PYTHONDONTWRITEBYTECODE says, which a Python reads when it starts.
        sys.dont_write_bytecode = True
        # New ones: those of the server remember what kind of file they were made for.
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115

    def run(self) -> None:
        """Do it; returns, or raises SystemExit."""
        if self.kind == "gaia":
            sys.argv = ["gaia", *self.arguments]
            sys.path[0] = ""
            importlib.import_module("gaia.cli.main").main()
            return
        file, name, *arguments = self.arguments
        sys.argv = [name, *arguments]
        sys.path[0] = self.directory
        main = sys.modules["__main__"] = ModuleType("__main__")
        # Annotations are what the example's own first lines make of them, not this file's.
        code = compile(Path(file).read_text(encoding="utf-8"), name, "exec", dont_inherit=True)
        exec(code, main.__dict__)


def accept_jobs(listener: socket.socket) -> Job:
    """Fork for each job; returns in the processes of the jobs only."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        job = receive(connection)
        if not (child := os.fork()):
            connection.close()
            return job
        for stream in job.streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(OSError):  # The client was killed meanwhile.
            connection.sendall(marshal.dumps(os.waitstatus_to_exitcode(status)))
        os._exit(0)


def receive(connection: socket.socket) -> Job:
    """What the client sends: the standard streams, then all else."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as reader:
        return Job(*marshal.loads(reader.read()), streams)


def main() -> None:
    """Import, listen, and say so on standard output."""
    modules = [
        module.name
        for package in PACKAGES
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")
    ]
    for name in (*modules, *MODULES):
        # Beside a framework there may be none of the packages of the extras, or another version of mcp.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # What is there now is not looked at again when a job ends, which would take longer than most jobs.
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        print("ready", flush=True)
        job = accept_jobs(listener)
    job.enter()
    job.run()


if __name__ == "__main__":
    main()
