"""The commands that examples find on PATH: ``gaia`` at little cost, stand-ins for servers, and what must not run."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent

REFUSED = ("apt", "brew", "docker", "kubectl", "npm", "pip", "pip3", "pipx", "sudo", "systemctl", "tox", "uv")
"""Commands that change the machine or need a network."""


@contextlib.contextmanager
def commands(directory: Path, python: str) -> Iterator[Path]:
    """A folder for PATH with ``gaia``, ``python-block`` and the stand-ins; the fork server runs meanwhile."""
    with tempfile.TemporaryDirectory(prefix="gaia-", dir="/tmp") as short:  # Addresses have at most 100 characters.
        address = Path(short) / "fork-server"
        folder = directory / "bin"
        folder.mkdir()
        _write_commands(folder, address, python)
        server = subprocess.Popen(
            [python, HERE / "fork_server.py", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        # Leaving it closes its standard input, and waits.
        with server:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n", "the fork server did not start"
            yield folder


def _write_commands(folder: Path, address: Path, python: str) -> None:
    programs = {
        "gaia": [HERE / "fork_client.py", address, "gaia"],
        "python-block": [HERE / "fork_client.py", address, "python"],
        "uvx": [HERE / "stand_in_server.py"],
        "npx": [HERE / "stand_in_server.py"],
        "mcp-server-time": [HERE / "stand_in_server.py", "mcp-server-time"],
        "mcp-server-git": [HERE / "stand_in_server.py", "mcp-server-git"],
        "mcp-server-filesystem": [HERE / "stand_in_server.py", "@modelcontextprotocol/server-filesystem"],
    }
    for name, words in programs.items():
        isolated = ["-S", "-I"] if words[0] == HERE / "fork_client.py" else []
        line = shlex.join(map(str, [python, *isolated, *words]))
        _write_command(folder / name, f'exec {line} "$@"')
    for name in REFUSED:
        _write_command(folder / name, f'echo "{name} does not run in tests: use skip or not-run" >&2; exit 1')


def _write_command(file: Path, line: str) -> None:
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)
