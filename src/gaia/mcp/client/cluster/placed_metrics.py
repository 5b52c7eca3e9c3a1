"""What is counted of a placed server's life: in the program, because nodes have no telemetry of its own."""

from __future__ import annotations

from typing import Literal

from gaia.mcp.client.supervision.events import Restarted
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics

__all__ = ["count_loss", "count_return"]


def count_loss(server: str, reason: Literal["host_lost", "lost_on_node"]) -> None:
    """A server was lost that was ready: with its host, or on its own."""
    metrics.instruments.crashes.add(1, {names.SERVER_NAME: server, names.REASON: reason})


def count_return(event: Restarted) -> None:
    """A server is ready again, or a fresh process has taken its place as planned."""
    labels = {names.SERVER_NAME: event.server}
    kind, _, reason = (event.reason or "").partition(": ")
    if kind == "recycled":
        metrics.instruments.recyclings.add(1, {**labels, names.REASON: reason})
        return
    metrics.instruments.restarts.add(1, labels)
    metrics.instruments.recovery_duration.record(event.downtime, labels)
