"""One message on its way to a server: a POST, and what answers it."""

from __future__ import annotations

import contextlib
from http import HTTPStatus
from typing import Any

import httpx2

from gaia.exception_text import exception_text
from gaia.locks import Latch, reentrant_lock
from gaia.log import get_logger
from gaia.mcp.client.protocol.exchange import Send, drive
from gaia.mcp.client.protocol.messages import ErrorResponse, NotAMessage, Response, decode, encode_request
from gaia.mcp.client.protocol.negotiated_protocol import NegotiatedProtocol
from gaia.mcp.client.protocol.request_headers import HEADER_MISMATCH
from gaia.mcp.client.rpc.channel import Frame, Outgoing
from gaia.mcp.client.transports.http import error_responses
from gaia.mcp.client.transports.http.deadlines import Deadlines
from gaia.mcp.client.transports.http.event_stream import EventStream
from gaia.mcp.client.transports.http.http_connection import HttpConnection, Interrupted
from gaia.mcp.client.transports.http.http_session import SESSION_ID, HttpSession, HttpSink, is_stateless
from gaia.mcp.errors import AnswerLost, HttpError, InvalidResponse, MCPError
from gaia.response_limits import ResponseTooLong

__all__ = ["Post"]

logger = get_logger(__name__)

_MAX_REDIRECTS = 3
_MAX_RECONNECTIONS = 3
"""So many times in a row a broken stream is asked for without success before its answer counts as lost."""

_MAX_BACKOFF_SECONDS = 5.0
"""A caller waits for the answer that such a stream is to bring."""

_LISTEN = "subscriptions/listen"
_OWN_ID = "http"
"""The id of a request that this transport makes for itself; those of calls are numbers."""

_MAX_RECONNECT_SECONDS = 2.0
"""Between two attempts to connect to a server that refuses one and is answering other requests, at most."""

_UNAWAITED_SECONDS = 30.0
"""For a notification or an answer to the server. A request has the deadline of its caller."""

_LINGER_SECONDS = 0.5
"""How long the end of a stream is waited for after the answer, so that the connection can be used again."""

_MAX_UNUSED_BYTES = 64 * 1024
"""Of a body that means nothing."""

_NOT_OFFERED = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)


class Post:
    """Runs on a thread of the channel; `interrupt` may be called from any."""

    def __init__(self, session: HttpSession, sink: HttpSink, item: Outgoing, deadlines: Deadlines) -> None:
        self._session = session
        self._sink = sink
        self._item = item
        self._deadlines = deadlines
        # A call that is repeated has another id and frame by then.
        self.id = item.id
        self.method = item.method
        self._frame = item.frame
        self._negotiated: NegotiatedProtocol = session.negotiated
        self._session_id: str | None = None
        """What the message was sent with."""
        self.sent = False
        """Whether the server may have read it, or some of it. Other threads may look."""
        self._refused = False
        """Whether the server refused, by the status of its response, what was sent last: it has not acted on it."""
        self._mismatch: ErrorResponse | None = None
        """The server says that headers and body do not agree."""
        self.answered = False
        """All that is still to come is the end of the stream."""
        self._lock = reentrant_lock()
        """Owns `_connection` and `_interrupted`: a connection is interrupted only while it carries this message."""
        self._connection: HttpConnection | None = None
        self._interrupted = Latch()

    @property
    def is_awaited(self) -> bool:
        """Whether it is a request whose answer should come soon."""
        return self.id is not None and self.method != _LISTEN and not self.answered

    def interrupt(self) -> None:
        """Give up the message: it is not sent if it was not yet, and its answer is not read."""
        with self._lock:
            self._interrupted.open()
            if self._connection is not None:
                self._connection.interrupt()

    def run(self, connection: HttpConnection) -> None:
        """Send the message, and hand over what comes back. Never raises: what goes wrong is told to the channel."""
        with self._lock:
            if self._interrupted.is_open:
                return
            self._connection = connection
        try:
            if self.id is None:
                with self._deadlines.limit(_UNAWAITED_SECONDS, self._expire):
                    self._run_connected(connection)
            else:
                self._run_connected(connection)
        except Interrupted:
            pass
        except MCPError as error:
            # An authorization that says why it cannot give one.
            self._take_back()
            # A subscription that is refused does not end the channel, because calls may be under way.
            if not (self.is_awaited and self._sink.login_required(error)):
                self._fail(error)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
            if not self._interrupted.is_open:
                self._broken(error)
        except Exception as error:  # noqa: BLE001 - a mistake of ours, or of an `Auth`: the caller must hear of it
            logger.error(
                "http_request_failed", server=self._session.name, error=self._session.redact(exception_text(error))
            )
            self._fail(HttpError(f"the request failed: {self._session.redact(exception_text(error))}"))
        finally:
            with self._lock:
                self._connection = None

    def _run_connected(self, connection: HttpConnection) -> None:
        """As `_run`, again and again while there is no connection and the channel goes on nevertheless."""
        wait = 0.1
        while True:
            try:
                self._run(connection)
            except (httpx2.TransportError, OSError) as error:
                if self.sent or self._is_done():
                    raise
                if self._sink.unreachable(error, self):
                    return
                logger.debug("http_connect_failed", server=self._session.name, error=self._session.reason(error))
            else:
                return
            if self._interrupted.wait(wait):
                return
            wait = min(2 * wait, _MAX_RECONNECT_SECONDS)

    def _run(self, connection: HttpConnection) -> None:
        stream = self._post(connection)
        if self._mismatch is not None:
            stream = self._post_corrected(connection, self._mismatch)
        if stream is None or self._is_done() or self.id is None:
            return
        if is_stateless(self._negotiated) or stream.last_id is None:
            raise httpx2.RemoteProtocolError("the stream ended without the answer")
        self._resume(connection, stream)

    def _post(self, connection: HttpConnection) -> EventStream | None:
        """The stream of events that was the response, read to its end; None for all other responses."""
        url = self._session.message_url()
        for _ in range(_MAX_REDIRECTS + 1):
            # After a redirect, again: the session may be known by now.
            headers = self._session.post_headers(self._item, self._negotiated)
            self._session_id = headers.get(SESSION_ID)
            with connection.request(
                "POST", url, headers, self._frame, on_sending=self._begin, on_status=self._note_status
            ) as response:
                target = same_origin_redirect(response)
                if target is None:
                    return self._receive(response)
                # Only a connection whose response is read can be used again.
                response.read()
            url = target
        self._fail(HttpError(f"the server redirects more than {_MAX_REDIRECTS} times"))
        return None

    def _post_corrected(self, connection: HttpConnection, error: ErrorResponse) -> EventStream | None:
        """Learn which headers the server wants by now, and send the message once more (2026-07-28, "Custom Headers").

        The server has refused the message, so sending it again is safe; its id was answered, so it may be used again.
        """
        headers = self._session.request_headers
        before, update = headers.of(self.method, self._item.params), headers.update(self.method)
        if update is not None:
            with contextlib.suppress(InvalidResponse):
                drive(update, lambda step: self._ask(connection, step))
        if headers.of(self.method, self._item.params) != before:
            return self._post(connection)
        self._hand_over(error)
        return None

    def _ask(self, connection: HttpConnection, step: Send) -> dict[str, Any]:
        """The result of a request of this transport's own. Raises `InvalidResponse`, and `httpx2.HTTPError`."""
        params = self._negotiated.add_meta(step.params or {}, None)
        item = Frame(encode_request(_OWN_ID, step.method, params), step.method, params)
        headers = self._session.post_headers(item, self._negotiated)
        limit = self._session.max_message_bytes
        with connection.request("POST", self._session.url, headers, item.frame, on_sending=self._check) as response:
            streamed = content_type(response) == "text/event-stream"
            for data in EventStream(limit).messages(response) if streamed else [response.read()]:
                with contextlib.suppress(NotAMessage):
                    message = decode(data)
                    if isinstance(message, Response) and message.id == _OWN_ID and isinstance(message.result, dict):
                        return message.result
        raise InvalidResponse(f"{step.method} was not answered")

    def _begin(self) -> None:
        with self._lock:
            # Not even asked once it is interrupted: a closed channel promises that.
            if self._interrupted.is_open or not (self.sent or self._item.begin_write()):
                raise Interrupted
            if self.sent and not self._refused:
                raise AnswerLost("the authorization wants to send it again, and the server may have acted on it")
            self.sent, self._refused = True, False

    def _note_status(self, status: int) -> None:
        self._refused = 300 <= status < 500

    def _take_back(self) -> None:
        """The message counts as not sent, if the server has refused all that was sent of it.

        Not after an interruption: the message belongs to another channel then, and may be on its way there.
        """
        with self._lock:
            if self.sent and self._refused and not self._interrupted.is_open:
                self._item.undo_write()

    def _expire(self) -> None:
        """For the thread of the deadlines."""
        if not self._interrupted.is_open:
            self.interrupt()
            reason = f"it was not accepted within {_UNAWAITED_SECONDS:g} s"
            logger.warning("http_message_lost", server=self._session.name, method=self.method, error=reason)

    def _check(self) -> None:
        if self._interrupted.is_open:
            raise Interrupted

    def _is_done(self) -> bool:
        return self._item.ended or self._interrupted.is_open

    # What comes back.

    def _receive(self, response: httpx2.Response) -> EventStream | None:
        if not response.is_success:
            self._receive_refusal(response, response.read())
            return None
        if self.method == "initialize":
            self._session.begin(response.headers.get(SESSION_ID))
        kind = content_type(response)
        if self.id is None or self._session.endpoint is not None:
            if kind != "text/event-stream":
                # Nothing that matters, but a connection whose response is read can be used again.
                read_up_to(response, _MAX_UNUSED_BYTES)
            return None
        if kind == "text/event-stream":
            stream = EventStream(self._session.max_message_bytes)
            self._read(stream, response)
            return stream
        if kind == "application/json" or kind.endswith("+json"):
            self._receive_body(response)
        elif response.status_code in (HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT):
            self._fail(HttpError("the server accepted the request and will not answer it", status=response.status_code))
        else:
            text = error_responses.excerpt(read_up_to(response, _MAX_UNUSED_BYTES), self._session.redact)
            self._fail(HttpError(f"the server answered with {kind or 'no content type'}, which is no MCP{text}"))
        return None

    def _receive_body(self, response: httpx2.Response) -> None:
        limit = self._session.max_message_bytes
        try:
            body = response.read()
        except ResponseTooLong:
            self._fail(InvalidResponse(f"the answer is longer than the {limit} bytes that maxMessageBytes allows"))
            return
        self._sink.message_received(body, self.method, self._item.params)
        if not self._is_done():
            self._fail(InvalidResponse("the body of the response is not the answer to the request"))

    def _read(self, stream: EventStream, response: httpx2.Response) -> None:
        """Hand over the messages of a stream, until its end or until the message is given up."""
        try:
            with contextlib.ExitStack() as lingering:
                for data in stream.messages(response):
                    self._sink.message_received(data, self.method, self._item.params)
                    if self._item.ended and not self.answered:
                        # It ends right after the answer. Read to its end, the connection can be used again.
                        self.answered = True
                        self._sink.answered()
                        lingering.enter_context(self._deadlines.limit(_LINGER_SECONDS, self.interrupt))
        except httpx2.SSEError as error:
            self._fail(InvalidResponse(f"a message on the stream cannot be read: {self._session.reason(error)}"))
        except httpx2.TransportError:
            # Perhaps it can be continued.
            if stream.last_id is None or is_stateless(self._negotiated):
                raise

    def _resume(self, connection: HttpConnection, stream: EventStream) -> None:
        """Ask for the rest of a stream that ended early (2025-11-25, "Resumability and Redelivery")."""
        failed = 0
        while not self._is_done() and not self._interrupted.wait(stream.pause(_MAX_BACKOFF_SECONDS)):
            headers = self._session.stream_headers(stream.last_id)
            try:
                with connection.request("GET", self._session.url, headers, on_sending=self._check) as response:
                    if error_responses.is_forgotten(response, self._session_id):
                        self._sink.session_forgotten()
                        break
                    if not response.is_success or content_type(response) != "text/event-stream":
                        raise httpx2.RemoteProtocolError(f"resuming was answered with {response.status_code}")
                    self._read(stream, response)
                    failed = 0
            except httpx2.TransportError as error:
                failed += 1
                refused = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                if refused and self._sink.unreachable(error, self):
                    return
                if failed >= _MAX_RECONNECTIONS:
                    self._broken(error)
                    return
        if not self._is_done():
            self._fail(AnswerLost("the session ended before the answer", delivery="unknown"))

    # What goes wrong.

    def _receive_refusal(self, response: httpx2.Response, body: bytes) -> None:
        session, status = self._session, response.status_code
        error = error_responses.error_in(body)
        if error_responses.is_forgotten(response, self._session_id, error):
            # It did not look at the message: that goes to the next session.
            self._take_back()
            self._sink.session_forgotten()
        elif self.method == "initialize" and status in _NOT_OFFERED and error is None:
            if not self._sink.fall_back(self._item):
                self._fail(error_responses.refusal(response, body, session.name, session.redact))
        elif error is not None and self.id is not None:
            if self._mismatch is None and error_responses.code_of(error) == HEADER_MISMATCH:
                self._mismatch = error
            else:
                self._hand_over(error)
        else:
            if status == HTTPStatus.UNAUTHORIZED:
                self._take_back()
            self._fail(error_responses.refusal(response, body, session.name, session.redact))

    def _hand_over(self, error: ErrorResponse) -> None:
        assert self.id is not None, "only requests are answered"
        self._sink.message_received(error_responses.with_id(error, self.id), self.method)

    def _broken(self, error: Exception) -> None:
        if not self.sent:
            if not self._sink.unreachable(error):
                self._fail(HttpError(f"the request cannot be sent: {self._session.reason(error)}"))
        elif isinstance(error, httpx2.LocalProtocolError):
            # httpx2 has not written anything.
            self._refused = True
            self._take_back()
            self._fail(HttpError(f"the request cannot be sent: {self._session.reason(error)}"))
        else:
            self._fail(AnswerLost(f"the connection broke before the answer: {self._session.reason(error)}"))

    def _fail(self, error: MCPError) -> None:
        error.message = self._session.redact(error.message)
        if self.id is not None:
            self._sink.request_failed(self.id, error)
        elif not self._interrupted.is_open:
            logger.warning("http_message_lost", server=self._session.name, method=self.method, error=error.message)


def read_up_to(response: httpx2.Response, limit: int) -> bytes:
    """The body, or `limit` bytes of it and perhaps some more."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) >= limit:
            break
    return bytes(body)


def content_type(response: httpx2.Response) -> str:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


def same_origin_redirect(response: httpx2.Response) -> httpx2.URL | None:
    """Where a message has to be sent instead, if that is the same server and the message stays what it is."""
    keeps_method = response.status_code in (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)
    target = response.next_request.url if keeps_method and response.next_request is not None else None
    return None if target is None or target.origin != response.request.url.origin else target
