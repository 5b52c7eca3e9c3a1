"""Keeps asking a server of the stateless era for its changes (2026-07-28, "Subscriptions")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gaia.log import get_logger
from gaia.mcp.client.protocol.era import ServerProfile
from gaia.mcp.client.protocol.messages import Notification
from gaia.mcp.client.protocol.stateless_era import SUBSCRIPTION_ID
from gaia.mcp.client.rpc.connection import Connection
from gaia.mcp.client.supervision.exchange_runner import ExchangeRunner, RunExchange
from gaia.mcp.errors import AnswerLost, CallCancelled, MCPError

__all__ = ["SubscriptionStream"]

logger = get_logger(__name__)


class SubscriptionStream:
    """At most one `subscriptions/listen` of one connection. Belongs to the supervisor's thread.

    One that was lost, or ended by the server, is renewed by the next `keep`; a server that refuses it is not asked
    again.
    """

    def __init__(
        self,
        profile: ServerProfile,
        connection: Connection,
        run_exchange: RunExchange,
        resources: Callable[[], Sequence[str]],
    ) -> None:
        """`resources` tells the URIs of the resources whose changes are of interest."""
        self._profile = profile
        self._connection = connection
        self._run_exchange = run_exchange
        self._resources = resources
        self._runner: ExchangeRunner[None] | None = None
        """The request that is open."""
        self._refused = False
        self._may_renew = True
        """Whether one that is lost is renewed at once, which is done once between two calls of `keep`."""

    def keep(self) -> None:
        """Listen, if nothing is listening yet."""
        self._may_renew = True
        self._listen()

    def _listen(self) -> None:
        if self._runner is not None or self._refused:
            return
        listening = self._profile.era.listen(self._profile, self._resources())
        if listening is None:
            return
        runner: ExchangeRunner[None] | None = None

        def ended(_: None) -> None:
            if self._runner is runner:
                self._runner = None
                logger.debug("subscription_ended", server=self._connection.name)

        def failed(error: MCPError) -> None:
            if self._runner is runner:
                self._runner = None
                if isinstance(error, AnswerLost):
                    # What stands between client and server often ends streams that are quiet. If it was the server
                    # that ended, asking it again will tell.
                    logger.debug("subscription_lost", server=self._connection.name, error=error.message)
                    if self._may_renew:
                        self._may_renew = False
                        self._listen()
                    return
                self._refused = True
                logger.warning("subscription_refused", server=self._connection.name, error=error.message)

        self._runner = runner = self._run_exchange(listening, ended, failed)

    def change(self) -> None:
        """Other resources are of interest: listen anew, and only then give up the old request."""
        old, self._runner = self._runner, None
        self._refused = False
        self.keep()
        call = None if old is None else old.call
        if call is not None and call.finish(error=CallCancelled("replaced by a newer subscription")):
            self._connection.cancel_call(call, "replaced by a newer subscription")

    def covers(self, notification: Notification) -> bool:
        """Whether a notification is meant for us: in this era it belongs to the request that is open."""
        if self._connection.negotiated.server_may_ask:
            return True
        return self._is_open(_member(notification.params.get("_meta"), SUBSCRIPTION_ID))

    def cancelled(self, notification: Notification) -> None:
        """The server cancels a request of ours, which can only be this one ("Cancellation")."""
        if self._is_open(notification.params.get("requestId")):
            runner, self._runner = self._runner, None
            if runner is not None and runner.call is not None:
                runner.call.finish(error=CallCancelled("the server ended the subscription"))

    def _is_open(self, identifier: Any) -> bool:
        call = None if self._runner is None else self._runner.call
        # Type and value: the specification keeps the type of the id.
        return call is not None and type(identifier) is int and identifier == call.id


def _member(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
