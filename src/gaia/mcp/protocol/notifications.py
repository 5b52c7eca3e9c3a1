"""Notifications of servers as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gaia.mcp.protocol.eras import SUBSCRIPTION_ID
from gaia.mcp.protocol.messages import Notification, RequestId


class ServerNotification(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    method: str
    subscription: Any = None
    """In the stateless era, the id of the `subscriptions/listen` that requested it."""


class ToolListChanged(ServerNotification, frozen=True):
    pass


class ResourceListChanged(ServerNotification, frozen=True):
    pass


class PromptListChanged(ServerNotification, frozen=True):
    pass


class SubscriptionAcknowledged(ServerNotification, frozen=True, kw_only=True):
    notifications: Any = None

    @property
    def resources(self) -> tuple[str, ...] | None:
        """The URIs of the resources that the server watches; None if it does not list them."""
        if not isinstance(self.notifications, dict):
            return None
        uris = self.notifications.get("resourceSubscriptions")
        return tuple(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else ()


class ResourceUpdated(ServerNotification, frozen=True, kw_only=True):
    uri: str


class RequestCancelled(ServerNotification, frozen=True, kw_only=True, rename="camel"):
    """The server no longer needs an answer to its request. In the stateless era, the server ends a subscription."""

    request_id: RequestId


class ElicitationComplete(ServerNotification, frozen=True, kw_only=True, rename="camel"):
    elicitation_id: str


class LogMessage(ServerNotification, frozen=True, kw_only=True):
    """A log message. Its members are any JSON values, because servers also use words that RFC 5424 does not have."""

    level: Any = "info"
    logger: Any = None
    data: Any = None


_KINDS: dict[str, type[ServerNotification]] = {
    "notifications/tools/list_changed": ToolListChanged,
    "notifications/resources/list_changed": ResourceListChanged,
    "notifications/prompts/list_changed": PromptListChanged,
    "notifications/subscriptions/acknowledged": SubscriptionAcknowledged,
    "notifications/resources/updated": ResourceUpdated,
    "notifications/cancelled": RequestCancelled,
    "notifications/elicitation/complete": ElicitationComplete,
    "notifications/message": LogMessage,
}


def parse_notification(notification: Notification) -> ServerNotification | None:
    """The typed notification; None for an unknown method, or if params lack a required member."""
    kind, meta = _KINDS.get(notification.method), notification.params.get("_meta")
    if kind is None:
        return None
    subscription = meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
    ours = {"method": notification.method, "subscription": subscription}
    try:
        return msgspec.convert({**notification.params, **ours}, kind)
    except msgspec.ValidationError:
        return None


def progress_of(params: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return params.get("progress", 0), params.get("total"), params.get("message")
