"""A conversation with a server over bare pipes: what tests of *servers* use, so that they need no client of ours."""

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

from tests.waiting import PATIENCE

Json: TypeAlias = dict[str, Any]


class RawSession:
    """One server process; every wait ends with `PATIENCE` at the latest."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        # A file, so that nobody has to drain it; for appending, as reading moves the offset that the server shares.
        # __exit__ closes it.
        self._stderr = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, env=env, cwd=cwd
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._last_id = 0
        self.others: list[Json] = []
        """What `response_to` passed over, in order: notifications, requests and answers to other requests."""
        self._reader = threading.Thread(target=self._read, name="raw-session-reader", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        """Close stdin and wait for the end, or kill; nothing is left afterwards."""
        self.close_stdin()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(PATIENCE)
        self._stdout.close()
        self._stderr.close()

    def _read(self) -> None:
        for line in self._stdout:
            self._lines.put(line)
        self._lines.put(None)

    # To the server

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._stdin.write(data)
        self._stdin.flush()

    def send(self, *messages: Json) -> None:
        """Write messages, all in one write."""
        self.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def send_request(self, method: str, params: Json | None = None) -> int:
        """Send a request and return its id."""
        self._last_id += 1
        request = {"jsonrpc": "2.0", "id": self._last_id, "method": method}
        self.send(request | ({} if params is None else {"params": params}))
        return self._last_id

    def send_call(self, tool: str, arguments: Json | None = None, **more: Any) -> int:
        """Send a ``tools/call`` and return its id; `more` are further params."""
        return self.send_request("tools/call", {"name": tool, "arguments": arguments or {}, **more})

    def close_stdin(self) -> None:
        """Tell the server that nothing more will come."""
        # A server that is gone may leave bytes that can no longer be flushed.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    # From the server

    def receive_line(self) -> bytes:
        """Return the next line of stdout; raise `EOFError` when there is none any more."""
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise TimeoutError(f"no line within {PATIENCE} s; stderr: {self.stderr()}") from None
        if line is None:
            self._lines.put(None)
            raise EOFError(f"stdout ended; stderr: {self.stderr()}")
        return line

    def receive(self) -> Json:
        """Return the next message."""
        message: Json = json.loads(self.receive_line())
        return message

    def remaining(self) -> bytes:
        """Wait for the end of stdout and return what came until then."""
        received = b""
        with contextlib.suppress(EOFError):
            while True:
                received += self.receive_line()
        return received

    def response_to(self, request_id: int) -> Json:
        """Return the answer to a request; what comes before it goes to `others`."""
        while (message := self.receive()).get("id") != request_id or "method" in message:
            self.others.append(message)
        return message

    def request(self, method: str, params: Json | None = None) -> Json:
        """Send a request and return its answer, result or error."""
        return self.response_to(self.send_request(method, params))

    def call(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """Call a tool and return the answer, result or error."""
        return self.response_to(self.send_call(tool, arguments, **more))

    def call_for_text(self, tool: str, arguments: Json | None = None) -> str:
        """Call a tool and return the text of its result."""
        text: str = self.call(tool, arguments)["result"]["content"][0]["text"]
        return text

    def initialize(self, revision: str = "2025-11-25") -> Json:
        """Do the handshake and return the result of ``initialize``."""
        params = {
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": {"name": "raw-session", "version": "1"},
        }
        result: Json = self.request("initialize", params)["result"]
        self.notify("notifications/initialized")
        return result

    def exit_code(self) -> int:
        """Wait for the process to end, and return its exit code (negative: a signal)."""
        return self.process.wait(PATIENCE)

    def stderr(self) -> str:
        """What the server has written to stderr so far."""
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "backslashreplace")
