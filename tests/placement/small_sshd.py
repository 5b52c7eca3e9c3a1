"""An sshd on the loopback interface, with throw-away keys, whose connections can be cut."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.waiting import wait_until


def missing() -> str | None:
    """Why none can be started here; None if one can."""
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return "ssh is not installed"
    return None if sshd() else "sshd is not installed"


def sshd() -> str | None:
    return shutil.which("sshd", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))


class SmallSshd:
    def __init__(self, folder: Path) -> None:
        """Start it. `folder` gets its keys and settings, and a ``.ssh`` for the client."""
        self.folder = folder
        for name in ("host_key", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        shutil.copy(folder / "key.pub", folder / "authorized_keys")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "PermitRootLogin prohibit-password\nPermitUserEnvironment yes\nMaxStartups 100\n"
        )
        program = sshd()
        assert program is not None
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self._process = subprocess.Popen([program, "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "log")])
        public = " ".join((folder / "host_key.pub").read_text().split()[:2])
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}\n")
        # The settings of a user of these tests. ssh finds a user's own by the user's id, and not by HOME.
        (folder / "ssh_config").write_text(f"UserKnownHostsFile {folder}/known_hosts\nStrictHostKeyChecking yes\n")
        self.commands = folder / "bin"
        self.commands.mkdir()
        (self.commands / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
        (self.commands / "ssh").chmod(0o700)
        assert wait_until(self._listens), (folder / "log").read_text()

    def _listens(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        return False

    def placement(self, **keys: Any) -> dict[str, Any]:
        key = str(self.folder / "key")
        user = {"user": getpass.getuser(), "identityFile": key, "python": sys.executable}
        return {"engine": "ssh", "host": "127.0.0.1", "port": self.port, **user, **keys}

    def cut(self) -> None:
        """Kill its processes for the connections, and not what these run."""
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "sshd" in process.name():
                    process.kill()

    def stop(self) -> None:
        self.cut()
        self._process.kill()
        self._process.wait()
