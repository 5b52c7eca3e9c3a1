"""What is done for a connection while it is ready: see whether the server lives, keep its tools up to date, log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gaia.log import get_logger
from gaia.mcp.client.protocol.era import ServerProfile
from gaia.mcp.client.protocol.handshake_era import resubscribe
from gaia.mcp.client.protocol.messages import Notification
from gaia.mcp.client.rpc.call import Call
from gaia.mcp.client.rpc.clock import Clock
from gaia.mcp.client.rpc.connection import Connection
from gaia.mcp.client.supervision.events import ElicitationCompleted
from gaia.mcp.client.supervision.exchange_runner import RunExchange
from gaia.mcp.client.supervision.health import HealthCheck
from gaia.mcp.client.supervision.notifications import (
    CANCELLED,
    ELICITATION_COMPLETE,
    LOG,
    SUBSCRIBED,
    TOOLS_CHANGED,
    Notifications,
    offer_changed,
    server_log,
)
from gaia.mcp.client.supervision.settings import SupervisionHooks, SupervisionSettings
from gaia.mcp.client.supervision.subscription_stream import SubscriptionStream
from gaia.mcp.client.supervision.token_bucket import TokenBucket
from gaia.mcp.client.supervision.tool_listing import ToolListing
from gaia.mcp.errors import MCPError

__all__ = ["Maintenance"]

logger = get_logger(__name__)

_LISTINGS_AT_ONCE = 20
_SECONDS_BETWEEN_LISTINGS = 1.0
"""After the burst: a server that announces a change after each listing would keep us listing for ever."""


class _Ready(NamedTuple):
    """What there is to care for once the server is ready."""

    health: HealthCheck
    listing: ToolListing
    subscription: SubscriptionStream


class Maintenance:
    """The care for one connection. Belongs to the supervisor's thread."""

    def __init__(
        self,
        connection: Connection,
        run_exchange: RunExchange,
        notifications: Notifications,
        settings: SupervisionSettings,
        hooks: SupervisionHooks,
        clock: Clock,
        on_hung: Callable[[], None],
        on_list_failed: Callable[[MCPError], None],
        list_later: Callable[[float], None],
    ) -> None:
        """``list_later(at)`` is to have `list_tools` called at this reading of the clock."""
        self._connection = connection
        self._run_exchange = run_exchange
        self._notifications = notifications
        self._settings = settings
        self._hooks = hooks
        self._clock = clock
        self._on_hung = on_hung
        self._on_list_failed = on_list_failed
        self._list_later = list_later
        self._bucket = TokenBucket(_LISTINGS_AT_ONCE, _SECONDS_BETWEEN_LISTINGS)
        self._ready: _Ready | None = None

    def begin(self, profile: ServerProfile, tools: list[Any]) -> float:
        """The server is ready, and has listed `tools`; returns when to `tick`."""
        self._hooks.tools_listed(tools)
        health = HealthCheck(
            self._connection,
            profile.era,
            self._clock,
            self._run_exchange,
            self._on_hung,
            interval=self._settings.health_interval,
            timeout=self._settings.health_timeout,
        )
        listing = ToolListing(profile, self._run_exchange, self._hooks.tools_listed, self._on_list_failed)
        subscription = SubscriptionStream(
            profile, self._connection, self._run_exchange, lambda: self._hooks.subscriptions.resources
        )
        self._ready = _Ready(health, listing, subscription)
        subscription.keep()
        self._resubscribe()
        if self._notifications.tools_change_announced:
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
                self._notifications.tools_change_seen()
        elif (event := offer_changed(self._connection, notification)) is not None:
            self._hooks.happened(event)
        elif notification.method in (TOOLS_CHANGED, SUBSCRIBED):
            # What changed between the listing and the subscription was told to nobody.
            self.list_tools()

    def subscriptions_changed(self) -> None:
        """The client wants to hear other things than before."""
        if self._ready is not None:
            self._ready.subscription.change()
            self._add_log_level()

    def _resubscribe(self) -> None:
        """Tell a server that has just become ready what former connections were told."""
        resources, log_level = self._hooks.subscriptions.resources, self._hooks.subscriptions.log_level
        if not self._connection.negotiated.server_may_ask:
            # Resources are part of what is listened to.
            self._add_log_level()
        elif resources or log_level is not None:
            self._run_exchange(resubscribe(resources, log_level), lambda _: None, self._resubscribe_failed)

    def _add_log_level(self) -> None:
        """In the stateless era the log level is part of each request."""
        level, negotiated = self._hooks.subscriptions.log_level, self._connection.negotiated
        if level is not None and not negotiated.server_may_ask:
            self._connection.set_protocol_version(negotiated.with_log_level(level))

    def _resubscribe_failed(self, error: MCPError) -> None:
        logger.warning("resubscribe_failed", server=self._connection.name, error=error.message)

    def list_tools(self) -> None:
        """List the tools, or do it later if that has been done very often of late."""
        assert self._ready is not None, "only a server that is ready is asked for its tools"
        now = self._clock.monotonic()
        if wait := self._bucket.wait(now):
            # The change counts as announced until then, so further announcements are no news.
            self._list_later(now + wait)
            return
        self._notifications.tools_change_seen()
        self._ready.listing.refresh()
