"""`Post`: one message to a server over HTTP, and the responses to it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any

from gaia.http.connection import HttpConnection
from gaia.http.errors import ConnectFailed, HttpClientError, Interrupted, ProtocolBroken, TimedOut, TooLong, is_own
from gaia.http.io_thread import Task
from gaia.http.response import Response
from gaia.http.url import Url
from gaia.http.waits import IoThreadOnly, Sleep, Turn
from gaia.mcp.errors import AnswerLost, HttpError, InvalidResponse, MCPError
from gaia.mcp.protocol.exchange import NegotiatedProtocol, Send
from gaia.mcp.protocol.messages import ErrorResponse, NotAMessage, decode, encode_request
from gaia.mcp.protocol.messages import Response as Answer
from gaia.mcp.protocol.request_headers import HEADER_MISMATCH
from gaia.mcp.rpc.channel import Frame, Outgoing
from gaia.mcp.transports.http import error_responses
from gaia.mcp.transports.http.event_stream import EventStream, InvalidEvents, content_type
from gaia.mcp.transports.http.http_session import SESSION_ID, Exchanges, is_stateless
from gaia.runtime.log import exception_text, get_logger
from gaia.runtime.redaction import Redactor, secret_headers

logger = get_logger(__name__)

_MAX_REDIRECTS = 3
_MAX_RECONNECTIONS = 3

_MAX_BACKOFF_SECONDS = 5.0

_LISTEN = "subscriptions/listen"
_OWN_ID = "http"
"""The id of a request that this transport makes for itself; calls have numbers."""

_RECONNECT_SECONDS = 0.1
_MAX_RECONNECT_SECONDS = 2.0
"""Between attempts to connect to a server that refuses it and is answering other requests: at first, and at most."""

_UNAWAITED_SECONDS = 30.0

_LINGER_SECONDS = 0.5
"""How long to wait for the end of a stream after the answer, so that the connection can be used again."""

_MAX_UNUSED_BYTES = 64 * 1024

_OPENING = frozenset({"initialize", "server/discover"})

_OK = 200
"""Reading a member of `HTTPStatus` takes as long as a call of a function, and each call would do it."""

_NOT_OFFERED = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_KEEPS_METHOD = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)


Then = Callable[[HttpConnection], Awaitable[None]]


class Post:
    """`exchange` sends the message, and hands over the messages that come back.

    A caller's thread may drive it, as far as it only waits for the answer: connecting, pauses, and the end of a stream
    are left to the I/O thread. It does not raise: failures go to the channel. (A signal handler may still raise in this
    thread.) `interrupt` is for any thread.
    """

    sent = False
    """Whether the server may have read some of it. Other threads may read this."""
    answered = False
    """Whether only the end of the stream is still to come."""
    delivering = False
    """Whether a message is being handed over, which may end the request in this thread."""
    in_callers_thread = False
    _session_id: str | None = None
    _refused = False
    """Whether the server has refused the last sending by the status of its response: it has not acted on it."""
    _corrected = False
    """Whether the headers were computed anew, once, after the server said that they differ from the body."""
    _deadline: float | None = None
    # The lock of the channel owns these three: a connection is interrupted only while it carries this message.
    _connection: HttpConnection | None = None
    _task: Task | None = None
    _interrupted = False

    def __init__(self, channel: Exchanges, item: Outgoing) -> None:
        self._channel = channel
        self._session = channel.session
        self._item = item
        # A repeated call has another id and frame by then.
        self.id = item.id
        self.method = item.method
        self._frame = item.frame
        self._negotiated: NegotiatedProtocol = channel.session.negotiated

    @property
    def is_awaited(self) -> bool:
        return self.id is not None and self.method != _LISTEN and not self.answered

    def interrupt(self) -> None:
        """Give up the message: it is not sent if it was not yet, and its answer is not read."""
        with self._channel.lock:
            self._interrupted = True
            if self._task is not None:
                self._task.interrupt()
            elif self._connection is not None:
                self._connection.interrupt()

    def attach(self, task: Task) -> None:
        with self._channel.lock:
            self._task = task
            if self._interrupted:
                task.interrupt()

    async def exchange(self, connection: HttpConnection) -> None:
        if self.id is None:
            self._deadline = time.monotonic() + _UNAWAITED_SECONDS
        try:
            with self._channel.lock:
                self._check()
                self._connection = connection
            try:
                await self._post(connection)
            except OSError as error:
                await self._try_again(error, connection)
        except Interrupted:
            pass
        except MCPError as error:
            # An authorization that says why it has no login.
            self._take_back()
            # A subscription that is refused does not end the channel, because calls may be in flight. Nor does the
            # refused login of one user.
            if self._brings_login or not (self.is_awaited and self._channel.login_required(error)):
                self._fail(error)
        except TimedOut as error:
            self._timed_out(error)
        except (OSError, ValueError) as error:
            self._require_own(error)
            self._broken(error)
        except Exception as error:  # noqa: BLE001 - a mistake of ours, or of an `Auth`: the caller must hear of it
            self._require_own(error)
            text = self._redact(exception_text(error))
            logger.error("http_request_failed", server=self._session.name, error=text)
            self._fail(HttpError(f"the request failed: {text}"))
        finally:
            with self._channel.lock:
                self._connection = None

    def _require_own(self, error: Exception) -> None:
        """Raise an exception of a signal handler in the caller's thread, because it is for the caller."""
        if self.in_callers_thread and not is_own(error):
            raise error

    def _limit(self) -> float | None:
        deadline = self._item.deadline if self._deadline is None else self._deadline
        return None if deadline == math.inf else deadline

    async def _pause(self, seconds: float) -> None:
        """Let time pass, at most until the deadline. Raises `Interrupted`."""
        limit, until = self._limit(), time.monotonic() + seconds
        await Sleep(until if limit is None else min(until, limit))
        self._check()

    async def _try_again(self, error: OSError, connection: HttpConnection) -> None:
        """Send the message again after `error`, if there was no connection and the channel goes on nevertheless."""
        pause = _RECONNECT_SECONDS
        while True:
            self._require_own(error)
            self._take_back()
            if isinstance(error, TimedOut) or self.sent or self._is_done():
                raise error
            if self._channel.unreachable(error, self):
                return
            logger.debug("http_connect_failed", server=self._session.name, error=self._session.reason(error))
            await self._pause(pause)
            pause = min(2 * pause, _MAX_RECONNECT_SECONDS)
            try:
                await self._post(connection)
                return
            except OSError as another:
                error = another

    async def _post(self, connection: HttpConnection) -> None:
        if self._item.repeated:
            await self._see_that_it_lives(connection)
        session = self._session
        url = session.url if session.endpoint is None else await session.endpoint()
        own = self._item.headers
        for _ in range(_MAX_REDIRECTS + 1):
            # After a redirect, again: the session may be known by now.
            headers = session.post_headers(self._item, self._negotiated)
            self._session_id = headers.get(SESSION_ID)
            send = session.send
            if own is not None:
                headers = {**headers, **own}
                if self._brings_login:
                    send = HttpConnection.request
            response = await send(
                connection,
                "POST",
                url,
                headers,
                self._frame,
                deadline=self._limit,
                on_sending=self._begin,
                on_status=self._note_status,
                # A cookie for one user must not go to the server with the calls of the others.
                keep_cookies=own is None,
                added=session.clock.header(
                    self._item.last_deadline, time.monotonic() if self.method in _OPENING else None
                ),
            )
            session.clock.note(response.headers, time.monotonic())
            # Not `with`, which costs each call two frames.
            try:
                target = same_origin_redirect(response, url)
                if target is None:
                    then = None if self._receive_now(response) else await self._receive(response, url)
                    # Only a connection whose response is closed can be used again.
                else:
                    await response.read()
            finally:
                response.close()
            if target is None:
                if then is not None:
                    await then(connection)
                return
            url = target
        self._fail(HttpError(f"the server redirects more than {_MAX_REDIRECTS} times"))

    async def _correct(self, error: ErrorResponse, connection: HttpConnection) -> None:
        """Learn which headers the server wants, and send the refused message again (2026-07-28, "Custom Headers")."""
        await IoThreadOnly()
        headers = self._session.request_headers
        before, update = headers.of(self.method, self._item.params), headers.update(self.method)
        if update is not None:
            with contextlib.suppress(InvalidResponse, StopIteration):
                step = next(update)
                while isinstance(step, Send):
                    step = update.send(await self._ask(connection, step))
        if headers.of(self.method, self._item.params) != before:
            await self._post(connection)
        else:
            self._hand_over_error(error)

    async def _see_that_it_lives(self, connection: HttpConnection) -> None:
        """Raise an OSError unless the server answers, whatever it says: a call is repeated only once.

        The system of a server that is being killed still accepts connections for a moment, and then resets them.
        """
        await IoThreadOnly()
        question = Send("server/discover" if is_stateless(self._negotiated) else "ping")
        with contextlib.suppress(MCPError):
            try:
                await self._ask(connection, question)
            except (ConnectFailed, TimedOut):
                raise
            except HttpClientError:
                # A server that lives closes idle connections, but takes new ones.
                await self._pause(_RECONNECT_SECONDS)
                await self._ask(connection, question)

    async def _ask(self, connection: HttpConnection, step: Send) -> dict[str, Any]:
        params = self._negotiated.add_meta(step.params or {}, None)
        item = Frame(encode_request(_OWN_ID, step.method, params), step.method, params)
        session = self._session
        headers = session.post_headers(item, self._negotiated)
        with await session.send(
            connection, "POST", session.url, headers, item.frame, deadline=self._limit, on_sending=self._check
        ) as response:
            stream = EventStream(session.max_message_bytes)
            streamed = content_type(response) == "text/event-stream"
            while data := await (response.chunk() if streamed else response.read()):
                for message in stream.messages(data) if streamed else [data]:
                    if message is None:
                        await Turn()
                    elif (result := _own_result(message)) is not None:
                        return result
                if not streamed:
                    break
        raise InvalidResponse(f"{step.method} was not answered")

    def _begin(self) -> None:
        with self._channel.lock:
            # An interrupted item's `begin_write` is not called: a closed channel promises that. A late item is ended by
            # the thread that watches its deadline.
            if self._interrupted or time.monotonic() >= self._item.deadline:
                raise Interrupted
            if not (self.sent or self._item.begin_write()):
                raise Interrupted
            if self.sent and not self._refused:
                raise AnswerLost("the authorization wants to send it again, and the server may have acted on it")
            self.sent, self._refused = True, False

    def _note_status(self, status: int) -> None:
        self._refused = 300 <= status < 500

    @property
    def _brings_login(self) -> bool:
        return any(name.lower() == "authorization" for name in self._item.headers or ())

    def _redact(self, text: str) -> str:
        text, own = self._session.redact(text), self._item.headers
        return text if own is None else Redactor(secret_headers(own))(text)

    def _take_back(self) -> None:
        """Mark the message as not sent, if the server has refused every sending."""
        # Not after an interruption: the message then belongs to another channel, which may be sending it.
        with self._channel.lock:
            if self.sent and self._refused and not self._interrupted:
                self._item.undo_write()
                self.sent = self._refused = False

    def _check(self) -> None:
        if self._interrupted:
            raise Interrupted

    def _is_done(self) -> bool:
        return self._item.ended or self._interrupted

    def _receive_now(self, response: Response) -> bool:
        """Hand over the usual answer to a call: JSON that has arrived whole. A coroutine for it would take too long."""
        if response.status != _OK or self.method != "tools/call" or self._session.endpoint is not None:
            return False
        body = response.read_now() if response.headers.get(b"content-type") == b"application/json" else None
        if body is not None:
            self._receive_body(body)
        return body is not None

    async def _receive(self, response: Response, url: Url) -> Then | None:
        if not response.is_success:
            return await self._receive_refusal(response, url)
        if self.method == "initialize":
            self._session.begin(response.header(b"mcp-session-id"))
        kind = content_type(response)
        if self.id is None or self._session.endpoint is not None:
            if kind != "text/event-stream":
                # The body does not matter, but a connection whose response is read can be used again.
                await read_up_to(response, _MAX_UNUSED_BYTES)
        elif kind == "application/json" or kind.endswith("+json"):
            try:
                body = await response.read()
            except TooLong:
                limit = self._session.max_message_bytes
                self._fail(InvalidResponse(f"the answer is longer than the {limit} bytes that maxMessageBytes allows"))
            else:
                self._receive_body(body)
        elif kind == "text/event-stream":
            stream = EventStream(self._session.max_message_bytes)
            await self._read(stream, response)
            if not self._is_done() and not self.answered:
                if stream.last_id is None or is_stateless(self._negotiated):
                    raise ProtocolBroken("the stream ended without the answer")
                return partial(self._resume, stream)
        elif response.status in (HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT):
            self._fail(HttpError("the server accepted the request and will not answer it", status=response.status))
        else:
            text = error_responses.excerpt(await read_up_to(response, _MAX_UNUSED_BYTES), self._redact)
            self._fail(HttpError(f"the server answered with {kind or 'no content type'}, which is no MCP{text}"))
        return None

    def _receive_body(self, body: bytes) -> None:
        self._hand_over(body)
        if not self._is_done():
            self._fail(InvalidResponse("the body of the response is not the answer to the request"))

    async def _read(self, stream: EventStream, response: Response) -> None:
        """Hand over the messages of a stream, to its end: only then can the connection be used again."""
        try:
            stream.begin(response)
            while chunk := await response.chunk():
                for data in stream.messages(chunk):
                    if data is None:
                        await Turn()
                        continue
                    self._hand_over(data)
                    if self._item.ended and not self.answered:
                        self.answered = True
                        if not response.is_complete:
                            await IoThreadOnly()
                            self._deadline = time.monotonic() + _LINGER_SECONDS
                            self._channel.answered()
        except InvalidEvents as error:
            self._fail(InvalidResponse(f"a message on the stream cannot be read: {self._session.reason(error)}"))
        except TimedOut:
            raise
        except HttpClientError:
            # The stream may be resumed.
            if stream.last_id is None or is_stateless(self._negotiated):
                raise

    async def _resume(self, stream: EventStream, connection: HttpConnection) -> None:
        """Ask for the rest of a stream that ended early (2025-11-25, "Resumability and Redelivery")."""
        failed = 0
        while not self._is_done():
            await self._pause(stream.pause(_MAX_BACKOFF_SECONDS))
            if self._is_done():
                return
            headers = {**self._session.stream_headers(stream.last_id), **(self._item.headers or {})}
            try:
                send = HttpConnection.request if self._brings_login else self._session.send
                with await send(
                    connection, "GET", self._session.url, headers, deadline=self._limit, on_sending=self._check
                ) as response:
                    if error_responses.is_forgotten(response, self._session_id):
                        self._channel.session_forgotten()
                        break
                    if not response.is_success or content_type(response) != "text/event-stream":
                        raise ProtocolBroken(f"resuming was answered with {response.status}")
                    await self._read(stream, response)
                    failed = 0
            except TimedOut:
                raise
            except HttpClientError as error:
                failed += 1
                if isinstance(error, ConnectFailed) and self._channel.unreachable(error, self):
                    return
                if failed >= _MAX_RECONNECTIONS:
                    self._broken(error)
                    return
        if not self._is_done():
            self._fail(AnswerLost("the session ended before the answer", delivery="unknown"))

    def _hand_over(self, data: bytes) -> None:
        self.delivering = True
        try:
            self._channel.message_received(data, self.method, self._item.params, self._item.id)
        finally:
            self.delivering = False

    async def _receive_refusal(self, response: Response, url: Url) -> Then | None:
        session, status, body = self._session, response.status, await response.read()
        error = error_responses.error_in(body)
        # A server that answers the request itself has read it, and may have acted on it.
        unread = None if error is None or error.id == self.id else error
        if error_responses.is_forgotten(response, self._session_id, unread):
            # The server did not look at the message, so the next session gets it.
            self._take_back()
            self._channel.session_forgotten()
        elif status == HTTPStatus.GONE and session.clock.is_known:
            # The host of a placed server is about to end, and passes nothing on: the next host gets the message.
            self._take_back()
            self._channel.host_ended()
        elif self.method == "initialize" and status in _NOT_OFFERED and error is None:
            if not await self._channel.fall_back(self._item):
                self._fail(error_responses.refusal(response, url, body, session.name, self._redact))
        elif error is not None and self.id is not None:
            if not self._corrected and error_responses.code_of(error) == HEADER_MISMATCH:
                self._corrected = True
                return partial(self._correct, error)
            self._hand_over_error(error)
        else:
            if status == HTTPStatus.UNAUTHORIZED or session.clock.is_known:
                # A gateway that has passed the message on answers it.
                self._take_back()
            self._fail(error_responses.refusal(response, url, body, session.name, self._redact))
        return None

    def _hand_over_error(self, error: ErrorResponse) -> None:
        assert self.id is not None, "only requests are answered"
        self._hand_over(error_responses.with_id(error, self.id))

    def _timed_out(self, error: TimedOut) -> None:
        if self.id is None:
            if not self._interrupted:
                reason = f"it was not accepted within {_UNAWAITED_SECONDS:g} s"
                logger.warning("http_message_lost", server=self._session.name, method=self.method, error=reason)
        elif (limit := self._limit()) is None or time.monotonic() < limit:
            # The request has more time by now.
            self._broken(error)

    def _broken(self, error: Exception) -> None:
        if self._interrupted or self.answered:
            return
        self._take_back()
        reason = self._session.reason(error)
        if self.sent:
            self._fail(AnswerLost(f"the connection broke before the answer: {reason}"))
        elif not (isinstance(error, OSError) and self._channel.unreachable(error)):
            self._fail(HttpError(f"the request cannot be sent: {reason}"))

    def _fail(self, error: MCPError) -> None:
        error.message = self._redact(error.message)
        if self.id is not None:
            self._channel.request_failed(self.id, error)
        elif not self._interrupted:
            logger.warning("http_message_lost", server=self._session.name, method=self.method, error=error.message)


def _own_result(data: bytes) -> dict[str, Any] | None:
    try:
        message = decode(data)
    except NotAMessage:
        return None
    if isinstance(message, Answer) and message.id == _OWN_ID and isinstance(message.result, dict):
        return message.result
    return None


async def read_up_to(response: Response, limit: int) -> bytes:
    """The body, or `limit` bytes of it and perhaps some more."""
    body = b""
    while len(body) < limit and (chunk := await response.chunk()):
        body += chunk
    return body


def same_origin_redirect(response: Response, url: Url) -> Url | None:
    """The URL to which to send the message instead, if the server is the same and the message stays unchanged."""
    if response.status not in _KEEPS_METHOD:
        return None
    target = error_responses.redirect_target(response, url)
    return None if target is None or target.origin != url.origin else target
