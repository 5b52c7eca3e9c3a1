"""What the processes of a fault server recorded about themselves: proof of what reached them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A ``tools/call`` that reached a server, whatever became of it."""

    start: int
    """In the how-manyth process."""
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """What the processes of one server recorded in their state file."""

    pids: tuple[int, ...]
    """Of all processes, in the order of their starts."""
    calls: tuple[RecordedCall, ...]
    """All calls received, in order: proof of at-most-once."""
    ends: tuple[str, ...]
    """``"eof"`` or ``"sigterm"`` whenever a process was told to end, in order."""
    children: tuple[int, ...] = ()
    """Process ids of all grandchildren."""

    @property
    def starts(self) -> int:
        """How many processes were started."""
        return len(self.pids)


def read_state(path: str | Path) -> State:
    """Read a state file; one that does not exist yet belongs to a server that never started."""
    try:
        lines = Path(path).read_text().splitlines()
    except FileNotFoundError:
        lines = []
    events = [event for line in lines if (event := _event(line)) is not None]
    return State(
        pids=tuple(event["pid"] for event in events if event["event"] == "start"),
        calls=tuple(
            RecordedCall(event["start"], event["tool"], event["arguments"])
            for event in events
            if event["event"] == "call"
        ),
        ends=tuple(event["event"] for event in events if event["event"] in ("eof", "sigterm")),
        children=tuple(event["pid"] for event in events if event["event"] == "child"),
    )


def _event(line: str) -> dict[str, Any] | None:
    """None for an empty line, and for one that a kill has cut short: it is no proof of anything."""
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return event
