"""`Endpoint`: Streamable HTTP of both eras, independent of the HTTP server (specification, "Streamable HTTP").

A request is given as a whole, and its response goes to a `Responder`. An ordinary call needs no task: its result comes
by a callback.
"""

from __future__ import annotations

import http
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from gaia.mcp.gateway.access.access import Access
from gaia.mcp.gateway.access.checks import RETRY_SECONDS, Checks, LargerThanShare, OverShare
from gaia.mcp.gateway.access.principal import ANONYMOUS, Pending, Principal, Reason, Refused
from gaia.mcp.gateway.clients.metadata import check_metadata, is_stateless
from gaia.mcp.gateway.clients.pending_request import PendingRequest
from gaia.mcp.gateway.clients.sessions import Session, Sessions
from gaia.mcp.gateway.front.http_reply import HttpReply, HttpStream, KeepAlive
from gaia.mcp.gateway.messages import ClientMessage, RequestRefused, decode_message, encode_error, member
from gaia.mcp.gateway.methods.dispatch import begin_request, dispatch, require_unused, take_message
from gaia.mcp.gateway.operations.pages import HEALTH, READY, OperationPages
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.gateway_answers import NOT_SENT
from gaia.mcp.protocol.messages import INVALID_REQUEST
from gaia.serving.direct_handler import JSON, Responder
from gaia.serving.guards import Headers
from gaia.serving.guards import Refused as NotServed
from gaia.serving.options import DEFAULT_MAX_BODY

PATH = "/mcp"

_SESSION = b"mcp-session-id"

_RETRY = ((b"retry-after", str(RETRY_SECONDS).encode()),)

ViewAt = Callable[[str, Principal | None], View | None]
"""The view at a path, for a principal; None if there is none."""


class HttpExchange:
    """What has become of one HTTP request."""

    __slots__ = ("_on_gone", "is_gone")

    def __init__(self, on_gone: Callable[[], None] | None = None) -> None:
        self._on_gone = on_gone
        self.is_gone = False
        """Whether the client has closed the connection."""

    def follow(self, other: HttpExchange) -> None:
        """Go on as `other`: it is told when the client closes the connection."""
        self._on_gone = other.client_gone

    def client_gone(self) -> None:
        """The client has closed the connection before the end of the response.

        In the stateless era this cancels the request. In the handshake era it says nothing, but nothing could take the
        answer to the client any more, so the request is cancelled too.
        """
        self.is_gone = True
        if self._on_gone is not None:
            self._on_gone()


_NOTHING = HttpExchange()


class _HttpRequest(NamedTuple):
    """One HTTP request as a whole."""

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    """Names in lower case."""
    body: bytes
    responder: Responder
    address: str | None


class _Post(NamedTuple):
    """What is known of a POST before its body is looked at."""

    headers: Mapping[bytes, bytes]
    responder: Responder
    address: str | None
    view: View
    owner: Principal | None
    """The client."""


class Endpoint:
    """Belongs to the gateway's event loop."""

    def __init__(
        self,
        view_at: ViewAt,
        sessions: Sessions,
        keep_alive: KeepAlive,
        pages: OperationPages,
        checks: Checks | None = None,
    ) -> None:
        self._view_at = view_at
        self._sessions = sessions
        self._keep_alive = keep_alive
        self._pages = pages
        checks = checks or Checks()
        self._refusals = checks.refusals
        self._shares = checks.shares
        self.access: Access | None = None
        """Says which client a request comes from; without it each request may do everything."""

    def takes(self, path: str) -> bool:
        """Whether there may be something at this path, for a server that asks before it hands a request over."""
        # Its answers come in the order of the requests, so even a probe may share a connection with calls.
        return path.startswith("/")

    def is_probe(self, path: str) -> bool:
        """Whether this path is to be answered also when there are too many connections."""
        return path in (HEALTH, READY)

    def refusal(
        self,
        method: str,
        path: str,
        headers: Mapping[bytes, bytes],
        address: str | None = None,
        held: list[Callable[[], None]] | None = None,
    ) -> NotServed | None:
        """Why a request with these headers and a large body is refused; None if that is not known yet.

        The function that is added to `held` has to be called once the request is over.
        """
        access = self.access
        if self._pages.has(path) or (access is not None and access.metadata(path) is not None):
            return NotServed(413, "Nothing is expected in the body")
        found = None if access is None else access.authenticate(headers, path)
        if isinstance(found, Refused):
            self._note(found, method, path, address)
            return NotServed(found.status, found.message, tuple(found.headers))
        # Clients whose tokens are not judged yet have one share together.
        client = "" if isinstance(found, Pending) else (found or ANONYMOUS).name
        declared = headers.get(b"content-length", b"")
        try:
            release = self._shares.take_body(client, int(declared) if declared.isdigit() else DEFAULT_MAX_BODY, address)
        except LargerThanShare as over:
            return NotServed(413, str(over))
        except OverShare as over:
            return NotServed(429, str(over), _RETRY)
        if held is not None:
            held.append(release)
        return None

    def handle(
        self,
        method: str,
        path: str,
        headers: Mapping[bytes, bytes],
        body: bytes,
        responder: Responder,
        address: str | None = None,
    ) -> HttpExchange:
        """Answer one HTTP request, now or later. Names of `headers` are in lower case; `address` is the client's IP."""
        request = _HttpRequest(method, path, headers, body, responder, address)
        if self._pages.has(path):
            self._pages.answer(method, path, headers, responder, address)
            return _NOTHING
        access = self.access
        if access is None:
            return self._answer(request, None)
        if (document := access.metadata(path)) is not None:
            responder.finish(200, JSON, document)
            return _NOTHING
        found = access.authenticate(headers, path)
        if not isinstance(found, Pending):
            return self._answer_client(request, found)
        exchange = HttpExchange()

        def known(client: Principal | Refused) -> None:
            if not exchange.is_gone:
                exchange.follow(self._answer_client(request, client))

        found.then(known)
        return exchange

    def _answer_client(self, request: _HttpRequest, client: Principal | Refused) -> HttpExchange:
        if isinstance(client, Principal):
            return self._answer(request, client)
        self._note(client, request.method, request.path, request.address)
        return _refuse(request.responder, client.status, client.message, client.headers)

    def _note(self, refused: Refused, method: str, path: str, address: str | None) -> None:
        if refused.reason is not None:
            self._refusals.note(refused.reason, refused.message, f"{method} {path}", address)

    def _answer(self, request: _HttpRequest, client: Principal | None) -> HttpExchange:
        try:
            self._check_share(request, client)
            return self._dispatch(request, client)
        except OverShare as over:
            return _refuse(request.responder, 429, str(over), _RETRY)

    def _check_share(self, request: _HttpRequest, client: Principal | None) -> None:
        """Raise `OverShare` for a client that has as many connections, or as much to read, as it may have."""
        name, responder = (client or ANONYMOUS).name, request.responder
        # Without access control, all clients are one.
        most = sys.maxsize if client is None else self._shares.settings.connections_per_client
        if (count := responder.identify(name, most)) is not None:
            raise self._shares.over(name, f"{count} connections", "connectionsPerClient", request.address)
        if unread := responder.unread:
            self._shares.check_unread(name, unread, request.address)

    def _dispatch(self, request: _HttpRequest, client: Principal | None) -> HttpExchange:
        view = self._view_at(request.path, client)
        if view is None:
            return _refuse(request.responder, 404, f"There is nothing at {request.path}")
        if request.method == "POST":
            post = _Post(request.headers, request.responder, request.address, view, client)
            return self._post(post, request.body)
        if request.method in ("GET", "DELETE"):
            return self._of_session(request, view, client)
        return _refuse(request.responder, 405, "Use POST", [(b"allow", b"GET, POST, DELETE")])

    def _post(self, post: _Post, body: bytes) -> HttpExchange:
        message: ClientMessage | None = None
        try:
            accepts_messages = _accepts(post.headers)
            message = decode_message(body)
            meta: dict[str, Any] = member(message.params or {}, "_meta", dict) or {}
            if is_stateless(post.headers, meta):
                return self._post_stateless(post, message, meta, accepts_messages=accepts_messages)
            return self._post_in_session(post, message, meta, accepts_messages=accepts_messages)
        except RequestRefused as refused:
            identifier = None if message is None else message.id
            refusal = encode_error(identifier, refused.code, refused.message, refused.data)
            post.responder.finish(refused.status, JSON, refusal)
            return _NOTHING

    def _post_stateless(
        self, post: _Post, message: ClientMessage, meta: Mapping[str, Any], *, accepts_messages: bool
    ) -> HttpExchange:
        params = message.params or {}
        if message.method is None:
            raise RequestRefused(INVALID_REQUEST, "clients of this revision send no responses", status=400)
        check_metadata(post.headers, message.method, params, meta, is_request=message.id is not None)
        if message.id is None:
            post.responder.finish(202, [], b"")
            return _NOTHING
        release = self._take_stream(post.owner, post.address) if message.method == "subscriptions/listen" else None
        reply = HttpReply(post.responder, self._keep_alive, [], accepts_messages=accepts_messages)
        request = PendingRequest(
            message.id, message.method, params, meta, reply, post.view, None, post.owner, post.address
        )
        request.headers = post.headers
        if release is not None:
            request.after_end(release)
        dispatch(request)
        return _exchange(request)

    def _post_in_session(
        self, post: _Post, message: ClientMessage, meta: Mapping[str, Any], *, accepts_messages: bool
    ) -> HttpExchange:
        headers: list[tuple[bytes, bytes]] = []
        if message.method == "initialize":
            session = self._open_session(post, message)
            headers.append((_SESSION, session.id.encode()))
        else:
            session = self._session(post)
        if message.id is None or message.method is None:
            take_message(session, message)
            post.responder.finish(202, [], b"")
            return _NOTHING
        require_unused(session, message)
        reply = HttpReply(post.responder, self._keep_alive, headers, accepts_messages=accepts_messages)
        request = begin_request(
            session, message, meta, reply, post.address, lambda: self._end_unopened(session, headers)
        )
        return _exchange(request)

    def _end_unopened(self, session: Session, headers: list[tuple[bytes, bytes]]) -> None:
        """The `initialize` has failed, or its client has gone: no client knows of the session."""
        headers.clear()
        self._sessions.end(session)

    def _open_session(self, post: _Post, message: ClientMessage) -> Session:
        if message.id is None or _SESSION in post.headers:
            raise RequestRefused(INVALID_REQUEST, "initialize opens a session, and is a request", status=400)
        session = self._sessions.open(post.view, post.owner)
        if session is None:
            raise RequestRefused(NOT_SENT, "the gateway takes no further sessions now", status=503)
        return session

    def _session(self, post: _Post) -> Session:
        given = post.headers.get(_SESSION)
        if given is None:
            raise RequestRefused(INVALID_REQUEST, "Mcp-Session-Id is missing: send initialize first", status=400)
        session = self._find_session(given, post.view, post.owner, "POST", post.address)
        if session is None:
            raise RequestRefused(INVALID_REQUEST, "there is no such session: send initialize again", status=404)
        return session

    def _find_session(
        self, given: bytes, view: View, owner: Principal | None, method: str, address: str | None
    ) -> Session | None:
        identifier = given.decode("latin-1")
        session = self._sessions.find(identifier, view, owner)
        if session is None:
            is_foreign = self._sessions.belongs_to_another(identifier, owner)
            client = None if owner is None else owner.name
            reason: Reason = "foreign_session" if is_foreign else "unknown_session"
            self._refusals.note(reason, "There is no such session", method, address, client)
        return session

    def _take_stream(self, client: Principal | None, address: str | None) -> Callable[[], None]:
        return self._shares.take_stream((client or ANONYMOUS).name, address)

    def _of_session(self, request: _HttpRequest, view: View, owner: Principal | None) -> HttpExchange:
        """GET opens the stream of a session, and DELETE ends the session."""
        method, headers, responder = request.method, request.headers, request.responder
        given = headers.get(_SESSION)
        if given is None:
            return _refuse(responder, 405, f"Without a session there is no {method}; use POST", [(b"allow", b"POST")])
        session = self._find_session(given, view, owner, method, request.address)
        if session is None:
            return _refuse(responder, 404, "There is no such session")
        if method == "DELETE":
            self._sessions.end(session)
            responder.finish(200, [], b"")
            return _NOTHING
        if not _takes(headers, b"text/event-stream"):
            return _refuse(responder, 406, "Accept has to name text/event-stream")
        release = self._take_stream(owner, request.address)
        stream = HttpStream(responder, self._keep_alive, owner)

        def over() -> None:
            release()
            session.close_stream(stream)

        stream.on_over = over
        if not session.open_stream(stream):
            stream.end()
        return HttpExchange(stream.forget)


def _exchange(request: PendingRequest) -> HttpExchange:
    return HttpExchange(lambda: request.cancel("the client has closed the connection", is_gone=True))


def _takes(headers: Mapping[bytes, bytes], media_type: bytes) -> bool:
    accept = headers.get(b"accept", b"*/*").lower()
    return media_type in accept or b"*/*" in accept or media_type.partition(b"/")[0] + b"/*" in accept


def _accepts(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the client takes streams of events. Raises `RequestRefused` if it takes no JSON either."""
    stream = _takes(headers, b"text/event-stream")
    if not stream and not _takes(headers, b"application/json"):
        message = "Accept has to name application/json and text/event-stream"
        raise RequestRefused(INVALID_REQUEST, message, status=http.HTTPStatus.NOT_ACCEPTABLE)
    return stream


def _refuse(responder: Responder, status: int, message: str, headers: Headers | None = None) -> HttpExchange:
    responder.finish(status, [*JSON, *(headers or [])], orjson.dumps({"error": {"message": message}}))
    return _NOTHING
