"""A call's exchange on the thread of the caller that waits for the answer anyway."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gaia.http import HttpConnection
from gaia.mcp.transports.http.connection_pool import ConnectionPool
from gaia.mcp.transports.http.post import Post
from gaia.runtime.handover import mark_engine_thread, on_engine_thread
from gaia.runtime.threads import PoolExhausted


class CallersErrand:
    """See `gaia.mcp.rpc.channel.Errand`.

    The thread sends the call over an idle connection, and reads up to the answer. What may take longer, or has no
    deadline, is left to a thread of the pool: to connect, to try again, to wait for the end of a stream.
    """

    __slots__ = ("_login", "_on_left", "_pool", "_post", "_to_pool", "_was_engine")

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
        self._was_engine = False
        """Of the caller's thread, before `run`."""

    def run(self) -> None:
        self._was_engine = on_engine_thread()
        try:
            # The caller may hold locks that the application's log handlers need.
            mark_engine_thread()
            if self._exchange():
                self._on_left(self._post)
        finally:
            mark_engine_thread(self._was_engine)

    def ended(self) -> None:
        # The thread that hands over the answer is about to look.
        if not self._post.delivering:
            self._post.interrupt()

    def abandon(self) -> None:
        # What `run` had left undone when an exception came; a thread of the pool that has the post ends it.
        mark_engine_thread(self._was_engine)
        self._post.interrupt()
        self._pool.give_back(self._post, None)
        self._on_left(self._post)

    def _exchange(self) -> bool:
        """Send the call and receive the answer. False if a thread of the pool does that, or what is left of it."""
        post, pool = self._post, self._pool
        connection = pool.borrow(post)
        if connection is None:
            self._to_pool(post)
            return False
        try:
            if post.begin_at_once(connection, self._login):
                return not self._take_over(connection)
        except BaseException:
            # It was raised by a signal handler, at any line: the post may still interrupt its connection.
            if pool.give_back(post, None):
                connection.close()
            raise
        pool.give_back(post, connection)
        return True

    def _take_over(self, connection: HttpConnection) -> bool:
        """Have a thread of the pool do what is left, with the same connection. False if none can."""
        post, pool = self._post, self._pool
        try:
            pool.take_over(post, connection, partial(self._go_on, post))
        except PoolExhausted as error:
            post.leave_undone(error)
            pool.give_back(post, connection)
            return False
        return True

    def _go_on(self, post: Post, connection: HttpConnection) -> None:
        try:
            post.go_on(connection)
        finally:
            self._on_left(post)
