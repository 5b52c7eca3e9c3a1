"""Starting `gaia mcp serve` and its relatives as real processes, and speaking to them."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


def command(*arguments: str) -> list[str]:
    """The `gaia` command of this environment."""
    return [sys.executable, "-m", "gaia.cli.main", *arguments]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What lets a served process import the tests' agents and the documentation's."""
    path = [str(ROOT), str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **(extra or {})}


class Served:
    """A running HTTP server and its address."""

    def __init__(self, process: subprocess.Popen[str], lines: queue.SimpleQueue[str], stderr: list[str]) -> None:
        self.process = process
        self.stderr = stderr
        self._lines = lines
        self.url = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def base(self) -> str:
        """The address without a path."""
        return "/".join(self.url.split("/")[:3])

    @property
    def port(self) -> int:
        return int(self.base.rsplit(":", 1)[1])

    def wait_for(self, text: str) -> str:
        """The next line on standard error with `text` in it."""
        while text not in (line := self._lines.get(timeout=PATIENCE)):
            if not line:
                raise AssertionError(f"ended without saying {text!r}: {''.join(self.stderr)}")
        return line


@contextlib.contextmanager
def http_server(
    *arguments: str, group: Sequence[str] = ("mcp", "serve"), env: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """`gaia mcp serve … --transport http` on a free port, until the end of the context."""
    http = [] if group[0] == "api" else ["--transport", "http"]
    port = [] if "--port" in arguments else ["--port", "0"]
    line = command(*group, *arguments, *http, *port)
    with subprocess.Popen(
        line, env=environment(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        stderr: list[str] = []
        reader = threading.Thread(target=_read, args=(process.stderr, lines, stderr))
        reader.start()
        served = Served(process, lines, stderr)
        try:
            served.url = served.wait_for("endpoint: ").rsplit(" ", 1)[1].strip()
            yield served
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
            reader.join()


def _read(stream: IO[str] | None, lines: queue.SimpleQueue[str], kept: list[str]) -> None:
    assert stream is not None
    for line in stream:
        kept.append(line)
        lines.put(line)
    lines.put("")
