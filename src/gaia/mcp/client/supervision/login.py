"""A person logs in at a server that lets nobody else in: whether one is asked, and the login itself.

That can take minutes, so it happens beside the supervisor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from gaia.log import get_logger
from gaia.mcp.client.transports.authorization import Authorization
from gaia.mcp.errors import MCPError

__all__ = ["Login", "Logins"]

logger = get_logger(__name__)

_JOIN_SECONDS = 5.0

_MAX_IN_A_ROW = 2
"""Twice, because the server may have moved to another authorization server since the last time."""


class Login:
    """One attempt to log in, in a thread of its own."""

    def __init__(self, server: str, authorization: Authorization, on_done: Callable[[MCPError | None], None]) -> None:
        """Begin. `on_done` is called once, with what went wrong or None."""
        self._server = server
        self._authorization = authorization
        self._on_done = on_done
        self._thread = threading.Thread(target=self._log_in, name=f"mcp-{server}-login", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            on_done(MCPError(f"no thread for the login: {error}"))

    def wait(self) -> None:
        """Return when it is over; that takes no time once the authorization is aborted."""
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def _log_in(self) -> None:
        failure: MCPError | None = None
        try:
            self._authorization.log_in()
        except MCPError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - a mistake of ours: the supervisor waits for the news, good or bad
            logger.error("login_broken", server=self._server, error=repr(error))
            failure = MCPError(f"the login failed: {error!r}")
        self._on_done(failure)


class Logins:
    """How a supervisor gets in where a login is wanted. Belongs to the supervisor's thread, except `new`."""

    def __init__(
        self, server: str, authorization: Authorization | None, on_done: Callable[[MCPError | None], None]
    ) -> None:
        """`on_done` is called when a login is over, on a thread of its own, with what went wrong or None.

        Without an `authorization` there is nobody to ask.
        """
        self._server = server
        self._authorization = authorization
        self._on_done = on_done
        self._under_way: Login | None = None
        self._in_a_row = 0
        """Since the server was ready: people must not be asked to log in for ever."""

    def new(self) -> bool:
        """Whether there is a login that the server has not refused yet. For any thread, and quick."""
        return self._authorization is not None and self._authorization.changed()

    @property
    def under_way(self) -> bool:
        """Whether a person is logging in. Nothing is started before that is over."""
        return self._under_way is not None

    @property
    def may_ask(self) -> bool:
        """Whether there is a person to ask, who has not been asked too often."""
        interactive = self._authorization is not None and self._authorization.interactive
        return interactive and self._in_a_row < _MAX_IN_A_ROW

    def allow(self) -> None:
        """The server is about to be started, perhaps after `abort`."""
        if self._authorization is not None:
            self._authorization.reopen()

    def ask(self) -> None:
        """Have the person log in."""
        assert self._authorization is not None, "that is what `may_ask` is for"
        self._in_a_row += 1
        self._under_way = Login(self._server, self._authorization, self._on_done)

    def over(self) -> None:
        """The login under way came to its end, good or bad."""
        self._under_way = None

    def forget(self) -> None:
        """The server has let us in, or is left alone: whoever is asked next is asked for the first time."""
        self._in_a_row = 0

    def abort(self) -> None:
        """Ask nobody any more, and end the login under way."""
        if self._authorization is not None:
            # Requests under way may wait for a person too.
            self._authorization.abort()
        if self._under_way is not None:
            self._under_way.wait()
            self._under_way = None
