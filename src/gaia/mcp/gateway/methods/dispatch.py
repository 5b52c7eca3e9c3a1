"""Finds the handler of a client's message."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import msgspec

from gaia.mcp.gateway.access.principal import ANONYMOUS
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.clients.sessions import Session, SessionRequest
from gaia.mcp.gateway.messages import ClientMessage, RequestRefused, member
from gaia.mcp.gateway.methods.features import (
    call_tool,
    complete,
    get_prompt,
    list_prompts,
    list_resources,
    list_templates,
    list_tools,
    read_resource,
)
from gaia.mcp.gateway.methods.opening import discover, initialize, ping, set_level
from gaia.mcp.gateway.methods.relaying import fail
from gaia.mcp.gateway.methods.subscriptions import listen, subscribe, unsubscribe
from gaia.mcp.protocol.messages import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, Refusal, RequestId

Handler = Callable[[PendingRequest], None]


def _limited(handler: Handler) -> Handler:
    """Wrap a handler of requests that the gateway answers itself. The client's own limits apply to them."""

    def begin(request: PendingRequest) -> None:
        limits, client = request.view.checks.limits, request.principal or ANONYMOUS
        if limits is None or not limits.concern(client):
            handler(request)
            return
        admission = limits.admit(
            client,
            None,
            None,
            lambda _: later(request, lambda: handler(request))(),
            lambda error: fail(request, "", error),
        )
        if request.is_answered:
            admission.end()
        else:
            request.after_end(admission.end)

    return begin


_BOTH: Mapping[str, Handler] = {
    "tools/list": _limited(list_tools),
    "tools/call": call_tool,
    "prompts/list": _limited(list_prompts),
    "prompts/get": get_prompt,
    "resources/list": _limited(list_resources),
    "resources/templates/list": _limited(list_templates),
    "resources/read": read_resource,
    "completion/complete": complete,
}
_HANDSHAKE: Mapping[str, Handler] = {
    **_BOTH,
    "initialize": initialize,
    "ping": ping,
    "logging/setLevel": set_level,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
}
_STATELESS: Mapping[str, Handler] = {**_BOTH, "server/discover": discover, "subscriptions/listen": listen}


def dispatch(request: PendingRequest) -> None:
    """Answer a request, now or later. Never raises."""
    session = request.session
    if session is not None:
        session.requests[request.id] = request
        request.after_end(functools.partial(session.requests.pop, request.id, None))
    handler = (_STATELESS if request.is_stateless else _HANDSHAKE).get(request.method)
    if handler is None:
        request.fail(METHOD_NOT_FOUND, f"Method not found: {request.method}", status=404)
        return
    try:
        handler(request)
    except Exception as error:  # noqa: BLE001 - a mistake of ours must not leave the client without an answer
        request.fail_with(error)


def take_message(session: Session, message: ClientMessage) -> None:
    """Handle a message that needs no answer. Raises `RequestRefused` for a malformed response."""
    if message.method is None:
        _take_response(session, message)
    else:
        take_cancellation(message, session.requests)


def take_cancellation(message: ClientMessage, requests: Mapping[RequestId, SessionRequest]) -> None:
    if message.method == "notifications/cancelled":
        identifier: RequestId | None = member(message.params or {}, "requestId", int | str)  # type: ignore[arg-type]  # no type is the type of a union
        request = None if identifier is None else requests.get(identifier)
        # The specification forbids clients to cancel `initialize`.
        if request is not None and request.method != "initialize":
            request.cancel("cancelled by the client")


def require_unused(message: ClientMessage, requests: Mapping[RequestId, SessionRequest]) -> None:
    if message.id in requests:
        raise RequestRefused(INVALID_REQUEST, f"the id {message.id!r} is in use", status=400)


def _take_response(session: Session, message: ClientMessage) -> None:
    assert message.id is not None, "a message without both is none"
    try:
        if message.result:
            session.answered(message.id, msgspec.json.decode(message.result, type=dict), None)
            return
        error = msgspec.json.decode(message.error, type=dict) if message.error else {}
    except (msgspec.DecodeError, RecursionError) as problem:
        raise RequestRefused(INVALID_REQUEST, f"no response: {problem}", status=400) from None
    code, text = error.get("code"), error.get("message")
    refusal = Refusal(code if isinstance(code, int) else INTERNAL_ERROR, text if isinstance(text, str) else "refused")
    session.answered(message.id, None, refusal)
