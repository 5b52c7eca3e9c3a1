"""`LineClient`: a client that sends messages line by line, as over stdio, in either era (specification, "stdio")."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gaia.mcp.gateway.clients.metadata import check_stateless, is_stateless
from gaia.mcp.gateway.clients.pending_request import PendingRequest
from gaia.mcp.gateway.clients.sessions import Session, Sessions
from gaia.mcp.gateway.messages import ClientMessage, RequestRefused, decode_message, encode_error, member
from gaia.mcp.gateway.methods.dispatch import dispatch, require_unused, take_cancellation, take_message
from gaia.mcp.gateway.methods.opening import handshake_of
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.messages import INVALID_REQUEST, RequestId

Write = Callable[[bytes], None]
"""Sends a message without its line end. Never waits."""


class _LineReply:
    """See `Reply`. Also the `MessageStream` of the session."""

    accepts_messages = True
    unread = 0
    """There is only one client, so it shares no limit."""

    def __init__(self, write: Write) -> None:
        self.send = write

    def answer(self, message: bytes, _status: int) -> None:
        self.send(message)

    def abandon(self) -> None:
        """Does nothing: a cancelled request has no answer."""

    def forget(self) -> None:
        """Does nothing: all requests share the connection."""

    def note(self, event_id: str) -> None:
        """Does nothing: the client cannot go on at another gateway."""

    def end(self) -> None:
        """Does nothing: the stream ends with the connection."""


class LineClient:
    """Belongs to the gateway's event loop."""

    def __init__(self, view: View, sessions: Sessions, write: Write) -> None:
        self._view = view
        self._sessions = sessions
        self._reply = _LineReply(write)
        self._session: Session | None = None
        """The session of a client of the handshake era, from `initialize` on."""
        self._requests: dict[RequestId, PendingRequest] = {}

    @property
    def is_idle(self) -> bool:
        return not self._requests and (self._session is None or not self._session.requests)

    def received(self, line: bytes) -> None:
        message: ClientMessage | None = None
        try:
            message = decode_message(line)
            meta: dict[str, Any] = member(message.params or {}, "_meta", dict) or {}
            if is_stateless({}, meta):
                self._stateless(message, meta)
            elif message.method == "notifications/cancelled" and self._session is None:
                take_cancellation(message, self._requests)
            else:
                self._in_session(message, meta)
        except RequestRefused as refused:
            if message is None or message.id is not None:
                identifier = None if message is None else message.id
                self._reply.send(encode_error(identifier, refused.code, refused.message, refused.data))

    def end(self) -> None:
        self._end_session()
        for request in list(self._requests.values()):
            request.cancel("the client has gone", is_gone=True)

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._sessions.end(session)

    def _stateless(self, message: ClientMessage, meta: Mapping[str, Any]) -> None:
        if message.id is None or message.method is None:
            take_cancellation(message, self._requests)
            return
        check_stateless(meta)
        require_unused(message, self._requests)
        request = PendingRequest(
            message.id, message.method, message.params or {}, meta, self._reply, self._view, session=None
        )
        self._requests[message.id] = request
        request.after_end(functools.partial(self._requests.pop, message.id, None))
        dispatch(request)

    def _in_session(self, message: ClientMessage, meta: Mapping[str, Any]) -> None:
        session = self._session
        if session is None:
            if message.method != "initialize" or message.id is None:
                raise RequestRefused(INVALID_REQUEST, "the first request has to be initialize, or server/discover")
            session = self._session = self._sessions.open(self._view, None, handshake_of(message.params or {}))
            if session is None:
                raise RequestRefused(INVALID_REQUEST, "the gateway takes no further sessions now")
            session.lasts = True
        elif message.method == "initialize":
            raise RequestRefused(INVALID_REQUEST, "the session is initialized already")
        if message.id is None or message.method is None:
            take_message(session, message)
            if message.method == "notifications/initialized":
                session.open_stream(self._reply)
            return
        require_unused(message, session.requests)
        request = PendingRequest(
            message.id, message.method, message.params or {}, meta, self._reply, self._view, session
        )
        if message.method == "initialize":
            request.after_end(lambda: None if session.is_open else self._end_session())
        dispatch(request)
