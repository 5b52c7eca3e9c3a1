"""What a client of the handshake era sends in its session: requests, notifications, and answers to questions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gaia.mcp.gateway.clients.client_messages import ClientMessage, member
from gaia.mcp.gateway.clients.pending_request import PendingRequest, Reply
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.gateway.methods.dispatch import dispatch
from gaia.mcp.gateway.request_refused import RequestRefused
from gaia.mcp.protocol.messages import INTERNAL_ERROR, INVALID_REQUEST, Refusal, RequestId


def take_message(session: Session, message: ClientMessage) -> None:
    """A message that is not answered. Raises `RequestRefused` for a response that is none."""
    if message.method is None:
        _take_response(session, message)
    elif message.method == "notifications/cancelled":
        identifier: RequestId | None = member(message.params or {}, "requestId", int | str)  # type: ignore[arg-type]  # no type is the type of a union
        request = None if identifier is None else session.requests.get(identifier)
        # The specification forbids to cancel the first one.
        if request is not None and request.method != "initialize":
            request.cancel("cancelled by the client")


def begin_request(
    session: Session,
    message: ClientMessage,
    meta: Mapping[str, Any],
    reply: Reply,
    address: str | None = None,
    unopened: Callable[[], None] = lambda: None,
) -> PendingRequest:
    """Answer a request, now or later. `unopened` is called if it is an `initialize` that opens no session."""
    assert message.id is not None
    assert message.method is not None
    request = PendingRequest(
        message.id,
        message.method,
        message.params or {},
        meta,
        reply,
        session.view,
        session,
        session.owner,
        address,
    )
    session.requests[message.id] = request
    request.after_end(functools.partial(session.requests.pop, message.id, None))
    if message.method == "initialize":
        request.after_end(lambda: None if session.revision else unopened())
    dispatch(request)
    return request


def require_unused(session: Session, message: ClientMessage) -> None:
    """Raise `RequestRefused` if a request of this id is under way."""
    if message.id in session.requests:
        raise RequestRefused(INVALID_REQUEST, f"the id {message.id!r} is in use", status=400)


def _take_response(session: Session, message: ClientMessage) -> None:
    assert message.id is not None, "a message without both is none"
    try:
        if message.result:
            session.answered(message.id, msgspec.json.decode(message.result, type=dict), None)
            return
        error = msgspec.json.decode(message.error, type=dict) if message.error else {}
    except msgspec.DecodeError as problem:
        raise RequestRefused(INVALID_REQUEST, f"no response: {problem}", status=400) from None
    code, text = error.get("code"), error.get("message")
    refusal = Refusal(code if isinstance(code, int) else INTERNAL_ERROR, text if isinstance(text, str) else "refused")
    session.answered(message.id, None, refusal)
