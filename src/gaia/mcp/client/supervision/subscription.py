"""Keeps asking a server of the stateless era for its changes (2026-07-28, "Subscriptions")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gaia.log import get_logger
from gaia.mcp.client.protocol.era import ServerProfile
from gaia.mcp.client.protocol.messages import Notification
from gaia.mcp.client.protocol.stateless_era import SUBSCRIPTION_ID
from gaia.mcp.client.rpc.connection import Connection
from gaia.mcp.client.supervision.conversation import Conversation, Converse
from gaia.mcp.errors import AnswerLost, CallCancelled, MCPError

__all__ = ["Subscription"]

logger = get_logger(__name__)


class Subscription:
    """At most one `subscriptions/listen` of one connection. Belongs to the worker thread.

    One that was lost, or ended by the server, is renewed by the next `keep`; a server that refuses it is not asked
    again.
    """

    def __init__(
        self,
        profile: ServerProfile,
        connection: Connection,
        converse: Converse,
        resources: Callable[[], Sequence[str]],
    ) -> None:
        """`resources` tells the URIs of the resources whose changes are of interest."""
        self._profile = profile
        self._connection = connection
        self._converse = converse
        self._resources = resources
        self._conversation: Conversation[None] | None = None
        """The request that is open."""
        self._refused = False
        self._may_renew = True
        """Whether one that is lost is renewed at once, which is done once between two calls of `keep`."""

    def keep(self) -> None:
        """Listen, if nothing is listening yet."""
        self._may_renew = True
        self._listen()

    def _listen(self) -> None:
        if self._conversation is not None or self._refused:
            return
        listening = self._profile.era.listen(self._profile, self._resources())
        if listening is None:
            return
        conversation: Conversation[None] | None = None

        def ended(_: None) -> None:
            if self._conversation is conversation:
                self._conversation = None
                logger.debug("subscription_ended", server=self._connection.name)

        def failed(error: MCPError) -> None:
            if self._conversation is conversation:
                self._conversation = None
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

        self._conversation = conversation = self._converse(listening, ended, failed)

    def change(self) -> None:
        """Other resources are of interest: listen anew, and only then give up the old request."""
        old, self._conversation = self._conversation, None
        self._refused = False
        self.keep()
        call = None if old is None else old.call
        if call is not None and call.finish(error=CallCancelled("replaced by a newer subscription")):
            self._connection.abandon(call, "replaced by a newer subscription")

    def covers(self, notification: Notification) -> bool:
        """Whether a notification is meant for us: in this era it belongs to the request that is open."""
        if self._connection.dialect.server_may_ask:
            return True
        return self._is_open(_member(notification.params.get("_meta"), SUBSCRIPTION_ID))

    def cancelled(self, notification: Notification) -> None:
        """The server cancels a request of ours, which can only be this one ("Cancellation")."""
        if self._is_open(notification.params.get("requestId")):
            conversation, self._conversation = self._conversation, None
            if conversation is not None and conversation.call is not None:
                conversation.call.finish(error=CallCancelled("the server ended the subscription"))

    def _is_open(self, identifier: Any) -> bool:
        call = None if self._conversation is None else self._conversation.call
        # Type and value: the specification keeps the type of the id.
        return call is not None and type(identifier) is int and identifier == call.id


def _member(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
