"""A server's condition at one moment."""

from __future__ import annotations

import msgspec

from gaia.mcp.client.supervision.events import ServerState

__all__ = ["ServerStatus"]


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All durations are in seconds. Figures are of one moment each and may be from slightly different ones."""

    name: str
    state: ServerState
    generation: int = 0
    """How many times the server has been started."""
    pid: int | None = None
    """The server's process; None while there is none."""
    restarts: int = 0
    """How many times it became ready again after it had ended."""
    in_flight: int = 0
    """Calls handed to the server and not answered yet."""
    queued: int = 0
    """Calls that wait for the server to be ready."""
    tool_count: int = 0
    """Tools on offer, after filtering."""
    last_error: str | None = None
    uptime: float | None = None
    """Since it became ready; None while it is not."""
    calls: int = 0
    errors: int = 0
    latency_p50: float | None = None
    latency_p95: float | None = None
    noise_lines: int = 0
    """Lines on its standard output that are no messages."""
    noise_bytes: int = 0
    protocol_version: str | None = None
