"""Runs the echo server over HTTP that benchmarks measure clients against."""

from __future__ import annotations

import subprocess

import psutil

from benchmarks.driver_process import bind
from benchmarks.echo_server import build


class HttpEchoServer:
    """One server in a process of its own. A context manager; the server ends on leaving."""

    def __init__(self, *, events: bool = False) -> None:
        """`events`: whether it answers with event streams instead of JSON. Raises NoCompiler."""
        command = [str(build("http_echo_server")), *(["--events"] if events else [])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/mcp"

    def __enter__(self) -> HttpEchoServer:
        return self

    def __exit__(self, *_: object) -> None:
        # It leaves at the end of its input.
        self._process.communicate()

    def place(self, core: int) -> None:
        """Bind it to a core."""
        bind(psutil.Process(self._process.pid), core)
