"""Looks after a ready connection: checks the server, keeps its tools up to date, passes on its notifications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gaia.mcp.errors import HttpError, InvalidResponse, JsonRpcError, MCPError, NeedsAuthorization
from gaia.mcp.protocol.eras import ClientIdentity, ServerProfile, resubscribe
from gaia.mcp.protocol.exchange import Exchange
from gaia.mcp.protocol.messages import Notification, value_size
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.protocol.notifications import (
    ElicitationComplete,
    LogMessage,
    PromptListChanged,
    RequestCancelled,
    ResourceListChanged,
    ResourceUpdated,
    ServerNotification,
    SubscriptionAcknowledged,
    ToolListChanged,
    parse_notification,
)
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection, ConnectionState
from gaia.mcp.supervision import events
from gaia.mcp.supervision.context import Listing, SupervisionContext
from gaia.mcp.supervision.events import ElicitationCompleted
from gaia.mcp.supervision.exchange_runner import RunExchange
from gaia.mcp.supervision.health import HealthCheck
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.mcp.supervision.subscriptions import SubscriptionStream
from gaia.runtime.event_loop import EventLoop, Timer, Timers
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.rates import TokenBucket
from gaia.runtime.redaction import mask_strings

logger = get_logger(__name__)

_LISTINGS_AT_ONCE = 20
_SECONDS_BETWEEN_LISTINGS = 1.0
"""After the first listings. Without it, a server that announces a change after each listing would never be idle."""


def open_and_list(
    negotiation: Negotiation, identity: ClientIdentity, on_list_failed: Callable[[MCPError], None]
) -> Exchange[tuple[ServerProfile, list[Any] | None]]:
    """Open the connection and list the tools. The tools are None if the server cannot list them."""
    profile = yield from negotiation.open(identity)
    try:
        tools = yield from profile.era.list_tools(profile)
    except NeedsAuthorization:
        # After a login the server may have tools.
        raise
    except (JsonRpcError, InvalidResponse, HttpError) as error:
        # The server works and only its listing fails: calls by name may still succeed.
        on_list_failed(error)
        return profile, None
    return profile, tools


class _Ready(NamedTuple):
    profile: ServerProfile
    health: HealthCheck
    subscription: SubscriptionStream


class Maintenance:
    """Looks after one connection until it is lost. Belongs to the supervisor's thread."""

    def __init__(
        self,
        context: SupervisionContext,
        run_exchange: RunExchange,
        notifications: Notifications,
        timers: Timers,
        on_hung: Callable[[], None],
        on_list_failed: Callable[[MCPError], None],
    ) -> None:
        """Sets the timers HEALTH, LISTING and SUBSCRIPTION; `retire` cancels them."""
        self._context = context
        self._hooks = context.hooks
        self._connection = run_exchange.connection
        self._run_exchange = run_exchange
        self._notifications = notifications
        self._timers = timers
        self._on_hung = on_hung
        self._on_list_failed = on_list_failed
        now = context.clock.monotonic()
        self._bucket = TokenBucket(_LISTINGS_AT_ONCE, 1 / _SECONDS_BETWEEN_LISTINGS, now)
        self._ready: _Ready | None = None
        self._retired = False
        self._is_listing = False
        self._is_outdated = False
        self._opening = Listing(self._hooks.listing_begins().number, now + context.start_timeout)

    def begin(self, profile: ServerProfile, tools: list[Any] | None, *, has_waited: bool = False) -> None:
        """The server is ready and has listed `tools`. `has_waited`: it did so as a stand-by, perhaps long ago."""
        # The tools of a stand-by replace any that the former server has listed later.
        self._hooks.tools_listed(tools, self._hooks.listing_begins() if has_waited else self._opening)
        context = self._context
        health = HealthCheck(
            profile.era, self._run_exchange, self._on_hung, context.health_interval, context.health_timeout
        )
        subscription = SubscriptionStream(profile, self._run_exchange, self._hooks.subscriptions, self._listen_later)
        self._ready = _Ready(profile, health, subscription)
        subscription.keep()
        self._resubscribe()
        if self._notifications.tools_change_announced:
            # The change may have come after the listing of the opening.
            self.list_tools()
        self._timers.set(Timer.HEALTH, context.clock.monotonic() + context.health_interval, self._tick)

    def retire(self) -> None:
        """Stop looking after a lost or replaced connection. Its notifications still count, except changes of tools."""
        if self._ready is not None and not self._retired:
            self._timers.cancel(Timer.HEALTH, Timer.LISTING, Timer.SUBSCRIPTION)
        self._retired = True

    def _listen_later(self, seconds: float, listen: Callable[[], object]) -> None:
        if self._retired or self._connection.state is ConnectionState.CLOSED:
            return
        if seconds > 0:
            self._timers.set(Timer.SUBSCRIPTION, self._context.clock.monotonic() + seconds, listen)
        else:
            listen()

    def _tick(self) -> None:
        assert self._ready is not None, "the timer is set when the server is ready"
        if self._retired or self._connection.state is ConnectionState.CLOSED:
            # The timer came due together with the event that made the supervisor give up the connection.
            return
        self._ready.subscription.keep()
        self._timers.set(Timer.HEALTH, self._ready.health.tick(), self._tick)

    def expired(self, call: Call) -> None:
        if self._ready is not None:
            self._ready.health.suspect(call)

    def notified(self, notification: ServerNotification) -> None:
        name = self._connection.name
        if isinstance(notification, ElicitationComplete):
            self._hooks.happened(ElicitationCompleted(name, notification.elicitation_id))
        elif isinstance(notification, LogMessage):
            self._hooks.happened(server_log(self._connection, notification))
        elif self._ready is None:
            # `Notifications` remembers a change of the tools; other notifications have no meaning yet.
            return
        elif self._retired and isinstance(notification, ToolListChanged | SubscriptionAcknowledged):
            return
        elif isinstance(notification, RequestCancelled):
            self._ready.subscription.cancelled(notification.request_id)
        elif not self._ready.subscription.covers(notification):
            logger.debug("notification_of_no_subscription", server=name, method=notification.method)
            if isinstance(notification, ToolListChanged):
                self._notifications.listing_begins()
        elif (event := offer_changed(name, notification)) is not None:
            self._hooks.happened(event)
        elif isinstance(notification, ToolListChanged | SubscriptionAcknowledged):
            if isinstance(notification, SubscriptionAcknowledged):
                self._ready.subscription.acknowledged(notification)
            # The tools may have changed between the listing and the acknowledgement, without an announcement.
            self.list_tools()

    def subscriptions_changed(self) -> None:
        if self._ready is not None:
            self._ready.subscription.change()
            self._add_log_level()

    def subscribe_again(self) -> None:
        """As `subscriptions_changed`, for a replica: the requests of the handshake era went to another one."""
        if self._ready is not None:
            self._ready.subscription.change()
            self._resubscribe()

    def _resubscribe(self) -> None:
        resources, log_level = self._hooks.subscriptions.resources, self._hooks.subscriptions.log_level
        if not self._connection.negotiated.server_may_ask:
            # The resources are part of the `subscriptions/listen`.
            self._add_log_level()
        elif resources or log_level is not None:

            def failed(error: MCPError) -> None:
                logger.warning("resubscribe_failed", server=self._connection.name, error=error.message)

            self._run_exchange(resubscribe(resources, log_level), lambda _: None, failed)

    def _add_log_level(self) -> None:
        level, negotiated = self._hooks.subscriptions.log_level, self._connection.negotiated
        if level is not None and not negotiated.server_may_ask:
            self._connection.set_protocol_version(negotiated.with_log_level(level))

    def list_tools(self) -> None:
        """List the tools of a ready server: now, or later if they were listed very often of late."""
        if self._ready is None or self._retired:
            # The timer came due together with the event that made the supervisor give up the connection.
            return
        now = self._context.clock.monotonic()
        if wait := self._bucket.delay(now):
            # Until then the change counts as announced, so further announcements are ignored.
            self._timers.set(Timer.LISTING, now + wait, self.list_tools)
            return
        self._bucket.take()
        self._notifications.listing_begins()
        if self._is_listing:
            # However many changes are announced meanwhile, one more listing follows.
            self._is_outdated = True
        else:
            self._list(self._ready.profile)

    def _list(self, profile: ServerProfile) -> None:
        self._is_listing, self._is_outdated = True, False
        listing = self._hooks.listing_begins()

        def ended(report: Callable[[], None]) -> None:
            self._is_listing = False
            report()
            if self._is_outdated:
                self._list(profile)

        self._run_exchange(
            profile.era.list_tools(profile),
            lambda definitions: ended(lambda: self._hooks.tools_listed(definitions, listing)),
            lambda error: ended(lambda: self._on_list_failed(error)),
        )


_MAX_PENDING = 1_000
"""Notifications that wait for the supervisor. Further ones are dropped, because they would fill the memory."""

_MAX_PENDING_BYTES = 4 * 1024 * 1024


class Notifications:
    """Passes the notifications of one connection to the supervisor: only known ones, and a limited number."""

    def __init__(
        self, loop: EventLoop, server_requests: ServerRequests, on_notified: Callable[[ServerNotification], None]
    ) -> None:
        self._loop = loop
        self._server_requests = server_requests
        self._on_notified = on_notified
        self.tools_change_announced = False
        """Whether a change was announced since the last listing; another announcement would be redundant."""
        self._posting = reentrant_lock()
        self._posted = 0
        self._read = 0
        """Bytes read so far; only the supervisor's thread changes it."""

    def received(self, connection: Connection, notification: Notification) -> None:
        parsed = parse_notification(notification)
        if isinstance(parsed, ToolListChanged):
            # Not limited: at most one waits, and without it the tools would stay out of date.
            if not self.tools_change_announced:
                self.tools_change_announced = True
                self._post(parsed)
        elif isinstance(parsed, RequestCancelled) and connection.negotiated.server_may_ask:
            self._server_requests.cancelled(connection, parsed.request_id)
        elif isinstance(parsed, ElicitationComplete) and not self._server_requests.completes(parsed.elicitation_id):
            return
        elif parsed is not None and self._loop.pending < _MAX_PENDING:
            size = value_size(parsed)
            if self._posted - self._read + size <= _MAX_PENDING_BYTES:
                self._post(parsed, size)

    def _post(self, notification: ServerNotification, size: int = 0) -> None:
        with self._posting:
            self._posted += size

        def notified() -> None:
            self._read += size
            self._on_notified(notification)

        self._loop.post(notified)

    def listing_begins(self) -> None:
        """Call this on the supervisor's thread before the tools are listed: later announcements are new."""
        self.tools_change_announced = False


def offer_changed(server: str, notification: ServerNotification) -> events.Event | None:
    """The event for a change of resources or prompts; None for other notifications."""
    match notification:
        case ResourceUpdated(uri=uri):
            return events.ResourceUpdated(server, uri)
        case ResourceListChanged():
            return events.ResourcesChanged(server)
        case PromptListChanged():
            return events.PromptsChanged(server)
    return None


def server_log(connection: Connection, message: LogMessage) -> events.ServerLog:
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
