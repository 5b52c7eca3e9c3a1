"""The notifications and log messages that a client wants, and the subscription requests of the stateless era."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from http import HTTPStatus

from gaia.mcp.errors import AnswerLost, CallCancelled, HttpError, JsonRpcError, MCPError, NeedsAuthorization, NotOffered
from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.protocol.messages import INTERNAL_ERROR, RequestId
from gaia.mcp.protocol.notifications import ServerNotification, SubscriptionAcknowledged
from gaia.mcp.rpc.call import Call
from gaia.mcp.supervision.exchange_runner import ExchangeRunner, RunExchange
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

OnDecided = Callable[[MCPError | None], object]

_RENEW_SECONDS = 0.5
_MAX_RENEW_SECONDS = 30.0
"""The pause before a request that was ended is renewed, and the longest one: each is twice as long as the one before.

At once would be too early: a gateway that stops ends its requests, and would have to wait for the new one.
"""

_NOT_OFFERED = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class Subscriptions:
    """The subscriptions of one client, for each new connection. Thread-safe: members are replaced as a whole."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        self.resources: tuple[str, ...] = ()
        self.log_level: str | None = None
        """The least severe log messages that the client wants; None leaves it to the server."""
        self._undecided: tuple[tuple[str, OnDecided], ...] = ()
        """Resources for which a server of the stateless era has not yet agreed or refused to report changes."""

    def add_resource(self, uri: str) -> None:
        with self._lock:
            self.resources = tuple(dict.fromkeys((*self.resources, uri)))

    def remove_resource(self, uri: str) -> None:
        with self._lock:
            self.resources = tuple(other for other in self.resources if other != uri)

    def set_log_level(self, level: str) -> None:
        self.log_level = level

    def when_decided(self, uri: str, on_decided: OnDecided) -> Callable[[], None]:
        """Call `on_decided` when a server of the stateless era agrees to report changes of a resource, or refuses.

        It runs on the supervisor's thread. Call this before the resource is added. The returned function ends the
        waiting.
        """
        entry = (uri, on_decided)
        with self._lock:
            self._undecided = (*self._undecided, entry)

        def forget() -> None:
            with self._lock:
                self._undecided = tuple(other for other in self._undecided if other is not entry)

        return forget

    def decided(self, asked: Collection[str], agreed: Collection[str], error: MCPError) -> None:
        """Take the server's answer to a request for the resources `asked`; those not in `agreed` get `error`."""
        with self._lock:
            decided = [entry for entry in self._undecided if entry[0] in asked]
            self._undecided = tuple(entry for entry in self._undecided if entry not in decided)
        for uri, on_decided in decided:
            on_decided(None if uri in agreed else error)


@dataclasses.dataclass(eq=False)
class SubscriptionStream:
    """Keeps one `subscriptions/listen` open on one connection (2026-07-28, "Subscriptions").

    Belongs to the supervisor's thread. It does nothing in the handshake era. A request that was lost or that the server
    has ended is renewed after pauses that grow until the next `keep`, the first time at once if it was lost. A server
    that does not offer the method is not asked again.
    """

    profile: ServerProfile
    run_exchange: RunExchange
    subscriptions: Subscriptions
    later: Callable[[float, Callable[[], object]], object]
    """Calls the function after so many seconds, unless the connection is not looked after any more by then."""
    _runner: ExchangeRunner[None] | None = dataclasses.field(default=None, init=False)
    _replaced: ExchangeRunner[None] | None = dataclasses.field(default=None, init=False)
    """The former request, which reports changes until the server has acknowledged the new one."""
    _asked: tuple[str, ...] = dataclasses.field(default=(), init=False)
    _refused = False
    _renewals = 0
    """Since the last `keep`."""

    def keep(self) -> None:
        # A server that has not acknowledged the new request by now never will.
        self._give_up_replaced()
        self._renewals = 0
        self._listen()

    def _renew(self, *, at_once: bool) -> None:
        number, self._renewals = self._renewals, self._renewals + 1
        pause = min(_MAX_RENEW_SECONDS, _RENEW_SECONDS * 2.0 ** min(number, 10))
        self.later(0.0 if at_once and number == 0 else pause, self._listen)

    def _listen(self) -> None:
        if self._runner is not None or self._refused:
            return
        self._asked = self.subscriptions.resources
        listening = self.profile.era.listen(self.profile, self._asked)
        if listening is None:
            return
        runner: ExchangeRunner[None] | None = None

        def over(error: MCPError | None) -> None:
            if self._runner is not runner:
                return
            self._runner = None
            if error is None:
                logger.debug("subscription_ended", server=self.run_exchange.connection.name)
                self._renew(at_once=False)
            else:
                self._failed(error)

        self._runner = runner = self.run_exchange(listening, over, over)

    def _failed(self, error: MCPError) -> None:
        if isinstance(error, JsonRpcError) or _says_not_offered(error):
            self.subscriptions.decided(self._asked, (), error)
        if _says_not_offered(error):
            self._refused = True
            logger.warning("subscription_refused", server=self.run_exchange.connection.name, error=error.message)
            return
        # Proxies often end quiet streams. If the server itself has ended, the next request will show it.
        logger.debug("subscription_lost", server=self.run_exchange.connection.name, error=error.message)
        self._renew(at_once=isinstance(error, AnswerLost))

    def change(self) -> None:
        """Make a new request for other resources. The old one goes on until the server has acknowledged the new one."""
        old, self._runner = self._runner, None
        if self._replaced is None:
            self._replaced = old
        else:
            # The server has not acknowledged `old` yet.
            self._give_up(old)
        self._refused = False
        self._renewals = 0
        self._listen()
        if self._runner is None:
            self._give_up_replaced()

    def acknowledged(self, acknowledgement: SubscriptionAcknowledged) -> None:
        """The server reports changes from now on, as a request asked for."""
        if _is(self._runner, acknowledgement.subscription):
            self._give_up_replaced()
            agreed = self._asked if acknowledgement.resources is None else acknowledgement.resources
            self.subscriptions.decided(
                self._asked, agreed, NotOffered("the server does not tell changes of this resource")
            )

    def covers(self, notification: ServerNotification) -> bool:
        """Whether the client asked for a notification: in the stateless era it belongs to an open request."""
        return (
            self.run_exchange.connection.negotiated.server_may_ask
            or _is(self._runner, notification.subscription)
            or _is(self._replaced, notification.subscription)
        )

    def cancelled(self, request_id: RequestId) -> None:
        error = CallCancelled("the server ended the subscription")
        if _is(self._runner, request_id):
            runner, self._runner = self._runner, None
            _finish(runner, error)
            self._renew(at_once=False)
        elif _is(self._replaced, request_id):
            runner, self._replaced = self._replaced, None
            _finish(runner, error)

    def _give_up_replaced(self) -> None:
        runner, self._replaced = self._replaced, None
        self._give_up(runner)

    def _give_up(self, runner: ExchangeRunner[None] | None) -> None:
        error = CallCancelled("replaced by a newer subscription")
        if (call := _finish(runner, error)) is not None:
            self.run_exchange.connection.cancel_call(call, error.message)


def _is(runner: ExchangeRunner[None] | None, identifier: object) -> bool:
    call = None if runner is None else runner.call
    # Both type and value: the specification keeps the type of the id.
    return call is not None and type(identifier) is int and identifier == call.id


def _finish(runner: ExchangeRunner[None] | None, error: CallCancelled) -> Call | None:
    call = None if runner is None else runner.call
    return call if call is not None and call.finish(error=error) else None


def _says_not_offered(error: MCPError) -> bool:
    """Whether a server that failed a subscription with `error` will fail the next one too."""
    if isinstance(error, JsonRpcError):
        return error.code != INTERNAL_ERROR
    # Other statuses often come from a proxy whose server is away.
    return isinstance(error, NeedsAuthorization) or (isinstance(error, HttpError) and error.status in _NOT_OFFERED)
