"""Logins at a server that requires one: whether a person is asked to log in, and the login itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gaia.mcp.errors import MCPError
from gaia.mcp.transports.base import Authorization
from gaia.runtime.log import exception_text, get_logger
from gaia.runtime.threads import EngineThread

logger = get_logger(__name__)

_JOIN_SECONDS = 5.0

_MAX_IN_A_ROW = 2
"""Twice, because the server may have moved to another authorization server since the last time."""


class Logins:
    """The logins at one server, one at a time. Belongs to the supervisor's thread, except `new`.

    A login can take minutes, so it has a thread of its own.
    """

    def __init__(
        self, server: str, authorization: Authorization | None, on_done: Callable[[MCPError | None], None]
    ) -> None:
        """`on_done` is called once for each login when it is over, from its thread, with what went wrong or None.

        Not for one that was aborted: it may end much later, when another one is under way.

        Without an `authorization` there is no way to log in.
        """
        self._server = server
        self._authorization = authorization
        self._on_done = on_done
        self._thread: threading.Thread | None = None
        """Of the login under way."""
        self._in_a_row = 0
        """Since the server was ready: people must not be asked to log in for ever."""

    def new(self) -> bool:
        """Whether there is a login that the server has not refused yet. For any thread, and quick."""
        authorization = self._authorization
        return authorization is not None and authorization.changed()

    @property
    def under_way(self) -> bool:
        """Whether a person is logging in. Nothing is started before that is over."""
        return self._thread is not None

    @property
    def may_ask(self) -> bool:
        """Whether there is a person to ask, who has not been asked too often."""
        interactive = self._authorization is not None and self._authorization.interactive
        return interactive and self._in_a_row < _MAX_IN_A_ROW

    def adopt(self, authorization: Authorization | None) -> None:
        """The server has another configuration, with another way to log in. No login is under way."""
        self._authorization = authorization
        self._in_a_row = 0
        self.allow()

    def allow(self) -> None:
        """The server is about to be started, perhaps after `abort`."""
        if self._authorization is not None:
            self._authorization.reopen()

    def ask(self) -> None:
        """Have the person log in."""
        authorization = self._authorization
        assert authorization is not None, "that is what `may_ask` is for"
        self._in_a_row += 1
        name = f"mcp-{self._server}-login"
        self._thread = EngineThread(lambda: self._log_in(authorization), name)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._on_done(MCPError(f"no thread for the login: {error}"))

    def over(self) -> None:
        """The login under way has ended, with or without success."""
        self._thread = None

    def forget(self) -> None:
        """The server has accepted the client, or is given up: the logins in a row are counted anew."""
        self._in_a_row = 0

    def abort(self) -> None:
        """End the login under way, and allow no other until `allow`."""
        if self._authorization is not None:
            # Requests under way may wait for a login too.
            self._authorization.abort()
        thread, self._thread = self._thread, None
        if thread is not None and thread.ident is not None:
            thread.join(_JOIN_SECONDS)

    def _log_in(self, authorization: Authorization) -> None:
        failure: MCPError | None = None
        try:
            authorization.log_in()
        except MCPError as error:
            failure = error
        except BaseException as error:  # noqa: BLE001 - a mistake of ours: the supervisor waits for `on_done` all the same
            logger.error("login_broken", server=self._server, error=exception_text(error))
            failure = MCPError(f"the login failed: {exception_text(error)}")
        if self._thread is threading.current_thread():
            self._on_done(failure)
