"""What becomes of a server's notifications: which of them reach the supervisor, and which events they lead to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gaia.mcp.protocol.messages import Notification, value_size
from gaia.mcp.protocol.notifications import (
    ElicitationComplete,
    LogMessage,
    PromptListChanged,
    RequestCancelled,
    ResourceListChanged,
    ResourceUpdated,
    ServerNotification,
    ToolListChanged,
    parse_notification,
)
from gaia.mcp.rpc.connection import Connection
from gaia.mcp.supervision import events
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.runtime.event_loop import EventLoop
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.redaction import mask_strings

logger = get_logger(__name__)

_MAX_PENDING = 1_000
"""A server that writes notifications faster than the supervisor reads them loses some, but fills no memory of ours."""

_MAX_PENDING_BYTES = 4 * 1024 * 1024
"""Of notifications that the supervisor has not read yet."""


class Notifications:
    """Lets the notifications of one connection through to the supervisor: those that it understands, and no flood."""

    def __init__(
        self, loop: EventLoop, server_requests: ServerRequests, on_notified: Callable[[ServerNotification], None]
    ) -> None:
        """`on_notified` runs on the supervisor's thread."""
        self._loop = loop
        self._server_requests = server_requests
        self._on_notified = on_notified
        self.tools_change_announced = False
        """A change was announced since the tools were listed last; another announcement would say nothing new."""
        self._posting = reentrant_lock()
        """Owns `_posted`: several threads may receive notifications."""
        self._posted = 0
        """Bytes in all."""
        self._read = 0
        """Bytes in all; only the supervisor's thread changes it."""

    def received(self, connection: Connection, notification: Notification) -> None:
        """For any thread that reads from the server."""
        parsed = parse_notification(notification)
        if isinstance(parsed, ToolListChanged):
            # Not subject to the bound: there is one at most, and without it the tools would stay out of date.
            if not self.tools_change_announced:
                self.tools_change_announced = True
                self._post(parsed)
        elif isinstance(parsed, RequestCancelled) and connection.negotiated.server_may_ask:
            self._server_requests.cancelled(connection, parsed.request_id)
        elif parsed is not None and self._loop.pending < _MAX_PENDING and self._is_relevant(parsed):
            size = value_size(parsed)
            if self._posted - self._read + size <= _MAX_PENDING_BYTES:
                self._post(parsed, size)

    def _is_relevant(self, notification: ServerNotification) -> bool:
        if isinstance(notification, ElicitationComplete):
            return self._server_requests.completes(notification.elicitation_id)
        return True

    def _post(self, notification: ServerNotification, size: int = 0) -> None:
        with self._posting:
            self._posted += size

        def notified() -> None:
            self._read += size
            self._on_notified(notification)

        self._loop.post(notified)

    def listing_begins(self) -> None:
        """For the supervisor's thread, before it lists the tools: changes that are announced from now on are new."""
        self.tools_change_announced = False


def offer_changed(server: str, notification: ServerNotification) -> events.Event | None:
    """What listeners are told of a change of resources or prompts; None if it is about something else."""
    match notification:
        case ResourceUpdated(uri=uri):
            return events.ResourceUpdated(server, uri)
        case ResourceListChanged():
            return events.ResourcesChanged(server)
        case PromptListChanged():
            return events.PromptsChanged(server)
    return None


def server_log(connection: Connection, message: LogMessage) -> events.ServerLog:
    """Log a message of the server, with its secrets masked, and make the event of it."""
    level, data = connection.redact(_text(message.level)), message.data
    name = None if message.logger is None else connection.redact(_text(message.logger))
    text = connection.redact(_text(data))
    logger.info("server_log", server=connection.name, severity=level, source=name, text=text)
    return events.ServerLog(connection.name, level, name, mask_strings(data, connection.redact))


def _text(value: Any) -> str:
    try:
        return str(value)
    except RecursionError:
        return "(too deeply nested to show)"
