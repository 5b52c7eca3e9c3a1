"""The `gaia` command as a user has it: a process of its own, with a home and a working directory of the test's."""

import codecs
import contextlib
import fcntl
import functools
import importlib.util
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner, Result

import gaia
from gaia.cli.main import app
from tests.waiting import PATIENCE

SOURCE = Path(gaia.__file__).parents[1]

TERMINAL_VARIABLES = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "TERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""What makes output differ between the machines that tests run on."""


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run ``gaia mcp`` in this process, whose threads and descriptors are checked for leaks."""
    for name in TERMINAL_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def invoke_mcp(*words: object) -> Result:
        return CliRunner().invoke(app, ["mcp", *map(str, words)])

    return invoke_mcp


@pytest.fixture
def invoke_json(invoke: Callable[..., Result]) -> Callable[..., Any]:
    """The same with ``--json``; returns the document on standard output, which has to be one."""

    def invoke_mcp(*words: object) -> Any:
        return json.loads(invoke(*words, "--json").stdout)

    return invoke_mcp


@pytest.fixture
def output(invoke: Callable[..., Result]) -> Callable[..., str]:
    """Run a command that works; returns what it writes to standard output."""

    def run(*words: object) -> str:
        result = invoke(*words)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


@pytest.fixture
def refused(invoke: Callable[..., Result]) -> Callable[..., str]:
    """Run a command that cannot be tried; returns what it writes to standard error."""
    return functools.partial(_error_of, invoke, 2)


@pytest.fixture
def failed(invoke: Callable[..., Result]) -> Callable[..., str]:
    """Run a command that fails; returns what it writes to standard error."""
    return functools.partial(_error_of, invoke, 1)


def _error_of(invoke: Callable[..., Result], exit_code: int, *words: object) -> str:
    result = invoke(*words)
    assert result.exit_code == exit_code
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture
def environment() -> dict[str, str]:
    """For a process that runs `gaia`."""
    kept = {name: value for name, value in os.environ.items() if name not in TERMINAL_VARIABLES}
    return kept | {"PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "utf-8"}


@pytest.fixture
def gaia_argv() -> list[str]:
    return [sys.executable, "-m", "gaia.cli.main"]


@pytest.fixture
def run(
    starts_programs: None, gaia_argv: list[str], environment: dict[str, str]
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run ``gaia mcp`` as a process of its own; returns what it wrote and its exit status."""

    def run_mcp(*words: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*gaia_argv, "mcp", *map(str, words)],
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
        )

    return run_mcp


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Run ``gaia mcp`` for a person who answers; returns the exit status and what was written to standard error."""

    def run(text: str, *words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", Terminal(text))
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        monkeypatch.setenv("NO_COLOR", "1")
        with pytest.raises(SystemExit) as ended:
            app(["mcp", *words], prog_name="gaia")
        assert isinstance(ended.value.code, int)
        return ended.value.code, terminal.getvalue()

    return run


@pytest.fixture
def hide_package(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have a package look as if it were not installed."""
    find_spec = importlib.util.find_spec

    def hide(hidden: str) -> None:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *rest: None if name == hidden else find_spec(name, *rest)
        )

    return hide


class Started(subprocess.Popen[str]):
    """A process that is not waited for where the test has failed meanwhile: it would never end."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


@pytest.fixture
def start(
    starts_programs: None, gaia_argv: list[str], environment: dict[str, str]
) -> Callable[..., "subprocess.Popen[str]"]:
    """The same without waiting for its end. It leads a process group, as a command in a terminal does."""

    def start_mcp(*words: str, **variables: str) -> "subprocess.Popen[str]":
        return Started(
            [*gaia_argv, "mcp", *words],
            env=environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )

    return start_mcp


class Screen:
    """What a command has written to its terminal, and its exit status."""

    def __init__(self, drawn: str, exit_code: int) -> None:
        self.drawn = drawn
        self.exit_code = exit_code

    @property
    def text(self) -> str:
        """Without terminal sequences."""
        return re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", self.drawn).replace("\r\n", "\n")


@pytest.fixture
def at_terminal(starts_programs: None, gaia_argv: list[str], environment: dict[str, str]) -> Callable[..., Screen]:
    r"""Run ``gaia mcp`` on a terminal of its own.

    ``answers`` are pairs: when the first text has been drawn, after what was drawn for the pair before, the second one
    is typed, or called. ``\x03`` is Ctrl-C.
    """

    def run_mcp(
        *words: object,
        answers: Sequence[tuple[str, str | Callable[[], object]]] = (),
        columns: int = 100,
        **variables: str,
    ) -> Screen:
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(
            [*gaia_argv, "mcp", *map(str, words)],
            env=environment | {"TERM": "xterm-256color"} | variables,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        waiting, drawn, seen = list(answers), "", 0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # What Linux says when the last process has closed the terminal.
        with open(controller, "r+b", buffering=0) as screen, contextlib.suppress(OSError):
            while chunk := screen.read(65536):
                drawn += decoder.decode(chunk)
                while waiting and (found := drawn.find(waiting[0][0], seen)) >= 0:
                    seen = found + len(waiting[0][0])
                    typed = waiting.pop(0)[1]
                    if callable(typed):
                        typed()
                    elif typed == "\x03":
                        # It is not the terminal that controls the process, so it would only be a character.
                        os.killpg(process.pid, signal.SIGINT)
                    else:
                        screen.write(typed.encode())
        exit_code = process.wait(PATIENCE)
        assert waiting == [], f"was never asked, in: {drawn}"
        return Screen(drawn, exit_code)

    return run_mcp


@pytest.fixture
def configure(home: Path) -> Callable[..., Path]:
    """Write the user's configuration: ``configure(demo={"command": …})``; returns its path."""

    def write(**servers: dict[str, Any]) -> Path:
        file = home / ".gaia" / "mcp_servers.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"mcpServers": servers}))
        return file

    return write


@pytest.fixture
def processes_of(tmp_path: Path) -> Callable[[], list[int]]:
    """The processes that this test's servers run in, whoever their parents are: they name a file of the test."""

    def find() -> list[int]:
        return [
            process.pid
            for process in psutil.process_iter(["cmdline", "status"])
            if process.info["status"] != psutil.STATUS_ZOMBIE
            and any(str(tmp_path) in word for word in process.info["cmdline"] or ())
        ]

    return find
