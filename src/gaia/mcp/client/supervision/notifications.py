"""What a server says unasked: its tools changed, or something for the log; and about what it asked."""

from __future__ import annotations

import queue
from typing import Any

from gaia.log import get_logger
from gaia.mcp.client.protocol.messages import Notification
from gaia.mcp.client.rpc.connection import Connection
from gaia.mcp.client.supervision.events import (
    Event,
    PromptsChanged,
    ResourcesChanged,
    ResourceUpdated,
    ServerLog,
)
from gaia.mcp.client.supervision.mailbox import Letter, Notified
from gaia.mcp.client.supervision.server_requests import ServerRequests
from gaia.mcp.redaction import mask_strings

__all__ = [
    "CANCELLED",
    "ELICITATION_COMPLETE",
    "LOG",
    "SUBSCRIBED",
    "TOOLS_CHANGED",
    "Notifications",
    "offer_changed",
    "server_log",
]

logger = get_logger(__name__)

TOOLS_CHANGED = "notifications/tools/list_changed"
SUBSCRIBED = "notifications/subscriptions/acknowledged"
CANCELLED = "notifications/cancelled"
ELICITATION_COMPLETE = "notifications/elicitation/complete"
LOG = "notifications/message"
RESOURCE_UPDATED = "notifications/resources/updated"
RESOURCES_CHANGED = "notifications/resources/list_changed"
PROMPTS_CHANGED = "notifications/prompts/list_changed"
_NEWS = frozenset((SUBSCRIBED, CANCELLED, LOG, RESOURCE_UPDATED, RESOURCES_CHANGED, PROMPTS_CHANGED))

_MAX_LETTERS = 1_000
"""A server that writes faster than its log can be read loses log messages, not our memory."""


class Notifications:
    """Lets the notifications of one connection through to the supervisor: those that it understands, and no flood."""

    def __init__(self, mailbox: queue.SimpleQueue[Letter], server_requests: ServerRequests) -> None:
        self._mailbox = mailbox
        self._server_requests = server_requests
        self.tools_change_announced = False
        """A change was announced, and not seen yet; another one would say nothing new."""

    def received(self, connection: Connection, notification: Notification) -> None:
        """For the reader thread."""
        if notification.method == TOOLS_CHANGED:
            if self.tools_change_announced:
                return
            self.tools_change_announced = True
        elif notification.method == CANCELLED and connection.negotiated.server_may_ask:
            self._server_requests.cancelled(connection, notification.params)
            return
        elif not self._is_news(notification) or self._mailbox.qsize() >= _MAX_LETTERS:
            return
        self._mailbox.put(Notified(connection, notification))

    def _is_news(self, notification: Notification) -> bool:
        if notification.method == ELICITATION_COMPLETE:
            return self._server_requests.completes(notification.params.get("elicitationId"))
        return notification.method in _NEWS

    def tools_change_seen(self) -> None:
        """For the supervisor's thread, before it lists the tools: changes from now on are news."""
        self.tools_change_announced = False


def offer_changed(connection: Connection, notification: Notification) -> Event | None:
    """What listeners are told of a change of resources or prompts; None if it is about something else."""
    uri = notification.params.get("uri")
    if notification.method == RESOURCE_UPDATED and isinstance(uri, str):
        return ResourceUpdated(connection.name, uri)
    if notification.method == RESOURCES_CHANGED:
        return ResourcesChanged(connection.name)
    if notification.method == PROMPTS_CHANGED:
        return PromptsChanged(connection.name)
    return None


def server_log(connection: Connection, params: dict[str, Any]) -> ServerLog:
    """Log a message of the server, with its secrets masked, and make the event of it."""
    level, source = connection.redact(_text(params.get("level", "info"))), params.get("logger")
    name = None if source is None else connection.redact(_text(source))
    text = connection.redact(_text(params.get("data")))
    logger.info("server_log", server=connection.name, severity=level, source=name, text=text)
    return ServerLog(connection.name, level, name, mask_strings(params.get("data"), connection.redact))


def _text(value: Any) -> str:
    try:
        return str(value)
    except RecursionError:
        return "(too deeply nested to show)"
