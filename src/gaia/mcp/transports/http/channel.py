"""`HttpChannel`: one server that is reached over HTTP, with its current exchanges, and how it ended.

Each message is a separate POST. If there is an idle connection, the thread of a caller that waits for the answer makes
the exchange; otherwise the I/O thread of the process does. Notifications, answers to the server, pings and
subscriptions never wait behind calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from http import HTTPStatus
from typing import Any

from gaia.http.connection import HttpConnection
from gaia.http.errors import HttpClientError, Interrupted
from gaia.http.io_thread import Signal, Task, hold_io_thread, release_io_thread
from gaia.http.waits import Exchange, Wait, run_here
from gaia.mcp.errors import MCPError, NeedsAuthorization
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.rpc.channel import ChannelListener, Ending, Frame, Outgoing
from gaia.mcp.transports.base import open_channels
from gaia.mcp.transports.http.connection_pool import ConnectionLimit, IdleConnections
from gaia.mcp.transports.http.http_session import HttpSession, is_stateless
from gaia.mcp.transports.http.post import Post
from gaia.mcp.transports.http.server_streams import OldServerStream, ServerStream
from gaia.runtime.handover import mark_engine_thread, on_engine_thread
from gaia.runtime.locks import Latch, WeakObjects, reentrant_lock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_MAX_URGENT = 4
_MAX_STANDING = 2
"""A subscription is replaced by opening the new one first."""

_URGENT_METHODS = frozenset({"initialize", "ping", "server/discover"})
_STANDING_METHODS = frozenset({"subscriptions/listen"})
_MAX_LINGERING = 4
_JOIN_SECONDS = 2.0
_BORROWED_SECONDS = 0.2
"""How long to wait for callers' threads at the end: one of them may be the thread that waits here."""
_DELETE_SECONDS = 2.0
_DRAIN_SECONDS = 2.0
"""How long current calls may take to be answered or refused once no more are sent."""


class HttpChannel:
    """See `gaia.mcp.rpc.channel.Channel`, and `Exchanges`. It sends no request before the first message."""

    pid = None

    def __init__(
        self,
        session: HttpSession,
        make_connection: Callable[[], HttpConnection],
        listener: ChannelListener,
        *,
        max_pending: int,
        max_connections: int,
        idle_seconds: float,
        old: bool,
    ) -> None:
        """`old`: the server speaks HTTP with SSE. Raises RuntimeError if the system starts no I/O thread."""
        self.is_forked = False
        self.session = session
        self.redact = session.redact
        self._make_connection = make_connection
        self._listener = listener
        self._max_pending = max_pending
        self.io = io = hold_io_thread(
            self, lambda: self.ended(Ending(cause="cannot be reached: the I/O thread has failed"))
        )
        self._idle = idle = IdleConnections(self.new_connection, io, idle_seconds)
        self.calls = ConnectionLimit(max_connections, idle, io)
        self._urgent = ConnectionLimit(_MAX_URGENT, idle, io)
        self._standing = ConnectionLimit(_MAX_STANDING, idle, io)
        self._connections: WeakObjects[HttpConnection] = WeakObjects()

        self.lock: AbstractContextManager[object] = reentrant_lock()
        """Owns everything below, and the state that posts share with the threads that interrupt them."""
        self._posts: dict[Post, None] = {}
        self._tasks: set[Task] = set()
        self._all_ended = Latch()
        self._held: list[Outgoing] | None = None
        """Messages that wait until the server knows that it is initialized, and has a stream for its own requests."""
        self._server_stream: ServerStream | None = None
        self._old_stream: OldServerStream | None = None
        if old:
            self._old_stream = OldServerStream(self)
            session.endpoint = self._old_stream.endpoint
        self._ending: Ending | None = None
        self._draining: Ending | None = None
        """How the channel is going to end; set when it stops sending."""
        self._drained = Signal(io)
        """Set when, after that, no call is in flight."""
        self.is_closed = False
        open_channels.add(self)

    @property
    def session_id(self) -> str | None:
        return self.session.id

    def is_alive(self) -> bool:
        return not self.is_forked and not self.is_closed and self._ending is None

    def send(self, item: Outgoing) -> bool:
        with self.lock:
            # Requests have room first: a notification often only cancels one.
            if len(self._posts) + len(self._held or ()) >= self._max_pending * (1 if item.id is not None else 2):
                return False
            if self._draining is not None:
                # Treat it as waiting: the next channel gets it.
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
        with self.lock:
            posts = [post for post in self._posts if post.id == identifier]
        # In 2026-07-28, closing the stream is the whole message ("Streamable HTTP": "Cancellation"). Before, it has no
        # meaning for the server.
        if not is_stateless(self.session.negotiated):
            self.send(notice)
        for post in posts:
            post.interrupt()

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        before, self.session.negotiated = self.session.negotiated, negotiated
        if is_stateless(before) and not is_stateless(negotiated):
            # Answers to requests in an era that the server does not speak are not needed any more.
            self._interrupt_all()

    def ending(self, wait: float) -> Ending | None:  # noqa: ARG002 - only processes take time to end
        # Set before the listener is notified of the end, so there is nothing to wait for.
        return self._ending

    def memory(self) -> None:
        """None: the server has no process here."""

    def stop_writing(self) -> bool:
        return False

    def close(self, grace: float) -> Ending:
        if self.is_forked:
            return Ending()
        began = time.monotonic()
        with self.lock:
            self.is_closed = True
            self._held = None
            streams = [stream for stream in (self._server_stream, self._old_stream) if stream is not None]
        self._drained.set()
        for limit in (self.calls, self._urgent, self._standing):
            limit.close()
        for stream in streams:
            stream.close()
        self._interrupt_all()
        if self._ending is None and self.session.id is not None and grace > 0:
            self._delete_session(min(grace, _DELETE_SECONDS))
        with self.lock:
            tasks = list(self._tasks)
            if not tasks:
                self._all_ended.open()
        for task in tasks:
            task.interrupt()
        in_time = self._all_ended.wait(_JOIN_SECONDS)
        self.calls.join(_BORROWED_SECONDS)
        self._idle.close()
        if self.session.login_threads is not None:
            in_time = self.session.login_threads.close(_JOIN_SECONDS) and in_time
        if not release_io_thread(self, self.io) or not in_time:
            # Looking up a name cannot be interrupted. The thread ends after the lookup, and sends nothing any more.
            logger.warning("http_threads_late", server=self.session.name, seconds=round(time.monotonic() - began, 3))
        open_channels.discard(self)
        return self._ending or Ending(cause="was left")

    def after_fork(self) -> None:
        self.is_forked = True
        for connection in self._connections.present():
            connection.close()

    # See `Exchanges`.

    def new_connection(self) -> HttpConnection:
        connection = self._make_connection()
        self._connections.add(connection)
        return connection

    def spawn(self, exchange: Exchange[object]) -> Task:
        task = self._new_task(exchange, self._task_ended)
        self.io.post(partial(self.io.begin, task))
        return task

    def message_received(
        self,
        data: bytes,
        method: str | None = None,
        params: Mapping[str, Any] | None = None,
        call_id: int | None = None,
    ) -> None:
        if is_stateless(self.session.negotiated):
            data = self.session.request_headers.learn(method, params, data)
        self._listener.message_received(data, call_id)

    def answered(self) -> None:
        with self.lock:
            lingering = [post for post in self._posts if post.answered]
        for post in lingering[:-_MAX_LINGERING]:
            post.interrupt()

    def request_failed(self, call_id: int, error: MCPError) -> None:
        self._listener.request_failed(call_id, error)

    def unreachable(self, error: Exception, post: object | None = None) -> bool:
        with self.lock:
            answering = any(other.sent and other.is_awaited for other in self._posts if other is not post)
            if answering and self._draining is None and not self.is_closed:
                return False
        self._drain(Ending(cause=f"cannot be reached: {self.session.reason(error)}"))
        return True

    def host_ended(self) -> None:
        self._drain(Ending(cause="ended with its host"))

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
        with self.lock:
            if self.is_closed or self._ending is not None:
                return
            self._ending = ending
        self._listener.channel_ended()

    async def fall_back(self, item: Outgoing) -> bool:
        stream = OldServerStream(self)
        with self.lock:
            if self.is_closed or self._old_stream is not None:
                return False
            self._old_stream = stream
        try:
            await stream.endpoint()
        except HttpClientError as error:
            logger.debug("no_old_server", server=self.session.name, error=self.session.reason(error))
            stream.abandon()
            with self.lock:
                self._old_stream = None
            return False
        self.session.endpoint = stream.endpoint
        self._submit(item)
        return True

    # The drivers of an exchange.

    def _submit(self, item: Outgoing) -> None:
        post = Post(self, item)
        if item.id is None or item.method in _URGENT_METHODS:
            limit = self._urgent
        else:
            limit = self._standing if item.method in _STANDING_METHODS else self.calls
        try:
            with self.lock:
                if self.is_closed:
                    return
                # First: from now on `close` interrupts it, so it is not sent after the call was handed back.
                self._posts[post] = None
            if limit is not self.calls or not self._leave(item, post):
                limit.enter(post, partial(self.begin, post, limit))
        except BaseException:
            # A signal handler has raised it, and the message is given up.
            post.interrupt()
            self.forget(post)
            raise

    def _leave(self, item: Outgoing, post: Post) -> bool:
        """Leave the exchange to the current thread, if it belongs to a caller that waits for the answer."""
        # A server of 2024-11-05 answers on another stream, and may do so before it responds.
        return self.session.endpoint is None and item.run_in_caller(CallersExchange(self, post))

    def begin(self, post: Post, limit: ConnectionLimit) -> None:
        """On the I/O thread."""
        connection = self._idle.take()
        self.drive(post, limit, connection, post.exchange(connection))

    def drive(
        self,
        post: Post,
        limit: ConnectionLimit,
        connection: HttpConnection,
        exchange: Exchange[None],
        first: Wait | None = None,
    ) -> None:
        """Drive an exchange, on the I/O thread. It waits for `first` if a caller's thread has driven it before."""

        def on_end(task: Task) -> None:
            if not limit.leave(post, connection):
                connection.close()
            self.forget(post)
            if post.method == "notifications/initialized" and not self.is_closed:
                self.spawn(self._initialized())
            self._task_ended(task)

        post.in_callers_thread = connection.waits_here = False
        task = self._new_task(exchange, on_end)
        post.attach(task)
        self.io.begin(task, first)

    def forget(self, post: Post) -> None:
        with self.lock:
            self._posts.pop(post, None)
            self._check_drained()

    def _new_task(self, exchange: Exchange[object], on_end: Callable[[Task], object]) -> Task:
        task = Task(self.io, exchange, on_end)
        with self.lock:
            self._tasks.add(task)
        return task

    def _task_ended(self, task: Task) -> None:
        with self.lock:
            self._tasks.discard(task)
            if self.is_closed and not self._tasks:
                self._all_ended.open()

    # The beginning and the end.

    async def _initialized(self) -> None:
        with self.lock:
            stream = self._server_stream
            begins = not self.is_closed and self._old_stream is None and stream is None
            if begins:
                stream = self._server_stream = ServerStream(self)
        if stream is not None:
            if begins:
                self.spawn(stream.listen())
            await stream.wait_until_answered()
        with self.lock:
            held, self._held = self._held, None
            if self._draining is not None:
                # The next channel gets the unsent messages, see `send`.
                return
        for item in held or ():
            self._submit(item)

    def _drain(self, ending: Ending) -> None:
        """Send nothing from now on, and end the channel as soon as no call is in flight.

        Calls in flight may still be answered, or refused: then they can go to the next channel. The need for a login
        overrides an earlier reason.
        """
        with self.lock:
            first = self._draining is None
            if first or ending.unauthorized:
                self._draining = ending
            self._check_drained()
        if first:
            self.spawn(self._end_when_drained())

    def _check_drained(self) -> None:
        """The caller holds the lock."""
        if self._draining is not None and not any(post.is_awaited for post in self._posts):
            self._drained.set()

    async def _end_when_drained(self) -> None:
        await self._drained.within(_DRAIN_SECONDS)
        if self._draining is not None:
            self.ended(self._draining)

    def _interrupt_all(self) -> None:
        with self.lock:
            posts = list(self._posts)
        for post in posts:
            post.interrupt()

    def _delete_session(self, seconds: float) -> None:
        """Notify the server that the session is over (2025-11-25, "Session Management"). The answer does not matter."""
        session, deadline, told = self.session, time.monotonic() + seconds, Latch()

        async def delete() -> None:
            connection = self._idle.take()
            try:
                headers = session.stream_headers(None)
                with await session.send(connection, "DELETE", session.url, headers, deadline=deadline):
                    pass
            except (Interrupted, MCPError, OSError, ValueError) as error:
                logger.debug("session_delete_failed", server=session.name, error=session.reason(error))
            finally:
                connection.close()
                told.open()

        self.spawn(delete())
        told.wait(seconds)


class CallersExchange:
    """The exchange of one call, on the thread of the caller that waits for it. See `gaia.mcp.rpc.channel.CallerWork`.

    The thread sends the call over an idle connection, and reads up to the answer. It leaves the rest to the I/O thread:
    connecting, further attempts, and waiting for the end of a stream.
    """

    _is_left = False
    """Whether the exchange was left to the I/O thread before an exception came."""
    _was_engine = False
    """Whether the caller's thread was an engine thread before `run`."""

    def __init__(self, channel: HttpChannel, post: Post) -> None:
        self._channel = channel
        self._post = post
        self._driver: dict[None, str] = {}
        """The thread that ends an exchange which the caller's thread has left: the first one that enters itself."""

    def run(self) -> None:
        self._was_engine = on_engine_thread()
        try:
            # The caller may hold locks that the application's log handlers need.
            mark_engine_thread()
            if self._is_over():
                self._channel.forget(self._post)
        finally:
            mark_engine_thread(self._was_engine)

    def ended(self) -> None:
        # If this thread delivers the answer, `run` sees the end by itself.
        if not self._post.delivering:
            self._post.interrupt()

    def abandon(self) -> None:
        # Undo what an exception has left of `run`.
        mark_engine_thread(self._was_engine)
        self._post.interrupt()
        if self._driver.setdefault(None, "caller") == "caller":
            self._channel.calls.leave(self._post, None)
            self._channel.forget(self._post)

    def _is_over(self) -> bool:
        """Send the call and receive the answer. False if the I/O thread does that, or the rest of it."""
        post, channel, calls = self._post, self._channel, self._channel.calls
        connection = calls.borrow(post)
        if connection is None:
            calls.enter(post, self._begin)
            return False
        exchange = post.exchange(connection)
        try:
            post.in_callers_thread = connection.waits_here = True
            first = run_here(exchange)
            if first is not None and channel.is_closed:
                # The I/O thread may have ended.
                exchange.close()
            elif first is not None:
                self._is_left = True
                channel.io.post(partial(self._go_on, connection, exchange, first))
                return False
        except BaseException:
            # A signal handler has raised it, at any line: the post may still interrupt its connection.
            if not self._is_left and calls.leave(post, None):
                connection.close()
            raise
        calls.leave(post, connection)
        return True

    def _begin(self) -> None:
        if self._driver.setdefault(None, "io") == "io":
            self._channel.begin(self._post, self._channel.calls)
        else:
            self._channel.calls.leave(self._post, None)

    def _go_on(self, connection: HttpConnection, exchange: Exchange[None], first: Wait) -> None:
        if self._driver.setdefault(None, "io") == "io":
            self._channel.drive(self._post, self._channel.calls, connection, exchange, first)
