"""`SshEngine`: a host on a machine that the system's ``ssh`` reaches, with the user's settings, keys and host keys.

One ssh process runs the host there. The `Launch` goes through its standard input, so no argument has a secret. The host
listens on its machine's loopback interface only, and ssh forwards a local port to it as soon as the host has said where
that is. The end of the ssh process ends the host. ssh asks nothing (``BatchMode``), and forwards no agent.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import ConfigError, StartFailed
from gaia.mcp.placement.engine import Address, Engine, Launch, PlacedServer, Ready
from gaia.mcp.placement.host_process import HostProcess

_MODULE = "gaia.mcp.gateway.host"
_OPTIONS = (
    "BatchMode=yes", "ForwardAgent=no", "ForwardX11=no", "RequestTTY=no", "RemoteCommand=none",
    "PermitLocalCommand=no", "ServerAliveCountMax=3",
)  # fmt: skip
_PROCESSES = 'ps -o pid= -o args= -u "$(id -u)"'
_HOST = re.compile(rf"^ *(\d+) +\S+ -P -m {re.escape(_MODULE)} (.*)$", re.MULTILINE)

_LOST = 255
"""The exit code of ssh if it could not connect, or has lost the connection; others are the remote command's."""
_COMMAND_SECONDS = 10.0
_ATTEMPTS = 5
_ASK_AGAIN_SECONDS = 1.0
# The path of a socket may have about 100 bytes, and ssh adds some.
_SHORT_FOLDER = "/tmp" if os.path.isdir("/tmp") else None  # noqa: S108


class SshEngine(Engine):
    """See `Engine`."""

    def __init__(self, placement: Placement) -> None:
        """Raises ConfigError if there is no ssh."""
        ssh = shutil.which("ssh")
        if ssh is None or os.name == "nt":
            raise ConfigError('the engine "ssh" needs the command ssh of OpenSSH, on Linux or macOS')
        assert placement.host is not None, "it was checked"
        self.host = placement.host
        self.python = placement.python
        given = {"-l": placement.user, "-p": placement.port, "-i": placement.identity_file}
        options = [word for option in _OPTIONS for word in ("-o", option)]
        self._ssh = [ssh, *options, *(str(word) for pair in given.items() if pair[1] for word in pair)]
        if placement.identity_file:
            self._ssh += ["-o", "IdentitiesOnly=yes"]

    def start(self, launch: Launch, on_ended: Callable[[str], None]) -> _SshHost:
        return _SshHost(self, launch, on_ended)

    def end(self, host: str) -> bool:
        if host in (known.id for known in self.list()):
            self.remote(f"kill {int(host)}")
        return all(known.id != host for known in self.list())

    def look(self) -> str:
        code = "import sys, gaia; print('Python', sys.version.split()[0], 'with gaia-mcp', gaia.__version__)"
        return self.remote(f"{shlex.quote(self.python)} -P -c {shlex.quote(code)}").strip()

    def command(self, options: list[str], *words: str) -> list[str]:
        return [*self._ssh, *options, "--", self.host, *words]

    def remote(self, command: str) -> str:
        """The output of a command there. Raises StartFailed if it fails, or takes too long."""
        run = _run(self.command([], command))
        if run.returncode:
            said = (run.stderr.strip() or run.stdout.strip()).splitlines()
            raise StartFailed(f"ssh to {self.host}: {said[-1] if said else f'exit code {run.returncode}'}")
        return run.stdout

    def list(self) -> list[PlacedServer]:
        """The hosts of the user on that machine."""
        found = _HOST.findall(self.remote(_PROCESSES))
        return [PlacedServer(name=name, node=self.host, id=pid, is_shared=False) for pid, name in found]


class _SshHost(HostProcess):
    """A host behind an ssh process."""

    def __init__(self, engine: SshEngine, launch: Launch, on_ended: Callable[[str], None]) -> None:
        self._engine = engine
        self._asked_at = 0.0
        self._ready: Ready | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="gaia-ssh-", dir=_SHORT_FOLDER))
        alive = max(1, int(launch.lease / 3))
        self._socket = str(self._folder / "s")
        settings = ("ControlPersist=no", "ClearAllForwardings=yes", f"ServerAliveInterval={alive}")
        options = ["-M", "-S", self._socket, *(word for setting in settings for word in ("-o", setting))]
        # The name is for the users of that machine: nothing reads it.
        host = ["exec", shlex.quote(engine.python), "-P", "-m", _MODULE, shlex.quote(launch.name)]
        try:
            super().__init__(engine.command(options, *host), launch, on_ended, where=f"{engine.host}, over ssh")
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _address(self, ready: Ready, deadline: float) -> Address:
        self._ready = ready
        url = f"http://127.0.0.1:{self._forward(ready.port, deadline)}"
        return msgspec.structs.replace(ready.address(self._launch), url=url, node_id=self._engine.host)

    def _forward(self, remote_port: int, deadline: float) -> int:
        """Have ssh forward a local port. Another program may take a free one first."""
        for _ in range(_ATTEMPTS):
            with socket.create_server(("127.0.0.1", 0)) as free:
                port: int = free.getsockname()[1]
            forward = ["-S", self._socket, "-O", "forward", "-L", f"127.0.0.1:{port}:127.0.0.1:{remote_port}"]
            run = _run(self._engine.command(forward), max(0.1, deadline - time.monotonic()))
            if run.returncode == 0:
                return port
        raise StartFailed(f"ssh does not forward a port: {run.stderr.strip()}")

    def stop(self, grace: float) -> bool:
        has_ended = super().stop(grace)
        shutil.rmtree(self._folder, ignore_errors=True)
        if has_ended and self._why_ended is None and (not self._is_lost() or self._is_gone()):
            self._why_ended = "was stopped"
        return self._why_ended is not None

    def _is_lost(self) -> bool:
        code = self._process.returncode
        return code in (None, _LOST) or code < 0

    def _is_gone(self) -> bool:
        """Ask over another connection, now and then, whether the host has ended without the one that was lost."""
        if self._ready is None:
            # It has not answered, and ends with the connection.
            return True
        if time.monotonic() - self._asked_at < _ASK_AGAIN_SECONDS:
            return False
        self._asked_at = time.monotonic()
        with contextlib.suppress(StartFailed):
            return str(self._ready.pid) not in (host.id for host in self._engine.list())
        return False

    def _process_ended(self, why: str) -> str:
        if not self._is_lost():
            return super()._process_ended(why)
        # The host may run until it notices: this ends the channel, and `stop` finds out the rest.
        return f"has lost the ssh connection to {self._engine.host}"


def _run(command: list[str], seconds: float = _COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
    """Raises StartFailed if it takes too long."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise StartFailed(f"ssh has not answered within {seconds:.0f} s") from error
