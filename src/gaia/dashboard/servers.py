"""The servers of a manager, or of a gateway elsewhere, as the page shows them: state, tools, timeline."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gaia.dashboard.live_updates import UpdateBuffer
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.config.server_config import without_name
from gaia.mcp.gateway.operations.status import GatewayStatus
from gaia.mcp.supervision.events import (
    Event,
    GaveUp,
    Restarted,
    StateChanged,
    ToolDefinitionsChanged,
    ToolsChanged,
)
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.transports.stdio import StdioTransport
from gaia.runtime.locks import Latch, reentrant_lock

_MAX_EVENTS = 1000
_MAX_NAMES = 50
_MAX_NAME = 200
_MAX_TEXT = 2 * 1024

_TOOL_FIELDS = ("name", "title", "description", "input_schema", "output_schema", "annotations")

_KINDS: dict[type[Event], str] = {
    StateChanged: "state",
    Restarted: "restarted",
    GaveUp: "gave_up",
    ToolsChanged: "tools",
    ToolDefinitionsChanged: "definitions",
}
"""The events on the timeline. Servers' log messages are shown with the other log events."""


class Timeline:
    """The last events of a manager's servers. Listens on a callback thread. Any thread may read it."""

    def __init__(self, buffer: UpdateBuffer) -> None:
        self._buffer = buffer
        self._lock = reentrant_lock()
        """Guards both attributes below."""
        self._events: deque[dict[str, Any]] = deque(maxlen=_MAX_EVENTS)
        self._count = 0

    def begin(self, manager: MCPClientManager) -> None:
        for status in manager.status():
            self.add_state(status.name, None, status.state.value, status.generation, age=status.uptime or 0.0)

    def __call__(self, event: Event) -> None:
        kind = _KINDS.get(type(event))
        if kind is not None:
            fields = msgspec.to_builtins(event)
            for name, value in fields.items():
                if name in ("added", "removed", "changed"):
                    fields[name] = [_cut(tool, _MAX_NAME) for tool in value[:_MAX_NAMES]]
                elif isinstance(value, str):
                    fields[name] = _cut(value, _MAX_TEXT)
            self._add({"at": time.time(), "kind": kind, **fields})

    def events(self) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._events)

    def add_state(
        self, server: str, old: str | None, new: str, generation: int, reason: str | None = None, *, age: float = 0.0
    ) -> None:
        """Add a change of state that happened `age` seconds ago and was not reported by a manager."""
        why = None if reason is None else _cut(reason, _MAX_TEXT)
        state = {"old": old, "new": new, "generation": generation, "reason": why}
        self._add({"at": time.time() - age, "server": server, "kind": "state", **state})

    def _add(self, event: dict[str, Any]) -> None:
        with self._lock:
            self._count += 1
            # The page recognises a repeated event by its id.
            event = {"id": self._count, **event}
            self._events.append(event)
        self._buffer.write("event", event)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def statuses(manager: MCPClientManager) -> list[dict[str, Any]]:
    """A row for each server: configured servers in their order, then all others.

    ``ready_since`` and ``retry_at``, also of the ``standby``, are in seconds since the epoch, because durations as in
    `ServerStatus` would change continually. ``cli_options`` are the options with which a ``gaia mcp`` command finds the
    server; None if it is in no file. ``unusable``: its entry has an error.
    """
    known = {status.name: status for status in manager.status()}
    configured, problems = manager.config.get_entries(), manager.config.problems
    rows = []
    for name in dict.fromkeys((*configured, *known)):
        if name in known:
            row = _row(known[name])
        elif name in problems:
            row = {"name": name, "state": "failed", "last_error": without_name(problems[name], name)}
        else:
            row = {"name": name, "state": "disabled" if configured[name].get("disabled") else "not started"}
        common = {"cli_options": _cli_options(manager.config, name), "unusable": name in problems}
        rows.append({"ready_since": None, "retry_at": None, **row, **common})
    return rows


def remote_statuses(known: Iterable[ServerStatus]) -> list[dict[str, Any]]:
    """The rows of a gateway's servers. ``is_remote``: they cannot be stopped or configured here."""
    return [{**_row(status), "cli_options": None, "unusable": False, "is_remote": True} for status in known]


def _row(status: ServerStatus) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(status)
    uptime, retry_in = row.pop("uptime"), row.pop("retry_in", None)
    row["ready_since"] = None if uptime is None else _moment(-uptime)
    row["retry_at"] = _moment(retry_in)
    if row["standby"] is not None:
        row["standby"]["retry_at"] = _moment(row["standby"].pop("retry_in"))
    return row


def _moment(seconds: float | None) -> int | None:
    return None if seconds is None else round(time.time() + seconds)


def _cli_options(config: MCPConfig, name: str) -> list[str] | None:
    source = config.source_of(name)
    if source is None:
        return None
    return ["--config", str(source)] if config.load_report["mode"] == "explicit" else []


def describe(manager: MCPClientManager, name: str, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    row = next((row for row in rows if row["name"] == name), None)
    if row is None:
        return None
    client = manager.get_client(name)
    source = manager.config.source_of(name)
    row["source"] = None if source is None else str(source)
    if client is None:
        return {**row, "tools": [], "stderr": None, "server_info": {}, "instructions": None, "capabilities": []}
    return {
        **row,
        "tools": _tools(client),
        "stderr": client.transport.stderr_tail() if isinstance(client.transport, StdioTransport) else None,
        "server_info": client.server_info,
        "instructions": client.instructions,
        "capabilities": sorted(client.capabilities),
    }


def _tools(client: MCPClient) -> list[dict[str, Any]]:
    """The offered tools in the server's order, then the names of withheld tools with the reason."""
    # A restarting server keeps its tools. A server that has never listed any is not waited for.
    offered = client.list_tools() if client.is_connected() or client.status.tool_count else []
    withheld = dict.fromkeys(client.denied_tools, "denied") | dict.fromkeys(client.blocked_tools, "not approved")
    rows: list[dict[str, Any]] = [
        {"denied": None, **{field: getattr(tool, field) for field in _TOOL_FIELDS}} for tool in offered
    ]
    return rows + [{"name": name, "denied": why} for name, why in sorted(withheld.items())]


_SECONDS = 1.0

OnState = Callable[[str, str | None, str, int, str | None], None]
"""Receives a server, its old and its new state, its generation and the reason."""


@dataclass(eq=False)
class GatewayWatch:
    """Reads a gateway's status on its own thread, and keeps the servers of `manager` equal to the gateway's."""

    fetch: Callable[[], GatewayStatus]
    """Reads the status, or raises an exception with the reason."""
    entry: Callable[[str], Mapping[str, Any]]
    """Returns the configuration with which `manager` reaches a server of the gateway, by the server's name there."""
    manager: MCPClientManager
    _status: GatewayStatus
    _problem: str | None = None
    _stop: Latch = field(default_factory=Latch)

    def __post_init__(self) -> None:
        self._lock = reentrant_lock()

    def start(self, on_state: OnState) -> Callable[[], None]:
        """Start to read. The thread calls `on_state`. Returns a function that stops the thread."""
        for server in self._status.servers:
            on_state(server.name, None, server.state.value, server.generation, None)
        thread = threading.Thread(target=self._run, args=(on_state,), name="gaia-gateway", daemon=True)
        thread.start()

        def stop() -> None:
            self._stop.open()
            thread.join()

        return stop

    def rows(self) -> list[dict[str, Any]]:
        with self._lock:
            return remote_statuses(self._status.servers)

    def document(self) -> dict[str, Any]:
        """The page's data of the gateway itself. ``problem`` is the reason why it cannot be read now."""
        with self._lock:
            status, problem = self._status, self._problem
        found: dict[str, Any] = msgspec.to_builtins(status)
        del found["servers"]
        # The page computes the running time itself.
        found["started"] = round(time.time() - found.pop("uptime"))
        for session in found["sessions"]:
            session["idle"] = round(session["idle"])
        return {**found, "problem": problem}

    def _run(self, on_state: OnState) -> None:
        while not self._stop.wait(_SECONDS):
            try:
                self._read_status(on_state)
            except Exception as error:  # noqa: BLE001 - whatever it is, the page says it, and it may pass
                with self._lock:
                    self._problem = str(error)

    def _read_status(self, on_state: OnState) -> None:
        now = self.fetch()
        with self._lock:
            before, self._status, self._problem = self._status, now, None
        known = {server.name: server.state.value for server in before.servers}
        for server in now.servers:
            old = known.pop(server.name, None)
            if old != server.state.value:
                on_state(server.name, old, server.state.value, server.generation, server.last_error)
        if known or len(now.servers) != len(before.servers):
            self.manager.apply({server.name: self.entry(server.name) for server in now.servers}, timeout=0)
