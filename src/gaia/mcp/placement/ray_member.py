"""`Member`: the process of this program that is in a Ray cluster, see `ray_process`."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaia.mcp.errors import StartFailed
from gaia.runtime.locks import Latch, reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.threads import EngineThread

logger = get_logger(__name__)

_REACH_SECONDS = 5.0
_JOIN_SECONDS = 30.0
_ANSWER_SECONDS = 30.0
_LEAVE_SECONDS = 5.0
_PROGRAM = Path(__file__).with_name("ray_process.py")


class Member:
    """Thread-safe."""

    def __init__(self, address: str) -> None:
        """Join. Raises StartFailed."""
        self.address = address
        self.users = 0
        self.owner = os.getpid()
        self.ended = Latch()
        self._numbers = itertools.count(1)
        self._answers: dict[int, tuple[Latch, dict[str, Any]]] = {0: (Latch(), {})}
        self._later: dict[int, Callable[[str], None]] = {}
        self._writing = reentrant_lock()
        self._words = ""
        """Why the process has ended."""
        try:
            _reach(address)
            # A file, because Ray's client may write much, or end in the middle of a line.
            self._noise = tempfile.TemporaryFile()  # noqa: SIM115 - `_read` closes it
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM), address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._noise,
                start_new_session=True,
            )
        except OSError as error:
            raise StartFailed(_not_joined(address, str(error))) from error
        assert self._process.stdin is not None and self._process.stdout is not None, "they are pipes"  # noqa: PT018
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._reader = EngineThread(self._read, "mcp-ray")
        self._reader.start()
        answer = self.result(0, _JOIN_SECONDS)
        if answer is None or "problem" in answer:
            self.leave()
            raise StartFailed(_not_joined(address, (answer or {}).get("problem", f"no answer in {_JOIN_SECONDS:g} s")))

    @property
    def is_usable(self) -> bool:
        return not self.ended.is_open and self.owner == os.getpid()

    def begin(self, operation: str, on_later: Callable[[str], None] | None = None, **arguments: Any) -> int:
        """Send a request. Returns its number, for `result`."""
        number = next(self._numbers)
        self._answers[number] = (Latch(), {})
        if on_later is not None:
            self._later[number] = on_later
        line = json.dumps({"id": number, "op": operation, **arguments}).encode() + b"\n"
        with self._writing, contextlib.suppress(OSError, ValueError):
            # What is wrong is told by `_read`.
            self._stdin.write(line)
            self._stdin.flush()
        if self.ended.is_open:
            self._give_up()
        return number

    def result(self, number: int, timeout: float) -> dict[str, Any] | None:
        """The answer to a request, asked for once; None if there is none within `timeout` seconds."""
        latch, answer = self._answers[number]
        is_there = latch.wait(timeout)
        self._answers.pop(number, None)
        return answer if is_there else None

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Raises StartFailed with the problem."""
        answer = self.result(self.begin(operation, **arguments), arguments.get("grace", 0.0) + _ANSWER_SECONDS)
        if answer is None or "problem" in answer:
            raise StartFailed((answer or {}).get("problem", f"the Ray cluster at {self.address} does not answer"))
        return answer

    def leave(self) -> None:
        """End the process, and with it the hosts that are not shared."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        if not self.ended.wait(_LEAVE_SECONDS):
            self._process.kill()
        self._reader.join(_LEAVE_SECONDS)

    def after_fork(self) -> None:
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                os.close(pipe.fileno())

    def _read(self) -> None:
        for line in self._stdout:
            message = json.loads(line)
            number = message.pop("id", 0)
            if "ended" in message:
                if (on_later := self._later.pop(number, None)) is not None:
                    on_later(message["ended"])
                continue
            if "problem" in message:
                # A start that has failed tells nothing later.
                self._later.pop(number, None)
            if (waiting := self._answers.get(number)) is not None:
                waiting[1].update(message)
                waiting[0].open()
        self._process.wait()
        self._stdout.close()
        self._words = self._last_words()
        logger.debug("ray_client_ended", address=self.address, words=self._words)
        self.ended.open()
        self._give_up()

    def _give_up(self) -> None:
        """End the waits for answers that will not come."""
        for latch, answer in list(self._answers.values()):
            if not latch.is_open:
                answer["problem"] = self._words
                latch.open()

    def _last_words(self) -> str:
        with self._noise as noise:
            noise.seek(0)
            lines = noise.read().decode(errors="replace").strip().splitlines()
        return f"Ray's client has ended: {lines[-1]}" if lines else "Ray's client has ended"


def _not_joined(address: str, problem: str) -> str:
    # The variable comes before what the placement says, and may be an old one.
    where = f"{address} (RAY_ADDRESS)" if address == os.environ.get("RAY_ADDRESS") else address
    return (
        f"the Ray cluster at {where} cannot be joined: {problem}; 'ray start --head' starts one, and prints its address"
    )


def _reach(address: str) -> None:
    """Raise OSError if nothing is there: Ray would try for a long time."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
