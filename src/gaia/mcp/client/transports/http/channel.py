"""One server that is reached over HTTP: what is known of it, and the threads that speak with it.

Each message is a POST of its own, carried out by a thread of a pool. A second, small pool carries what must never
wait behind calls: notifications, answers to the server, and questions whether it lives.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from http import HTTPStatus

import httpx2

from gaia.log import get_logger
from gaia.mcp.client.protocol.negotiated_protocol import NOT_NEGOTIATED, NegotiatedProtocol
from gaia.mcp.client.rpc.channel import ChannelListener, Ending, Frame, Outgoing
from gaia.mcp.client.transports.http import error_responses
from gaia.mcp.client.transports.http.connection_pool import ConnectionPool, Job
from gaia.mcp.client.transports.http.headers import SESSION_ID, is_stateless, revision_header
from gaia.mcp.client.transports.http.http_connection import HttpConnection
from gaia.mcp.client.transports.http.old_server import OldServer
from gaia.mcp.client.transports.http.post import Post
from gaia.mcp.client.transports.http.server_stream import ServerStream
from gaia.mcp.client.transports.http.stream_reader import StreamReader
from gaia.mcp.client.transports.http.tool_headers import ToolHeaders
from gaia.mcp.client.transports.http.tool_lists import without_unusable_tools
from gaia.mcp.errors import MCPError, NeedsAuthorization

__all__ = ["HttpChannel"]

logger = get_logger(__name__)

_URGENT_THREADS = 4
_URGENT_METHODS = frozenset({"initialize", "ping", "server/discover"})
_MAX_LINGERING = 4
_JOIN_SECONDS = 2.0
_FAREWELL_SECONDS = 2.0
"""For the DELETE that ends a session, at most."""

_LEAVING_SECONDS = 2.0
"""How long calls under way get to be answered or refused, when it is known that there will be no more."""

_FORGOTTEN = "has forgotten the session"
_ENDED = "was left"


class HttpChannel:
    """See `gaia.mcp.client.rpc.channel.Channel`. Nothing is sent before the first message."""

    def __init__(
        self,
        url: httpx2.URL,
        new_client: Callable[[], httpx2.Client],
        listener: ChannelListener,
        *,
        name: str,
        redact: Callable[[str], str],
        max_message_bytes: int,
        max_pending: int,
        max_threads: int,
        old: bool,
    ) -> None:
        """`new_client` makes a client that keeps one connection; `old` says that the server speaks HTTP with SSE."""
        self.name = name
        self.url = url
        self.max_message_bytes = max_message_bytes
        self.tool_headers = ToolHeaders(name)
        self.is_forked = False
        self.negotiated = NOT_NEGOTIATED
        self._redact = redact
        self._new_client = new_client
        self._listener = listener
        self._max_pending = max_pending
        numbers = itertools.count(1)
        self._calls = ConnectionPool(max_threads, lambda: f"mcp-{name}-http-{next(numbers)}", self.new_http_connection)
        self._urgent = ConnectionPool(
            _URGENT_THREADS, lambda: f"mcp-{name}-http-{next(numbers)}", self.new_http_connection
        )
        self._http_connections: weakref.WeakSet[HttpConnection] = weakref.WeakSet()

        self._delivery = threading.Lock()
        """Makes messages arrive one at a time: listeners expect a single reader."""
        self._lock = threading.Lock()
        """Owns everything below."""
        self._posts: dict[Post, None] = {}
        """Those under way or waiting, in the order of their beginning."""
        self._lingering: deque[Post] = deque()
        """Those whose answer has come, but not the end of its stream."""
        self._held: list[Outgoing] | None = None
        """What has to wait until the server knows that it is initialized."""
        self._session_id: str | None = None
        self._server_stream: ServerStream | None = None
        self._old = OldServer(self) if old else None
        self._ending: Ending | None = None
        self._leaving: Ending | None = None
        """How the channel is going to end; set when nothing is sent any more."""
        self._calls_over = threading.Event()
        """Set when no call is under way any more, after that."""
        self._closed = False
        _open_channels.add(self)

    @property
    def pid(self) -> None:
        return None

    @property
    def session_id(self) -> str | None:
        return self._session_id

    @property
    def answers_elsewhere(self) -> bool:
        """Whether answers do not come as responses (revision 2024-11-05)."""
        return self._old is not None

    def is_alive(self) -> bool:
        return not self.is_forked and not self._closed and self._ending is None

    def redact(self, text: str) -> str:
        return self._redact(text)

    def send(self, item: Outgoing) -> bool:
        with self._lock:
            if len(self._posts) >= self._max_pending and item.id is not None:
                return False
            if self._leaving is not None:
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
        if not is_stateless(self.negotiated):
            self.send(notice)
        for post in posts:
            post.interrupt()

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        before, self.negotiated = self.negotiated, negotiated
        if is_stateless(before) and not is_stateless(negotiated):
            # What the server was asked in an era that it does not speak is of no interest any more.
            self._interrupt_all()

    def ending(self, wait: float) -> Ending | None:  # noqa: ARG002 - only processes take time to end
        # It is known before anybody hears of the end, so there is nothing to wait for.
        return self._ending

    def close(self, grace: float) -> Ending:
        if self.is_forked:
            return Ending()
        began = time.monotonic()
        with self._lock:
            self._closed = True
            self._held = None
            self._calls_over.set()
            helpers = [helper for helper in (self._server_stream, self._old) if helper is not None]
        for pool in (self._calls, self._urgent):
            pool.request_close()
        for helper in helpers:
            helper.interrupt()
        self._interrupt_all()
        if self._ending is None and self._session_id is not None and grace > 0:
            self._delete_session(min(grace, _FAREWELL_SECONDS))
        deadline = time.monotonic() + _JOIN_SECONDS
        threads: list[ConnectionPool | StreamReader] = [self._calls, self._urgent, *helpers]
        late = [thread for thread in threads if not thread.join(max(0.0, deadline - time.monotonic()))]
        if late:
            # Looking up a name cannot be interrupted. The thread ends when that does, and nothing is sent any more.
            logger.warning("http_threads_late", server=self.name, seconds=round(time.monotonic() - began, 3))
        _open_channels.discard(self)
        return self._ending or Ending(cause=_ENDED)

    def after_fork(self) -> None:
        self.is_forked = True
        for http_connection in list(self._http_connections):
            http_connection.after_fork()

    # For the threads of the channel.

    def new_http_connection(self) -> HttpConnection:
        http_connection = HttpConnection(self._new_client())
        self._http_connections.add(http_connection)
        return http_connection

    def url_of_messages(self) -> httpx2.URL:
        """Where messages are sent. Raises `httpx2.TransportError` if an old server does not say it."""
        return self.url if self._old is None else self._old.endpoint()

    def stream_headers(self, last_id: str | None) -> dict[str, str]:
        """Of a GET."""
        headers = {"Accept": "text/event-stream", **revision_header(self.negotiated)}
        if self._session_id is not None:
            headers[SESSION_ID] = self._session_id
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        return headers

    def begin_session(self, session_id: str | None) -> None:
        """The server has answered `initialize`, and perhaps named the session."""
        self._session_id = session_id

    def session_forgotten(self) -> None:
        """The server says that there is no such session."""
        self._leave(Ending(cause=_FORGOTTEN, renewable=True))

    def is_locked_out(self, error: MCPError) -> bool:
        """Whether `error` says that no request is let in any more; if so, the channel is over soon."""
        # A 403 is about one request.
        if not isinstance(error, NeedsAuthorization) or error.status == HTTPStatus.FORBIDDEN:
            return False
        cause = self._redact(error.message).removeprefix("the server ")
        self._leave(Ending(cause=cause, unauthorized=True))
        return True

    def received(self, data: bytes, method: str | None = None) -> None:
        """A message came, in answer to `method` if that is not None."""
        if method == "tools/list" and is_stateless(self.negotiated):
            data = without_unusable_tools(data, self.tool_headers)
        with self._delivery:
            self._listener.message_received(data)

    def request_failed(self, call_id: int, error: MCPError) -> None:
        self._listener.request_failed(call_id, error)

    def unreachable(self, error: Exception) -> None:
        """There is no connection to be had to the server."""
        self._leave(Ending(cause=f"cannot be reached: {self._redact(error_responses.reason(error))}"))

    def end(self, ending: Ending) -> None:
        """The channel is over; the first to say so says why."""
        with self._lock:
            if self._closed or self._ending is not None:
                return
            self._ending = ending
        self._listener.channel_ended()

    def lingers(self, post: Post) -> None:
        """The answer of `post` has come, and the end of its stream should follow; that is not waited for for ever."""
        with self._lock:
            self._lingering.append(post)
            oldest = self._lingering.popleft() if len(self._lingering) > _MAX_LINGERING else None
        if oldest is not None:
            oldest.interrupt()

    def fall_back(self) -> bool:
        """Try the transport of 2024-11-05. True if the server speaks it; then messages go that way from now on."""
        old = OldServer(self)
        with self._lock:
            if self._closed or self._old is not None:
                return False
            self._old = old
        if old.is_there():
            return True
        old.interrupt()
        old.join(_JOIN_SECONDS)
        with self._lock:
            self._old = None
        return False

    def resend(self, item: Outgoing) -> None:
        self._submit(item)

    # Inside.

    def _submit(self, item: Outgoing) -> None:
        post = Post(self, item)
        with self._lock:
            if self._closed:
                return
            self._posts[post] = None
        pool = self._urgent if item.id is None or item.method in _URGENT_METHODS else self._calls
        try:
            pool.submit(self._job(post))
        except RuntimeError as error:
            self._forget(post)
            self.end(Ending(cause=f"cannot be reached: {error}"))

    def _job(self, post: Post) -> Job:
        def job(http_connection: HttpConnection) -> None:
            try:
                post.run(http_connection)
            finally:
                self._forget(post)
                if post.method == "notifications/initialized":
                    self._initialized()

        return job

    def _forget(self, post: Post) -> None:
        with self._lock:
            self._posts.pop(post, None)
            with contextlib.suppress(ValueError):
                self._lingering.remove(post)
            self._look_for_calls()

    def _initialized(self) -> None:
        with self._lock:
            held, self._held = self._held, None
            if not self._closed and self._old is None and self._server_stream is None:
                self._server_stream = ServerStream(self)
        for item in held or ():
            self._submit(item)

    def _leave(self, ending: Ending) -> None:
        """The channel is over as soon as no call is under way any more; nothing is sent from now on.

        What is under way is either answered, or most likely refused, too: then it was not lost, and can go to the next
        channel. A login that is needed matters more than whatever else was found out.
        """
        with self._lock:
            first = self._leaving is None
            if first or ending.unauthorized:
                self._leaving = ending
            self._look_for_calls()
        if first:
            try:
                self._urgent.submit(lambda _: self._end_after_calls())
            except RuntimeError:
                # No more threads: there is nobody to wait.
                self.end(ending)

    def _look_for_calls(self) -> None:
        """The caller has the lock."""
        if self._leaving is not None and not any(post.is_awaited for post in self._posts):
            self._calls_over.set()

    def _end_after_calls(self) -> None:
        self._calls_over.wait(_LEAVING_SECONDS)
        if self._leaving is not None:
            self.end(self._leaving)

    def _interrupt_all(self) -> None:
        with self._lock:
            posts = list(self._posts)
        for post in posts:
            post.interrupt()

    def _delete_session(self, seconds: float) -> None:
        """Tell the server that the session is not needed any more (2025-11-25, "Session Management")."""
        try:
            with self._new_client() as client:
                client.delete(self.url, headers=self.stream_headers(None), timeout=seconds)
        except (httpx2.HTTPError, MCPError, OSError, ValueError) as error:
            logger.debug("session_delete_failed", server=self.name, error=self._redact(error_responses.reason(error)))


_open_channels: weakref.WeakSet[HttpChannel] = weakref.WeakSet()


def _after_fork() -> None:
    for channel in list(_open_channels):
        channel.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
