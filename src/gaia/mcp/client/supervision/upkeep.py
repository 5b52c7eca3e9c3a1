"""What is done for a connection while it is ready: see whether the server lives, keep its tools up to date, log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gaia.log import get_logger
from gaia.mcp.client.protocol.era import ServerProfile
from gaia.mcp.client.protocol.handshake_era import tell_interests
from gaia.mcp.client.protocol.messages import Notification
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.rpc.connection import Connection
from gaia.mcp.client.supervision.conversation import Converse
from gaia.mcp.client.supervision.events import ElicitationCompleted
from gaia.mcp.client.supervision.health import HealthCheck
from gaia.mcp.client.supervision.notices import (
    CANCELLED,
    ELICITATION_COMPLETE,
    LOG,
    SUBSCRIBED,
    TOOLS_CHANGED,
    Notices,
    offer_changed,
    server_log,
)
from gaia.mcp.client.supervision.pace import Pace
from gaia.mcp.client.supervision.settings import WorkerHooks, WorkerSettings
from gaia.mcp.client.supervision.subscription import Subscription
from gaia.mcp.client.supervision.tool_listing import ToolListing
from gaia.mcp.errors import MCPError

__all__ = ["Upkeep"]

logger = get_logger(__name__)

_LISTINGS_AT_ONCE = 20
_SECONDS_BETWEEN_LISTINGS = 1.0
"""After the burst: a server that announces a change after each listing would keep us listing for ever."""


class _Ready(NamedTuple):
    """What there is to care for once the server is ready."""

    health: HealthCheck
    listing: ToolListing
    subscription: Subscription


class Upkeep:
    """The care for one connection. Belongs to the worker thread."""

    def __init__(
        self,
        connection: Connection,
        converse: Converse,
        notices: Notices,
        settings: WorkerSettings,
        hooks: WorkerHooks,
        clock: Clock,
        on_hung: Callable[[], None],
        on_list_failed: Callable[[MCPError], None],
        list_later: Callable[[float], None],
    ) -> None:
        """``list_later(at)`` is to have `list_tools` called at this reading of the clock."""
        self._connection = connection
        self._converse = converse
        self._notices = notices
        self._settings = settings
        self._hooks = hooks
        self._clock = clock
        self._on_hung = on_hung
        self._on_list_failed = on_list_failed
        self._list_later = list_later
        self._pace = Pace(_LISTINGS_AT_ONCE, _SECONDS_BETWEEN_LISTINGS)
        self._ready: _Ready | None = None

    def begin(self, profile: ServerProfile, tools: list[Any]) -> float:
        """The server is ready, and has listed `tools`; returns when to `tick`."""
        self._hooks.tools_listed(tools)
        health = HealthCheck(
            self._connection,
            profile.era,
            self._clock,
            self._converse,
            self._on_hung,
            interval=self._settings.health_interval,
            timeout=self._settings.health_timeout,
        )
        listing = ToolListing(profile, self._converse, self._hooks.tools_listed, self._on_list_failed)
        subscription = Subscription(profile, self._connection, self._converse, lambda: self._hooks.interests.resources)
        self._ready = _Ready(health, listing, subscription)
        subscription.keep()
        self._tell_interests()
        if self._notices.tools_change_announced:
            # Since the listing that made it ready, perhaps.
            self.list_tools()
        return self._clock.monotonic() + self._settings.health_interval

    def tick(self) -> float:
        """Look whether the server lives, if it is idle; returns when to look next, as a reading of the clock."""
        assert self._ready is not None, "the timer is set when the server is ready"
        self._ready.subscription.keep()
        return self._ready.health.tick()

    def expired(self, call: Call) -> None:
        """A call timed out while this connection was there."""
        if self._ready is not None:
            self._ready.health.suspect(call)

    def notified(self, notification: Notification) -> None:
        if notification.method == ELICITATION_COMPLETE:
            name = self._connection.name
            self._hooks.happened(ElicitationCompleted(name, notification.params["elicitationId"]))
        elif notification.method == LOG:
            self._hooks.happened(server_log(self._connection, notification.params))
        elif self._ready is None:
            # A change of the tools is remembered by the notices; the rest has no meaning yet.
            return
        elif notification.method == CANCELLED:
            self._ready.subscription.cancelled(notification)
        elif not self._ready.subscription.covers(notification):
            logger.debug("notification_of_no_subscription", server=self._connection.name, method=notification.method)
            if notification.method == TOOLS_CHANGED:
                self._notices.tools_change_seen()
        elif (event := offer_changed(self._connection, notification)) is not None:
            self._hooks.happened(event)
        elif notification.method in (TOOLS_CHANGED, SUBSCRIBED):
            # What changed between the listing and the subscription was told to nobody.
            self.list_tools()

    def interests_changed(self) -> None:
        """The client wants to hear other things than before."""
        if self._ready is not None:
            self._ready.subscription.change()
            self._dress_log_level()

    def _tell_interests(self) -> None:
        """Tell a server that has just become ready what former connections were told."""
        resources, log_level = self._hooks.interests.resources, self._hooks.interests.log_level
        if not self._connection.dialect.server_may_ask:
            # Resources are part of what is listened to.
            self._dress_log_level()
        elif resources or log_level is not None:
            self._converse(tell_interests(resources, log_level), lambda _: None, self._not_told)

    def _dress_log_level(self) -> None:
        """In the stateless era the log level is part of each request."""
        level, dialect = self._hooks.interests.log_level, self._connection.dialect
        if level is not None and not dialect.server_may_ask:
            self._connection.speak(dialect.with_log_level(level))

    def _not_told(self, error: MCPError) -> None:
        logger.warning("interests_not_told", server=self._connection.name, error=error.message)

    def list_tools(self) -> None:
        """List the tools, or do it later if that has been done very often of late."""
        assert self._ready is not None, "only a server that is ready is asked for its tools"
        now = self._clock.monotonic()
        if wait := self._pace.wait(now):
            # The change counts as announced until then, so further announcements are no news.
            self._list_later(now + wait)
            return
        self._notices.tools_change_seen()
        self._ready.listing.refresh()
