"""What became of each call, and whether that agrees with what the servers were asked.

Each call carries a text of its own, which the fault server records and returns. So it is known of each call how often
it was written to a server, and an outcome that belongs to another call is noticed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any

from gaia.mcp.client import MCPClient
from gaia.mcp.errors import MCPError
from tests.servers.state_file import RecordedCall

Json = dict[str, Any]

OUTCOMES = frozenset(
    {
        "ok",
        "cancelled",
        "interrupted",
        "invalid_response",
        "jsonrpc",
        "not_connected",
        "overloaded",
        "server_crashed",
        "server_unavailable",
        "timeout",
    }
)
"""How a call may end: by its result, by one of these errors, or by an interrupt. Nothing else ever comes out."""


@dataclass
class Entry:
    """One call. Belongs to the thread that made it until `ends` is 1."""

    text: str
    safe: bool
    """The tool is marked as safe to repeat."""
    timeout: float
    began: float = field(default_factory=time.monotonic)
    ends: int = 0
    """How many times it ended: 0 or 1, unless something is very wrong."""
    seconds: float = 0.0
    outcome: str = ""
    delivery: str | None = None
    """None for a call that was answered."""
    answer: str | None = None
    """The text that came back, of a call that was answered with one."""

    @property
    def most_writes(self) -> int:
        """How many times a server may have seen it at most."""
        if self.delivery == "not_sent":
            return 0
        return 2 if self.safe else 1

    def end(self, outcome: str, delivery: str | None, answer: str | None = None) -> None:
        """It has ended."""
        self.seconds = time.monotonic() - self.began
        self.outcome, self.delivery, self.answer = outcome, delivery, answer
        self.ends += 1


class Ledger:
    """All calls made of one server. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        """Owns `_entries`."""
        self._entries: list[Entry] = []

    @property
    def entries(self) -> list[Entry]:
        with self._lock:
            return list(self._entries)

    def open(self, safe: bool, timeout: float) -> Entry:
        """Note down a call that is about to be made."""
        with self._lock:
            entry = Entry(f"{self._name}-{len(self._entries)}", safe, timeout)
            self._entries.append(entry)
        return entry

    def call(self, client: MCPClient, tool: str, arguments: Json, *, safe: bool, timeout: float) -> Entry:
        """Make a call and wait for it."""
        entry = self.open(safe, timeout)
        try:
            result = client.call_tool(
                tool, {**arguments, "text": entry.text}, timeout=timeout, on_progress=lambda *_: None
            )
        except MCPError as error:
            entry.end(error.error_type, error.delivery)
        except KeyboardInterrupt:
            entry.end("interrupted", "unknown")
            raise
        else:
            _end_with(entry, result)
        return entry

    def submit(
        self, client: MCPClient, tool: str, arguments: Json, *, safe: bool, timeout: float
    ) -> Future[Json] | None:
        """Make a call without waiting; None if it was refused at once."""
        entry = self.open(safe, timeout)
        try:
            future = client.submit_tool(tool, {**arguments, "text": entry.text}, timeout=timeout)
        except MCPError as error:
            entry.end(error.error_type, error.delivery)
            return None
        future.add_done_callback(_completing(entry))
        return future

    def outcomes(self) -> Counter[str]:
        """How many calls ended how."""
        return Counter(entry.outcome for entry in self.entries)

    def unfinished(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.ends == 0]

    def check(self, recorded: Iterable[RecordedCall], margin: float) -> None:
        """Compare with what reached the servers. A call may end so many seconds after its deadline."""
        writes = Counter(call.arguments.get("text") for call in recorded)
        for entry in self.entries:
            assert entry.ends == 1, f"ended {entry.ends} times: {entry}"
            assert entry.outcome in OUTCOMES, entry
            assert entry.seconds <= entry.timeout + margin, f"ended long after its deadline: {entry}"
            written = writes.pop(entry.text, 0)
            assert written <= entry.most_writes, f"written {written} times: {entry}"
            if entry.outcome == "ok":
                assert written > 0, f"answered without being asked: {entry}"
                assert entry.answer == entry.text, f"the answer of another call: {entry}"
        writes.pop(None, None)
        assert not writes, f"nobody made these calls: {dict(writes)}"


def _completing(entry: Entry) -> Callable[[Future[Json]], None]:
    def completed(future: Future[Json]) -> None:
        try:
            _end_with(entry, future.result(0))
        except CancelledError:
            entry.end("cancelled", "unknown")
        except MCPError as error:
            entry.end(error.error_type, error.delivery)

    return completed


def _end_with(entry: Entry, result: Json) -> None:
    if "error_type" in result:
        entry.end(result["error_type"], result["delivery"])
        return
    content = result.get("content")
    entry.end("ok", None, content[0].get("text") if content else None)
