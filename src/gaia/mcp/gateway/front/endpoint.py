"""`Endpoint`: Streamable HTTP of both eras, independent of the HTTP server (specification, "Streamable HTTP").

The HTTP server passes a complete request, and a `Responder` for the response. An ordinary call needs no task, because
its result comes by a callback.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from gaia.mcp.gateway.access.access import Access
from gaia.mcp.gateway.access.checks import RETRY_SECONDS, Checks, LargerThanShare, OverShare
from gaia.mcp.gateway.access.principal import ANONYMOUS, Pending, Principal
from gaia.mcp.gateway.clients.metadata import check_metadata, is_stateless
from gaia.mcp.gateway.clients.pending_request import PendingRequest
from gaia.mcp.gateway.clients.sessions import Session, Sessions
from gaia.mcp.gateway.front.http_reply import HttpReply, HttpStream, KeepAlive
from gaia.mcp.gateway.messages import ClientMessage, RequestRefused, decode_message, encode_error, member
from gaia.mcp.gateway.methods.dispatch import dispatch, require_unused, take_message
from gaia.mcp.gateway.methods.opening import handshake_of
from gaia.mcp.gateway.methods.subscriptions import resume
from gaia.mcp.gateway.operations.pages import HEALTH, READY, OperationPages
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.gateway_answers import GENERATION, NOT_SENT
from gaia.mcp.protocol.messages import INVALID_REQUEST
from gaia.mcp.protocol.remote_deadlines import GatewayClock
from gaia.serving.guards import Refused
from gaia.serving.options import DEFAULT_MAX_BODY
from gaia.serving.responses import JSON, HttpRequest, Responder, refuse

PATH = "/mcp"

_SESSION = b"mcp-session-id"
_LAST_EVENT = b"last-event-id"
_GENERATION = GENERATION.lower().encode()
_MAX_DIGITS = 18

_RETRY = ((b"retry-after", str(RETRY_SECONDS).encode()),)

ViewAt = Callable[[str, Principal | None], View | None]


class Endpoint:
    """Belongs to the gateway's event loop."""

    def __init__(
        self, view_at: ViewAt, sessions: Sessions, keep_alive: KeepAlive, pages: OperationPages, checks: Checks
    ) -> None:
        self._view_at = view_at
        self._sessions = sessions
        self._keep_alive = keep_alive
        self._pages = pages
        self._refusals = checks.refusals
        self._shares = checks.shares
        self.clock = GatewayClock()
        self.access: Access | None = None
        """Finds the client of a request; None if every request may do everything."""

    def takes(self, path: str) -> bool:
        # Responses keep the order of the requests, so even a probe may share a connection with calls.
        return path.startswith("/")

    def is_probe(self, path: str) -> bool:
        return path in (HEALTH, READY)

    def refusal(self, head: HttpRequest, held: list[Callable[[], None]]) -> Refused | None:
        """See `RequestHandler.refusal`."""
        access = self.access
        if self._pages.has(head.path) or (access is not None and access.metadata(head.path) is not None):
            return Refused(413, "Nothing is expected in the body")
        found = None if access is None else access.authenticate(head.headers, head.path)
        if isinstance(found, Refused):
            self._note(found, head)
            return found
        # Clients with unverified tokens share one bound.
        client = "" if isinstance(found, Pending) else (found or ANONYMOUS).name
        declared = head.headers.get(b"content-length", b"")
        size = int(declared) if declared.isdigit() else DEFAULT_MAX_BODY
        try:
            held.append(self._shares.take_body(client, size, head.address))
        except LargerThanShare as over:
            return Refused(413, str(over))
        except OverShare as over:
            return Refused(429, str(over), _RETRY)
        return None

    def handle(self, request: HttpRequest, responder: Responder, judged: Principal | Refused | None = None) -> None:
        """Answer one HTTP request, now or later. `judged` is the result if the token was verified later.

        If the client closes the connection first, its request is cancelled. The handshake era does not require that,
        but no answer could reach the client.
        """
        path, access = request.path, self.access
        is_page = self._pages.has(path)
        if is_page and self._pages.are_open(request):
            self._pages.answer(request, responder, None)
            return
        found: Principal | Refused | Pending | None = judged
        if access is not None and found is None:
            if (document := access.metadata(path)) is not None:
                responder.finish(200, JSON, document)
                return
            found = access.authenticate(request.headers, path)
        if isinstance(found, Pending):
            found.then(lambda client: None if responder.is_over else self.handle(request, responder, client))
            return
        if isinstance(found, Refused):
            self._note(found, request)
            refuse(responder, found)
            return
        if is_page:
            self._pages.answer(request, responder, found)
            return
        try:
            self._check_share(request, responder, found)
            view = self._view_at(path, found)
            if view is None:
                refuse(responder, Refused(404, f"There is nothing at {path}"))
            elif request.method == "POST":
                self._post(request, responder, view, found)
            elif request.method in ("GET", "DELETE"):
                self._of_session(request, responder, view, found)
            else:
                refuse(responder, Refused(405, "Use POST", ((b"allow", b"GET, POST, DELETE"),)))
        except OverShare as over:
            refuse(responder, Refused(429, str(over), _RETRY))

    def _note(self, refused: Refused, request: HttpRequest) -> None:
        if refused.reason is not None:
            self._refusals.note(refused.reason, refused.message, f"{request.method} {request.path}", request.address)

    def _check_share(self, request: HttpRequest, responder: Responder, client: Principal | None) -> None:
        name = (client or ANONYMOUS).name
        # Without access control, all clients count as one.
        most = sys.maxsize if client is None else self._shares.settings.connections_per_client
        if (count := responder.identify(name, most)) is not None:
            raise self._shares.over(name, f"{count} connections", "connectionsPerClient", request.address)
        if unread := responder.unread:
            self._shares.check_unread(name, unread, request.address)

    def _post(self, http: HttpRequest, responder: Responder, view: View, owner: Principal | None) -> None:
        message: ClientMessage | None = None
        try:
            accepts_messages = _accepts(http.headers)
            message = decode_message(http.body)
            params = message.params or {}
            meta: dict[str, Any] = member(params, "_meta", dict) or {}
            session: Session | None = None
            # `HttpReply` sends these with the answer. `_end_unopened` empties them if `initialize` fails.
            headers: list[tuple[bytes, bytes]] = []
            if is_stateless(http.headers, meta):
                if message.method is None:
                    raise RequestRefused(INVALID_REQUEST, "clients of this revision send no responses", status=400)
                check_metadata(http.headers, message.method, params, meta, is_request=message.id is not None)
            elif message.method == "initialize":
                session = self._open_session(http, message, view, owner)
                headers.append((_SESSION, session.id.encode()))
            else:
                session = self._session(http, view, owner)
            if message.id is None or message.method is None:
                if session is not None:
                    take_message(session, message)
                responder.finish(202, [], b"")
                return
            if session is not None:
                require_unused(message, session.requests)
            is_stream = session is None and message.method == "subscriptions/listen"
            release = self._shares.take_stream((owner or ANONYMOUS).name, http.address) if is_stream else None
            reply = HttpReply(responder, self._keep_alive, self.clock, headers, accepts_messages=accepts_messages)
            request = PendingRequest(
                message.id, message.method, params, meta, reply, view, session, owner, http.address
            )
            request.deadline = self.clock.deadline(http.headers, time.monotonic())
            request.generation = _generation(http.headers)
            responder.on_gone = request.client_gone
            if release is not None:
                request.after_end(release)
            if session is None:
                request.headers = http.headers
            elif headers:
                request.after_end(functools.partial(self._end_unopened, session, headers))
            dispatch(request)
        except RequestRefused as refused:
            identifier = None if message is None else message.id
            refusal = encode_error(identifier, refused.code, refused.message, refused.data)
            responder.finish(refused.status, JSON, refusal)

    def _end_unopened(self, session: Session, headers: list[tuple[bytes, bytes]]) -> None:
        """End the session if `initialize` failed or the client has gone, because no client knows its id."""
        if not session.is_open:
            headers.clear()
            self._sessions.end(session)

    def _open_session(self, http: HttpRequest, message: ClientMessage, view: View, owner: Principal | None) -> Session:
        if message.id is None or _SESSION in http.headers:
            raise RequestRefused(INVALID_REQUEST, "initialize opens a session, and is a request", status=400)
        session = self._sessions.open(view, owner, handshake_of(message.params or {}))
        if session is None:
            raise RequestRefused(NOT_SENT, "the gateway takes no further sessions now", status=503)
        return session

    def _session(self, http: HttpRequest, view: View, owner: Principal | None) -> Session:
        if _SESSION not in http.headers:
            raise RequestRefused(INVALID_REQUEST, "Mcp-Session-Id is missing: send initialize first", status=400)
        session = self._find_session(http, view, owner)
        if session is None:
            raise RequestRefused(INVALID_REQUEST, "there is no such session: send initialize again", status=404)
        return session

    def _find_session(self, http: HttpRequest, view: View, owner: Principal | None) -> Session | None:
        identifier = http.headers[_SESSION].decode("latin-1")
        session = self._sessions.find(identifier, view, owner)
        if session is None:
            is_foreign = self._sessions.belongs_to_another(identifier, owner)
            reason = "foreign_session" if is_foreign else "unknown_session"
            client = None if owner is None else owner.name
            self._refusals.note(reason, "There is no such session", http.method, http.address, client)
        return session

    def _of_session(self, http: HttpRequest, responder: Responder, view: View, owner: Principal | None) -> None:
        """Answer GET, which opens a stream of a session, and DELETE, which ends the session."""
        if _SESSION not in http.headers:
            message = f"Without a session there is no {http.method}; use POST"
            refuse(responder, Refused(405, message, ((b"allow", b"POST"),)))
            return
        try:
            session = self._find_session(http, view, owner)
        except RequestRefused as refused:
            refuse(responder, Refused(refused.status, refused.message, _RETRY))
            return
        if session is None:
            refuse(responder, Refused(404, "There is no such session"))
        elif http.method == "DELETE":
            self._sessions.delete(session)
            responder.finish(200, [], b"")
        elif not _takes(http.headers, b"text/event-stream"):
            refuse(responder, Refused(406, "Accept has to name text/event-stream"))
        else:
            release = self._shares.take_stream((owner or ANONYMOUS).name, http.address)
            stream = HttpStream(responder, self._keep_alive, owner)
            responder.on_gone = stream.forget

            def over() -> None:
                release()
                session.close_stream(stream)

            stream.on_over = over
            if not session.open_stream(stream):
                stream.end()
            elif (event_id := http.headers.get(_LAST_EVENT)) is not None:
                resume(session, event_id.decode("latin-1"))


def _generation(headers: Mapping[bytes, bytes]) -> int | None:
    """The process for which a request is. Raises `RequestRefused`, because no other process may get it."""
    number = headers.get(_GENERATION)
    if number is None:
        return None
    if not (number.isdigit() and len(number) <= _MAX_DIGITS):
        raise RequestRefused(INVALID_REQUEST, f"{GENERATION} has to be a whole number", status=400)
    return int(number)


def _takes(headers: Mapping[bytes, bytes], media_type: bytes) -> bool:
    accept = headers.get(b"accept", b"*/*").lower()
    return media_type in accept or b"*/*" in accept or media_type.partition(b"/")[0] + b"/*" in accept


def _accepts(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the client accepts event streams. Raises `RequestRefused` if it accepts no JSON either."""
    stream = _takes(headers, b"text/event-stream")
    if not stream and not _takes(headers, b"application/json"):
        message = "Accept has to name application/json and text/event-stream"
        raise RequestRefused(INVALID_REQUEST, message, status=406)
    return stream
