"""`Endpoint`: Streamable HTTP of both eras, independent of the HTTP server (specification, "Streamable HTTP").

A request is given as a whole, and its response goes to a `Responder`. An ordinary call needs no task: its result comes
by a callback.
"""

from __future__ import annotations

import functools
import http
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import orjson

from gaia.mcp.client.protocol.messages import INVALID_REQUEST, Refusal, RequestId
from gaia.mcp.gateway.client_messages import ClientMessage, RequestRefused, decode_message, encode_error, member
from gaia.mcp.gateway.dispatch import dispatch
from gaia.mcp.gateway.http_reply import JSON, Headers, HttpReply, Responder
from gaia.mcp.gateway.metadata import check_metadata, is_stateless
from gaia.mcp.gateway.pending_request import PendingRequest
from gaia.mcp.gateway.sessions import Session, Sessions
from gaia.mcp.gateway.view import View

__all__ = ["Endpoint", "HttpExchange"]

_SESSION = b"mcp-session-id"

ViewAt = Callable[[str, object], View | None]
"""The view at a path, for a principal; None if there is none."""


class HttpExchange:
    """One HTTP request and what has become of it."""

    __slots__ = ("request",)

    def __init__(self, request: PendingRequest | None = None) -> None:
        self.request = request

    def client_gone(self) -> None:
        """The client has closed the connection before the end of the response.

        In the stateless era this cancels the request. In the handshake era it says nothing, but nothing could take the
        answer to the client any more, so the request is cancelled too.
        """
        if self.request is not None:
            self.request.cancel("the client has closed the connection")


_NOTHING = HttpExchange()


class Endpoint:
    """Belongs to the gateway's event loop."""

    def __init__(self, view_at: ViewAt, sessions: Sessions) -> None:
        self._view_at = view_at
        self._sessions = sessions

    def handle(
        self, method: str, path: str, headers: Mapping[bytes, bytes], body: bytes, responder: Responder
    ) -> HttpExchange:
        """Answer one HTTP request, now or later. Names of `headers` are in lower case."""
        principal: object = None
        view = self._view_at(path, principal)
        if view is None:
            return _refuse(responder, 404, f"There is nothing at {path}")
        if method == "POST":
            return self._post(path, view, headers, body, responder)
        if method == "DELETE":
            return self._delete(path, view, headers, responder)
        return _refuse(responder, 405, "Use POST", [(b"allow", b"POST, DELETE")])

    def _post(
        self, path: str, view: View, headers: Mapping[bytes, bytes], body: bytes, responder: Responder
    ) -> HttpExchange:
        message: ClientMessage | None = None
        try:
            accepts_stream = _accepts(headers)
            message = decode_message(body)
            params = message.params or {}
            meta: dict[str, Any] = member(params, "_meta", dict) or {}
            if is_stateless(headers, meta):
                return self._post_stateless(view, message, meta, headers, responder, accepts_stream=accepts_stream)
            return self._post_in_session(path, view, message, meta, headers, responder, accepts_stream=accepts_stream)
        except RequestRefused as refused:
            identifier = None if message is None else message.id
            body = encode_error(identifier, refused.code, refused.message, refused.data)
            responder.finish(refused.status, JSON, body)
            return _NOTHING

    def _post_stateless(
        self,
        view: View,
        message: ClientMessage,
        meta: Mapping[str, Any],
        headers: Mapping[bytes, bytes],
        responder: Responder,
        *,
        accepts_stream: bool,
    ) -> HttpExchange:
        if message.method is None:
            raise RequestRefused(INVALID_REQUEST, "clients of this revision send no responses", status=400)
        check_metadata(headers, message.method, message.params or {}, meta, is_request=message.id is not None)
        if message.id is None:
            responder.finish(202, [], b"")
            return _NOTHING
        reply = HttpReply(responder, accepts_stream=accepts_stream, headers=[])
        request = PendingRequest(message.id, message.method, message.params or {}, meta, reply, view, None)
        dispatch(request)
        return HttpExchange(request)

    def _post_in_session(
        self,
        path: str,
        view: View,
        message: ClientMessage,
        meta: Mapping[str, Any],
        headers: Mapping[bytes, bytes],
        responder: Responder,
        *,
        accepts_stream: bool,
    ) -> HttpExchange:
        session = self._session(path, view, message, headers)
        if message.method is None:
            assert message.id is not None, "a message without both is none"
            _answered(session, message)
            responder.finish(202, [], b"")
            return _NOTHING
        if message.id is None:
            _notified(session, message)
            responder.finish(202, [], b"")
            return _NOTHING
        identifier = message.id
        if identifier in session.requests:
            raise RequestRefused(INVALID_REQUEST, f"the id {identifier!r} is in use already", status=400)
        is_opening = message.method == "initialize"
        reply = HttpReply(
            responder,
            accepts_stream=accepts_stream,
            headers=[(_SESSION, session.id.encode())] if is_opening else [],
        )
        request = PendingRequest(identifier, message.method, message.params or {}, meta, reply, view, session)
        session.requests[identifier] = request
        request.on_end = functools.partial(_forget, session, identifier)
        dispatch(request)
        return HttpExchange(request)

    def _session(self, path: str, view: View, message: ClientMessage, headers: Mapping[bytes, bytes]) -> Session:
        given = headers.get(_SESSION)
        if message.method == "initialize":
            if message.id is None or given is not None:
                raise RequestRefused(INVALID_REQUEST, "initialize opens a session, and is a request", status=400)
            return self._sessions.open(path, view.principal)
        if given is None:
            raise RequestRefused(
                INVALID_REQUEST, "the Mcp-Session-Id header is missing: send initialize first", status=400
            )
        session = self._sessions.find(given.decode("latin-1"), path, view.principal)
        if session is None:
            raise RequestRefused(INVALID_REQUEST, "there is no such session: send initialize again", status=404)
        return session

    def _delete(self, path: str, view: View, headers: Mapping[bytes, bytes], responder: Responder) -> HttpExchange:
        given = headers.get(_SESSION)
        session = None if given is None else self._sessions.find(given.decode("latin-1"), path, view.principal)
        if given is None:
            return _refuse(responder, 405, "Only sessions can be deleted", [(b"allow", b"POST")])
        if session is None:
            return _refuse(responder, 404, "There is no such session")
        self._sessions.end(session)
        responder.finish(200, [], b"")
        return _NOTHING


def _accepts(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the client takes streams of events. Raises `RequestRefused` if it takes no JSON either."""
    accept = headers.get(b"accept", b"*/*").lower()
    anything = b"*/*" in accept
    stream = anything or b"text/event-stream" in accept
    if not (stream or b"application/json" in accept or b"application/*" in accept):
        message = "Accept has to name application/json and text/event-stream"
        raise RequestRefused(INVALID_REQUEST, message, status=http.HTTPStatus.NOT_ACCEPTABLE)
    return stream


def _answered(session: Session, message: ClientMessage) -> None:
    assert message.id is not None
    try:
        if message.result:
            session.answered(message.id, msgspec.json.decode(message.result, type=dict), None)
            return
        error = msgspec.json.decode(message.error, type=dict) if message.error else {}
    except msgspec.DecodeError as problem:
        raise RequestRefused(INVALID_REQUEST, f"no response: {problem}", status=400) from None
    code, text = error.get("code"), error.get("message")
    session.answered(
        message.id, None, Refusal(code if isinstance(code, int) else INVALID_REQUEST, str(text or "no message"))
    )


def _notified(session: Session, message: ClientMessage) -> None:
    if message.method == "notifications/cancelled":
        identifier = member(message.params or {}, "requestId", str | int)  # type: ignore[arg-type]
        request = session.requests.get(identifier) if identifier is not None else None
        # The specification forbids to cancel it.
        if request is not None and request.method != "initialize":
            request.cancel("cancelled by the client")


def _refuse(responder: Responder, status: int, message: str, headers: Headers | None = None) -> HttpExchange:
    responder.finish(status, [*JSON, *(headers or [])], orjson.dumps({"error": {"message": message}}))
    return _NOTHING


def _forget(session: Session, identifier: RequestId) -> None:
    session.requests.pop(identifier, None)
