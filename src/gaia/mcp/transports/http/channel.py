"""One server that is reached over HTTP: the threads that speak with it, what is under way, and how it ended.

Each message is a POST of its own. The thread of a caller that waits for the answer anyway makes the exchange itself, if
there is an idle connection; for all others a thread of a pool does. A second, small pool carries what must never wait
behind calls: notifications, answers to the server, and pings. A third one carries what stays open.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from gaia.http import HttpClientError, HttpConnection, Interrupted
from gaia.mcp.errors import MCPError, NeedsAuthorization
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.rpc.channel import ChannelListener, Ending, Frame, Outgoing
from gaia.mcp.transports.base import open_channels
from gaia.mcp.transports.http.connection_pool import ConnectionPool, IdleConnections
from gaia.mcp.transports.http.errand import CallersErrand
from gaia.mcp.transports.http.http_session import HttpSession, is_stateless
from gaia.mcp.transports.http.post import Post
from gaia.mcp.transports.http.server_streams import OldServerStream, ServerStream
from gaia.runtime.locks import Latch, WeakObjects, reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.threads import PoolExhausted

logger = get_logger(__name__)

_MAX_URGENT_THREADS = 4
_MAX_STANDING_THREADS = 2
"""A subscription is replaced by opening the new one first."""

_URGENT_METHODS = frozenset({"initialize", "ping", "server/discover"})
_STANDING_METHODS = frozenset({"subscriptions/listen"})
_MAX_LINGERING = 4
"""So many answered requests may read on to the end of their streams at the same time."""
_JOIN_SECONDS = 2.0
_DELETE_SECONDS = 2.0
"""For the DELETE that ends a session, at most."""

_DRAIN_SECONDS = 2.0
"""How long calls under way may take to be answered or refused, once it is known that no more are sent."""


class HttpChannel:
    """See `gaia.mcp.rpc.channel.Channel`. Nothing is sent before the first message."""

    pid = None

    def __init__(
        self,
        session: HttpSession,
        new_connection: Callable[[], HttpConnection],
        listener: ChannelListener,
        *,
        max_pending: int,
        max_connections: int,
        old: bool,
    ) -> None:
        """`new_connection` makes one that is not connected; `old` says that the server speaks HTTP with SSE."""
        self.is_forked = False
        self._session = session
        self.redact = session.redact
        self._make_connection = new_connection
        self._listener = listener
        self._max_pending = max_pending
        self._idle = IdleConnections(self._new_connection)
        self._calls = ConnectionPool(f"mcp-{session.name}-http", max_connections, self._idle)
        self._urgent = ConnectionPool(f"mcp-{session.name}-http-urgent", _MAX_URGENT_THREADS, self._idle)
        self._standing = ConnectionPool(f"mcp-{session.name}-http-listen", _MAX_STANDING_THREADS, self._idle)
        self._connections: WeakObjects[HttpConnection] = WeakObjects()

        self._lock = reentrant_lock()
        """Owns everything below, and what posts share with the threads that interrupt them."""
        self._posts: dict[Post, None] = {}
        """Those under way or waiting, in the order of their beginning."""
        self._held: list[Outgoing] | None = None
        """What has to wait until the server knows that it is initialized, and has a stream for its own requests."""
        self._server_stream: ServerStream | None = None
        self._old_stream: OldServerStream | None = None
        if old:
            self._old_stream = OldServerStream(session, self, self._new_connection())
            session.endpoint = self._old_stream.endpoint
        self._ending: Ending | None = None
        self._draining: Ending | None = None
        """How the channel is going to end; set when nothing is sent any more."""
        self._drained = Latch()
        """Set when no call is under way any more, after that."""
        self._closed = False
        open_channels.add(self)

    @property
    def session_id(self) -> str | None:
        return self._session.id

    def is_alive(self) -> bool:
        return not self.is_forked and not self._closed and self._ending is None

    def send(self, item: Outgoing) -> bool:
        with self._lock:
            # Requests have room first: a notification often says that one is not needed any more.
            if len(self._posts) + len(self._held or ()) >= self._max_pending * (1 if item.id is not None else 2):
                return False
            if self._draining is not None:
                # As if it waited: the next channel gets it.
                return True
            if self._held is not None:
                self._held.append(item)
                return True
            if item.method == "notifications/initialized":
                # The next message must not overtake it.
                self._held = []
        self._submit(item)
        return True

    def cancel(self, notice: Frame) -> None:
        identifier = (notice.params or {}).get("requestId")
        with self._lock:
            posts = [post for post in self._posts if post.id == identifier]
        # Closing the stream is the whole message in 2026-07-28 ("Streamable HTTP": "Cancellation"). Before, it means
        # nothing to the server.
        if not is_stateless(self._session.negotiated):
            self.send(notice)
        for post in posts:
            post.interrupt()

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        before, self._session.negotiated = self._session.negotiated, negotiated
        if is_stateless(before) and not is_stateless(negotiated):
            # What the server was asked in an era that it does not speak is of no interest any more.
            self._interrupt_all()

    def ending(self, wait: float) -> Ending | None:  # noqa: ARG002 - only processes take time to end
        # It is known before the listener is told of the end, so there is nothing to wait for.
        return self._ending

    def memory(self) -> None:
        """The server is no process of ours."""

    def stop_writing(self) -> bool:
        return False

    def close(self, grace: float) -> Ending:
        if self.is_forked:
            return Ending()
        began = time.monotonic()
        with self._lock:
            self._closed = True
            self._held = None
            self._drained.open()
            streams = [stream for stream in (self._server_stream, self._old_stream) if stream is not None]
        for pool in (self._calls, self._standing):
            pool.request_close()
        for stream in streams:
            stream.interrupt()
        self._interrupt_all()
        if self._ending is None and self._session.id is not None and grace > 0:
            self._delete_session(min(grace, _DELETE_SECONDS))
        self._urgent.request_close()
        deadline = time.monotonic() + _JOIN_SECONDS
        joins = [thread.join for thread in (self._calls, self._urgent, self._standing, *streams)]
        late = [join for join in joins if not join(max(0.0, deadline - time.monotonic()))]
        self._idle.close()
        if late:
            # Looking up a name cannot be interrupted. The thread ends when that does, and nothing is sent any more.
            logger.warning("http_threads_late", server=self._session.name, seconds=round(time.monotonic() - began, 3))
        open_channels.discard(self)
        return self._ending or Ending(cause="was left")

    def after_fork(self) -> None:
        self.is_forked = True
        for connection in self._connections.present():
            connection.after_fork()

    # What the threads of the channel report; see `HttpSink`.

    def message_received(
        self,
        data: bytes,
        method: str | None = None,
        params: Mapping[str, Any] | None = None,
        call_id: int | None = None,
    ) -> None:
        if is_stateless(self._session.negotiated):
            data = self._session.request_headers.learn(method, params, data)
        self._listener.message_received(data, call_id)

    def answered(self) -> None:
        with self._lock:
            lingering = [post for post in self._posts if post.answered]
        for post in lingering[:-_MAX_LINGERING]:
            post.interrupt()

    def request_failed(self, call_id: int, error: MCPError) -> None:
        self._listener.request_failed(call_id, error)

    def unreachable(self, error: Exception, post: object | None = None) -> bool:
        with self._lock:
            answering = any(other.sent and other.is_awaited for other in self._posts if other is not post)
            if answering and self._draining is None and not self._closed:
                return False
        self._drain(Ending(cause=f"cannot be reached: {self._session.reason(error)}"))
        return True

    def session_forgotten(self) -> None:
        self._drain(Ending(cause="has forgotten the session", renewable=True))

    def login_required(self, error: MCPError) -> bool:
        # A 403 is about one request.
        if not isinstance(error, NeedsAuthorization) or error.status == HTTPStatus.FORBIDDEN:
            return False
        cause = self.redact(error.message).removeprefix("the server ")
        self._drain(Ending(cause=cause, unauthorized=True))
        return True

    def ended(self, ending: Ending) -> None:
        with self._lock:
            if self._closed or self._ending is not None:
                return
            self._ending = ending
        self._listener.channel_ended()

    def fall_back(self, item: Outgoing) -> bool:
        stream = OldServerStream(self._session, self, self._new_connection())
        with self._lock:
            if self._closed or self._old_stream is not None:
                return False
            self._old_stream = stream
        try:
            stream.endpoint()
        except HttpClientError as error:
            logger.debug("no_old_server", server=self._session.name, error=self._session.reason(error))
            stream.interrupt()
            stream.join(_JOIN_SECONDS)
            with self._lock:
                self._old_stream = None
            return False
        self._session.endpoint = stream.endpoint
        self._submit(item)
        return True

    # Inside.

    def _new_connection(self) -> HttpConnection:
        connection = self._make_connection()
        self._connections.add(connection)
        return connection

    def _submit(self, item: Outgoing) -> None:
        post = Post(self._session, self, item, self._lock)
        if item.id is None or item.method in _URGENT_METHODS:
            pool = self._urgent
        else:
            pool = self._standing if item.method in _STANDING_METHODS else self._calls
        try:
            with self._lock:
                if self._closed:
                    return
                # First: from now on `close` interrupts it, so nothing sends it once the call was handed back.
                self._posts[post] = None
            if pool is not self._calls or not self._leave(item, post):
                self._submit_to(pool, post)
        except BaseException:
            # A signal handler has raised it, and what is sent here is given up.
            post.interrupt()
            self._forget(post)
            raise

    def _leave(self, item: Outgoing, post: Post) -> bool:
        """Leave the exchange to the caller's thread, if this is the thread of a caller that waits for the answer."""
        # A server of 2024-11-05 answers on another stream, and may do so before it responds.
        session = self._session
        if session.ready_login is None or session.endpoint is not None:
            return False
        is_ready, header = session.ready_login()
        return is_ready and item.leave(CallersErrand(post, header, self._calls, self._submit_call, self._forget))

    def _submit_call(self, post: Post) -> None:
        self._submit_to(self._calls, post)

    def _submit_to(self, pool: ConnectionPool, post: Post) -> None:
        try:
            pool.submit(partial(self._run, post))
        except PoolExhausted as error:
            self._forget(post)
            self.ended(Ending(cause=f"cannot be reached: {error}"))

    def _run(self, post: Post, connection: HttpConnection) -> None:
        try:
            if post.begin(connection):
                post.go_on(connection)
        finally:
            self._forget(post)
            if post.method == "notifications/initialized":
                self._initialized()

    def _forget(self, post: Post) -> None:
        with self._lock:
            self._posts.pop(post, None)
            self._check_drained()

    def _initialized(self) -> None:
        with self._lock:
            if not self._closed and self._old_stream is None and self._server_stream is None:
                self._server_stream = ServerStream(self._session, self, self._new_connection())
            stream = self._server_stream
        if stream is not None:
            stream.wait_until_answered()
        with self._lock:
            held, self._held = self._held, None
            if self._draining is not None:
                # The next channel gets what has not been sent, see `send`.
                return
        for item in held or ():
            self._submit(item)

    def _drain(self, ending: Ending) -> None:
        """Send nothing from now on, and end the channel as soon as no call is under way any more.

        What is under way is either answered, or most likely refused, too: then it was not lost, and can go to the next
        channel. A login that is needed matters more than any other reason.
        """
        with self._lock:
            first = self._draining is None
            if first or ending.unauthorized:
                self._draining = ending
            self._check_drained()
        if first:
            try:
                self._urgent.submit(self._end_when_drained)
            except RuntimeError:
                # No thread can be started that waits for them.
                self.ended(ending)

    def _check_drained(self) -> None:
        """The caller has the lock."""
        if self._draining is not None and not any(post.is_awaited for post in self._posts):
            self._drained.open()

    def _end_when_drained(self, _: HttpConnection) -> None:
        self._drained.wait(_DRAIN_SECONDS)
        if self._draining is not None:
            self.ended(self._draining)

    def _interrupt_all(self) -> None:
        with self._lock:
            posts = list(self._posts)
        for post in posts:
            post.interrupt()

    def _delete_session(self, seconds: float) -> None:
        """Tell the server that the session is not needed any more (2025-11-25, "Session Management").

        On another thread, because looking up a name has no deadline. The answer does not matter.
        """
        session, deadline, told = self._session, time.monotonic() + seconds, Latch()

        def delete(connection: HttpConnection) -> None:
            try:
                headers = session.stream_headers(None)
                with session.send(connection, "DELETE", session.url, headers, deadline=deadline):
                    pass
            except (Interrupted, MCPError, OSError, ValueError) as error:
                logger.debug("session_delete_failed", server=session.name, error=session.reason(error))
            finally:
                told.open()

        with contextlib.suppress(RuntimeError):
            self._urgent.submit(delete)
            told.wait(seconds)
