"""What became of the servers: their states, restarts and changes of tools, in the order in which they happened."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from gaia.dashboard.journal import Journal
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.client.supervision.events import (
    Event,
    GaveUp,
    Restarted,
    StateChanged,
    ToolDefinitionsChanged,
    ToolsChanged,
)
from gaia.mcp.client.supervision.status import ServerStatus

__all__ = ["Timeline"]

_EVENTS = 1000
_NAMES = 50
"""Tools that one event names."""


class Timeline:
    """The last events of a manager's servers. Told on a callback thread, read by any."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        """Owns both below."""
        self._events: deque[dict[str, Any]] = deque(maxlen=_EVENTS)
        self._told = 0

    def begin(self, manager: MCPClientManager) -> None:
        """How the servers are at this moment, which is as far back as the story goes."""
        for status in manager.status():
            self._add(_beginning(status))

    def __call__(self, event: Event) -> None:
        """The listener."""
        described = _described(event)
        if described is not None:
            self._add({"at": time.time(), "server": event.server, **described})

    def events(self) -> list[dict[str, Any]]:
        """Oldest first."""
        with self._lock:
            return list(self._events)

    def _add(self, event: dict[str, Any]) -> None:
        with self._lock:
            self._told += 1
            # A page that is told of it twice can tell by this.
            event = {"id": self._told, **event}
            self._events.append(event)
        self._journal.write("event", event)


def _beginning(status: ServerStatus) -> dict[str, Any]:
    return {
        "at": time.time() - (status.uptime or 0.0),
        "server": status.name,
        "kind": "state",
        "old": None,
        "new": status.state.value,
        "generation": status.generation,
        "reason": None,
    }


def _described(event: Event) -> dict[str, Any] | None:
    match event:
        case StateChanged():
            return {
                "kind": "state",
                "old": event.old.value,
                "new": event.new.value,
                "generation": event.generation,
                "reason": event.reason,
            }
        case Restarted():
            return {"kind": "restarted", "generation": event.generation, "downtime": event.downtime}
        case GaveUp():
            return {"kind": "gave_up", "reason": event.reason, "retry_in": event.retry_in}
        case ToolsChanged():
            return {"kind": "tools", **_changes(event)}
        case ToolDefinitionsChanged():
            return {"kind": "definitions", "blocked": event.blocked, **_changes(event)}
        case _:
            # Messages of the servers' own logs are shown with the other log events.
            return None


def _changes(event: ToolsChanged | ToolDefinitionsChanged) -> dict[str, list[str]]:
    changes = {"added": event.added, "removed": event.removed, "changed": event.changed}
    return {name: list(tools[:_NAMES]) for name, tools in changes.items()}
