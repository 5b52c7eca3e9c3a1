"""`Audit`: one line of JSON for each call, written before its answer leaves.

The event loop itself writes a line. A write takes some microseconds, because it only reaches the operating system's
memory. After a slow write, a thread writes until writing is fast again, and answers wait for their lines. After a
failed write, for example on a full disk, open calls are answered, their lines wait in memory, and new calls are refused
until all lines are written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from datetime import datetime
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from gaia.mcp.errors import MCPError
from gaia.mcp.gateway.access.audit_file import AuditFile
from gaia.mcp.gateway.access.gate import Scheduler, Timer
from gaia.runtime.log import get_logger
from gaia.runtime.threads import DaemonPool

logger = get_logger(__name__)

SLOW_SECONDS = 0.05
"""Seconds. A slower write has delayed every client, so a thread writes the next lines."""
STALLED_SECONDS = 10.0
"""Seconds that answers wait for the disk. After that, it counts as failed."""
RETRY_SECONDS = 1.0
MAX_KEPT = 10_000
"""Lines that are kept in memory. Further lines are only counted."""
_MAX_TEXT = 256

Then = Callable[[], None]


class AuditUnavailable(MCPError, RuntimeError):
    """The gateway cannot record calls, so it makes none. The server itself is not affected."""

    error_type = "audit"


class AuditEntry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One call. Keys that do not apply are left out. Durations in seconds, sizes in bytes."""

    time: datetime
    gateway: str = ""
    """The name of the gateway, or of its machine. `Audit` adds it."""
    client: str
    address: str | None = None
    """The IP address of the client, behind trusted proxies."""
    session: str | None = None
    """The session of a client of the handshake era, see `Session.mark`."""
    request: int | str | None = None
    method: str
    server: str | None = None
    """None if the requested thing does not exist, or the client may not see it."""
    target: str | None = None
    """The tool's own name, the prompt, or the resource without its query."""
    arguments: str | None = None
    arguments_bytes: int = 0
    outcome: str
    """``ok``, ``tool_error`` (a result with `isError`), an `error_type`, or the reason of a refused request."""
    delivery: Literal["answered", "not_sent", "unknown"]
    """Whether the server has answered, has not received the call, or may have acted."""
    waited: float = 0.0
    seconds: float
    """From the arrival of the call until its answer is ready."""
    answer_bytes: int = 0
    """Size of the result; left out if the answer is an error."""
    suppressed: int = 0
    """Number of refused requests of the same kind since the previous line. They have no lines of their own."""
    trace: str | None = None
    """The id of the call's trace: the client's or the gateway's; without tracing a random one."""


class Audit:
    """Writes the lines of a gateway. For one event loop."""

    def __init__(self, file: AuditFile, loop: Scheduler, gateway: str = "") -> None:
        """Takes over `file`, and closes it in `close`. `gateway` is the gateway's name."""
        self._gateway = gateway
        self._file = file
        """While `_writing` is not None, only the thread uses the file; otherwise only the loop."""
        self._loop = loop
        self._pool = DaemonPool("mcp-gateway-audit", 1)
        self._is_slow = False
        self._writing: list[Then] | None = None
        """Callbacks of the lines that the thread is writing; None while it is idle."""
        self._next: list[tuple[bytes, Then]] = []
        self._stalled: Timer | None = None
        self._failure: str | None = None
        self._next_try = 0.0
        self._kept: list[bytes] = []
        self._lost = 0
        self.failures = 0
        self.lost_lines = 0

    def record(self, entry: AuditEntry, then: Then) -> None:
        """Write the line of an ended call, then call `then`: at once, or after `STALLED_SECONDS` at the latest."""
        entry.gateway = self._gateway
        line = _encoded(entry)
        if self._failure is not None:
            self._keep(line)
            then()
        elif self._is_slow:
            self._next.append((line, then))
            if self._writing is None:
                self._hand_over()
        else:
            if not self._write(line):
                self._keep(line)
            then()

    def failure(self) -> str | None:
        """Why lines cannot be written now; None if they can. Retries first if a retry is due."""
        if self._failure is not None and self._writing is None and self._loop.time() >= self._next_try:
            self._write_kept()
        return self._failure

    def refusal(self) -> MCPError | None:
        """The error for a new call while lines cannot be written; None while they can."""
        if (failure := self.failure()) is None:
            return None
        return AuditUnavailable(
            f"the gateway cannot record calls ({failure}), and makes none until it can: tell its administrator"
        )

    def reopen(self) -> None:
        """Continue in a new file if another program has moved the old one."""
        if self._writing is None:
            try:
                self._file.reopen()
            except OSError as error:
                self._fail(error)

    def close(self, timeout: float = 5.0) -> None:
        """Write the remaining lines, wait up to `timeout` seconds for the thread, then release the waiting answers."""
        is_free = self._pool.drain(timeout)
        waiting, self._next = self._next, []
        for then in [*(self._writing or ()), *(then for _, then in waiting)]:
            then()
        if self._stalled is not None:
            self._stalled.cancel()
        if is_free:
            self._kept += [line for line, _ in waiting]
            if self._kept:
                self._write_kept()
            self._file.close()

    # On the loop.

    def _write(self, lines: bytes) -> bool:
        begun = self._loop.time()
        try:
            self._file.write(lines)
        except OSError as error:
            self._fail(error)
            return False
        if (seconds := self._loop.time() - begun) > SLOW_SECONDS:
            logger.warning("audit_slow", file=str(self._file.path), seconds=round(seconds, 3))
            self._is_slow = True
        return True

    def _write_kept(self) -> None:
        if self._write(b"".join(self._kept)):
            self._kept, self._failure = [], None
            logger.warning("audit_recovered", file=str(self._file.path), lost=self._lost)
            self._lost = 0

    def _keep(self, lines: bytes) -> None:
        if len(self._kept) < MAX_KEPT:
            self._kept.append(lines)
        else:
            self._lost += 1
            self.lost_lines += 1

    def _fail(self, error: OSError) -> None:
        self.failures += 1
        self._next_try = self._loop.time() + RETRY_SECONDS
        reason = error.strerror or str(error)
        if self._failure is None:
            logger.error("audit_failed", file=str(self._file.path), error=reason)
        self._failure = reason

    # With the thread.

    def _hand_over(self) -> None:
        batch, self._next = self._next, []
        lines = b"".join(line for line, _ in batch)
        self._writing = [then for _, then in batch]
        self._stalled = self._loop.call_later(STALLED_SECONDS, self._on_stalled)
        self._pool.submit(lambda: self._write_in_thread(lines), keep=True)

    def _write_in_thread(self, lines: bytes) -> None:
        begun, error = self._loop.time(), None
        try:
            self._file.write(lines)
        except OSError as problem:
            error = problem
        # The loop is closed if the gateway has stopped in the meantime.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_written, lines, error, self._loop.time() - begun)

    def _on_written(self, lines: bytes, error: OSError | None, seconds: float) -> None:
        assert self._writing is not None, "the thread has written"
        assert self._stalled is not None, "the thread had a deadline"
        released, self._writing = self._writing, None
        self._stalled.cancel()
        self._is_slow = seconds > SLOW_SECONDS / 10
        if error is not None:
            self._keep(lines)
            self._fail(error)
        elif self._failure is not None:
            self._write_kept()
        for then in released:
            then()
        if self._failure is not None:
            self._release_next()
        elif self._next:
            self._hand_over()

    def _on_stalled(self) -> None:
        """The disk does not respond. This counts as a failure, so that answers are no longer held back."""
        self._fail(TimeoutError(0, f"the disk has not answered for {STALLED_SECONDS:g} s"))
        released, self._writing = self._writing or [], []
        for then in released:
            then()
        self._release_next()

    def _release_next(self) -> None:
        waiting, self._next = self._next, []
        for line, then in waiting:
            self._keep(line)
            then()


def _encoded(entry: AuditEntry) -> bytes:
    """One line of the file, in ASCII: other characters could end the line or change the direction of text."""
    line = msgspec.json.encode(entry)
    if not line.isascii() or b"\x7f" in line:
        line = json.dumps(msgspec.json.decode(line), separators=(",", ":")).replace("\x7f", "\\u007f").encode()
    return line + b"\n"


def digest_of(arguments: bytes) -> str | None:
    """The SHA-256 of a call's arguments as sent (JSON), for comparing calls; None if there are none."""
    return "sha256:" + hashlib.sha256(arguments).hexdigest() if arguments else None


def shown_text(text: str) -> str:
    return text[:_MAX_TEXT]


def shown_uri(uri: str) -> str:
    """A resource's URI without the parts that may be secret: user, password, query and fragment."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "(not a URI)"
    return shown_text(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl())
