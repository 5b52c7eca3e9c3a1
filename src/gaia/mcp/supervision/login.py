"""Logins at a server that requires one: decides whether a person is asked, and runs the login on a thread."""

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
"""Two, because the server may have moved to another authorization server since the last login."""


class Logins:
    """The logins at one server, one at a time. Belongs to the supervisor's thread, except `new`."""

    def __init__(
        self, server: str, authorization: Authorization | None, on_done: Callable[[MCPError | None], None]
    ) -> None:
        """The login's thread calls `on_done` with the error or None, unless the login was aborted."""
        self._server = server
        self._authorization = authorization
        self._on_done = on_done
        self._thread: threading.Thread | None = None
        self._in_a_row = 0
        """Logins since the server was last ready, to limit how often a person is asked."""

    def new(self) -> bool:
        authorization = self._authorization
        return authorization is not None and authorization.changed()

    @property
    def under_way(self) -> bool:
        return self._thread is not None

    @property
    def may_ask(self) -> bool:
        interactive = self._authorization is not None and self._authorization.interactive
        return interactive and self._in_a_row < _MAX_IN_A_ROW

    def adopt(self, authorization: Authorization | None) -> None:
        """Use another configuration's way to log in. Only while no login is under way."""
        self._authorization = authorization
        self._in_a_row = 0
        self.allow()

    def allow(self) -> None:
        if self._authorization is not None:
            self._authorization.reopen()

    def ask(self) -> None:
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
        self._thread = None

    def forget(self) -> None:
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
        except BaseException as error:  # noqa: BLE001 - an internal error: the supervisor still waits for `on_done`
            logger.error("login_broken", server=self._server, error=exception_text(error))
            failure = MCPError(f"the login failed: {exception_text(error)}")
        if self._thread is threading.current_thread():
            self._on_done(failure)
