"""One visit to a server: start it, shake hands, list its tools, ask it for signs of life, and stop it again."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.protocol.exchange import drive, paginate
from gaia.mcp.client.supervision.status import ServerStatus
from gaia.mcp.doctor.stopwatch import Stopwatch
from gaia.mcp.errors import MCPError
from gaia.mcp.ping import ping

__all__ = ["Inspection", "inspect_server"]

_PINGS = 5


@dataclass
class Inspection:
    """What happened. Durations in seconds; None for what was not reached."""

    error: str | None = None
    """Why the server did not get ready."""
    pid: int | None = None
    started: float | None = None
    """How long it took to start the process, or to reach the endpoint."""
    shaken: float | None = None
    """How long the handshake took."""
    status: ServerStatus | None = None
    server_info: dict[str, Any] = field(default_factory=dict)
    capabilities: dict[str, Any] = field(default_factory=dict)
    definitions: list[Any] | None = None
    """The tools as the server lists them, nothing filtered."""
    denied: frozenset[str] = frozenset()
    unmatched: list[str] = field(default_factory=list)
    """Patterns of the server's filter that match no tool."""
    listing: float | None = None
    list_error: str | None = None
    pings: list[float] = field(default_factory=list)
    ping_error: str | None = None

    @property
    def ping(self) -> float | None:
        """The median."""
        return statistics.median(self.pings) if self.pings else None


def inspect_server(client: MCPClient) -> Inspection:
    """Visit a server that is not connected. Whatever happens, it has been stopped when this returns."""
    seen = Inspection()
    try:
        watch = Stopwatch.on(client)
        ready = client.connect()
        ended = time.perf_counter()
        if watch.opened is not None:
            seen.started, seen.pid = watch.opened - watch.began, watch.pid
        if ready:
            seen.shaken = (watch.listing or ended) - (watch.opened or watch.began)
            seen.server_info, seen.capabilities = client.server_info, client.capabilities
            _list(client, seen)
            _ping(client, seen)
        else:
            seen.error = client.last_error or "the reason is not known"
        seen.status = client.status
    finally:
        client.disconnect()
    return seen


def _list(client: MCPClient, seen: Inspection) -> None:
    if "tools" not in seen.capabilities:
        seen.definitions = []
        return
    began = time.perf_counter()
    try:
        seen.definitions = drive(
            paginate("tools/list", "tools"),
            lambda step: client.request(step.method, step.params, timeout=step.timeout),
            _nothing_to_tell,
        )
    except MCPError as error:
        seen.list_error = error.message
        return
    seen.listing = time.perf_counter() - began
    seen.denied = client.denied_tools
    names = [str(tool.get("name")) for tool in seen.definitions if isinstance(tool, dict)]
    seen.unmatched = client.tool_filter.unmatched(client.name, names)


def _ping(client: MCPClient, seen: Inspection) -> None:
    for _ in range(_PINGS):
        began = time.perf_counter()
        try:
            ping(client)
        except MCPError as error:
            seen.ping_error = error.message
            return
        seen.pings.append(time.perf_counter() - began)


def _nothing_to_tell(step: object) -> None:
    raise AssertionError(f"a list does not take the step {step!r}")
