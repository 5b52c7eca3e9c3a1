"""A call's exchange on the thread of the caller that waits for the answer anyway."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gaia.handover import mark_engine_thread
from gaia.http_client import HttpConnection
from gaia.mcp.client.transports.http.connection_pool import ConnectionPool
from gaia.mcp.client.transports.http.post import Post

__all__ = ["CallersErrand"]


class CallersErrand:
    """See `gaia.mcp.client.rpc.channel.Errand`.

    The thread sends the call over an idle connection, and reads up to the answer. What may take longer, or has no
    deadline, is left to a thread of the pool: to connect, to try again, to wait for the end of a stream.
    """

    __slots__ = ("_is_ours", "_login", "_on_left", "_pool", "_post", "_to_pool")

    def __init__(
        self,
        post: Post,
        login: str | None,
        pool: ConnectionPool,
        to_pool: Callable[[Post], object],
        on_left: Callable[[Post], object],
    ) -> None:
        """`login` is the value of the header ``Authorization``, if the call needs one.

        ``to_pool(post)`` has all of the exchange made on a thread of the pool.

        ``on_left(post)`` is called when nothing is left of it; perhaps twice.
        """
        self._post = post
        self._login = login
        self._pool = pool
        self._to_pool = to_pool
        self._on_left = on_left
        self._is_ours = True
        """Whether no thread of the pool has taken over. Only the caller's thread uses it."""

    def run(self) -> None:
        post = self._post
        connection: HttpConnection | None = None
        # The caller may hold locks that the application's log handlers need.
        was_engine = mark_engine_thread()
        try:
            connection = self._pool.borrow(post)
            if connection is None:
                self._is_ours = False
                self._to_pool(post)
            elif post.begin_at_once(connection, self._login):
                self._take_over(connection)
        finally:
            mark_engine_thread(was_engine)
            self._leave(connection)

    def ended(self) -> None:
        # The thread that hands over the answer is about to look.
        if not self._post.delivering:
            self._post.interrupt()

    def abandon(self) -> None:
        self._post.interrupt()
        self._leave(None)

    def _take_over(self, connection: HttpConnection) -> None:
        """Have a thread of the pool do what is left, with the same connection."""
        self._is_ours = False
        try:
            self._pool.take_over(self._post, connection, partial(self._go_on, self._post))
        except RuntimeError:
            # No thread can be started. What is left then ends with the call's deadline.
            self._is_ours = True
            self._post.go_on(connection)

    def _go_on(self, post: Post, connection: HttpConnection) -> None:
        try:
            post.go_on(connection)
        finally:
            self._on_left(post)

    def _leave(self, connection: HttpConnection | None) -> None:
        if self._is_ours:
            self._pool.give_back(self._post, connection)
            self._on_left(self._post)
            self._is_ours = False
