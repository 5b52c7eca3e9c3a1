"""Notifications of servers as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gaia.mcp.protocol.eras import SUBSCRIPTION_ID
from gaia.mcp.protocol.messages import Notification, RequestId


class ServerNotification(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    subscription: Any = None
    """In the stateless era, the id of the `subscriptions/listen` that it belongs to."""


class ToolListChanged(ServerNotification, frozen=True):
    pass


class ResourceListChanged(ServerNotification, frozen=True):
    pass


class PromptListChanged(ServerNotification, frozen=True):
    pass


class SubscriptionAcknowledged(ServerNotification, frozen=True, kw_only=True):
    """The server reports changes from now on."""

    resources: tuple[str, ...] | None = None
    """The URIs of the resources that it watches; None if the server does not say what it agreed to."""


class ResourceUpdated(ServerNotification, frozen=True, kw_only=True):
    uri: str


class RequestCancelled(ServerNotification, frozen=True, kw_only=True):
    """The server's request needs no answer any more. In the stateless era, the server ends a subscription."""

    request_id: RequestId


class ElicitationComplete(ServerNotification, frozen=True, kw_only=True):
    elicitation_id: str


class LogMessage(ServerNotification, frozen=True, kw_only=True):
    """A log message. Its members are any JSON values: servers do not keep to the words of RFC 5424."""

    level: Any
    logger: Any
    data: Any


_WITHOUT_PARAMS: dict[str, type[ServerNotification]] = {
    "notifications/tools/list_changed": ToolListChanged,
    "notifications/resources/list_changed": ResourceListChanged,
    "notifications/prompts/list_changed": PromptListChanged,
}


def parse_notification(notification: Notification) -> ServerNotification | None:
    """The typed notification; None for an unknown method, and for params without the required member."""
    method, params = notification.method, notification.params
    meta = params.get("_meta")
    subscription = meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
    if (kind := _WITHOUT_PARAMS.get(method)) is not None:
        return kind(method=method, subscription=subscription)
    match method, params:
        case "notifications/subscriptions/acknowledged", _:
            resources = _agreed_resources(params.get("notifications"))
            return SubscriptionAcknowledged(method=method, subscription=subscription, resources=resources)
        case "notifications/resources/updated", {"uri": str(uri)}:
            return ResourceUpdated(method=method, subscription=subscription, uri=uri)
        case "notifications/cancelled", {"requestId": int() | str() as identifier}:
            return RequestCancelled(method=method, subscription=subscription, request_id=identifier)
        case "notifications/elicitation/complete", {"elicitationId": str(identifier)}:
            return ElicitationComplete(method=method, subscription=subscription, elicitation_id=identifier)
        case "notifications/message", _:
            return LogMessage(
                method=method,
                subscription=subscription,
                level=params.get("level", "info"),
                logger=params.get("logger"),
                data=params.get("data"),
            )
    return None


def _agreed_resources(notifications: object) -> tuple[str, ...] | None:
    if not isinstance(notifications, dict):
        return None
    uris = notifications.get("resourceSubscriptions")
    return tuple(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else ()


def progress_of(params: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Progress (0 if missing), total and message (None if missing) of a `notifications/progress`, as sent."""
    return params.get("progress", 0), params.get("total"), params.get("message")
