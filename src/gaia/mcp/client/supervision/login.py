"""A person logs in at a server that lets nobody else in: beside the worker, because it can take minutes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gaia.log import get_logger
from gaia.mcp.client.transports.authorization import Authorization
from gaia.mcp.errors import MCPError

__all__ = ["Login"]

logger = get_logger(__name__)

_JOIN_SECONDS = 5.0


class Login:
    """One attempt to log in, in a thread of its own."""

    def __init__(self, server: str, authorization: Authorization, on_done: Callable[[MCPError | None], None]) -> None:
        """Begin. `on_done` is called once, with what went wrong or None."""
        self._server = server
        self._authorization = authorization
        self._on_done = on_done
        self._thread = threading.Thread(target=self._log_in, name=f"mcp-{server}-login", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when it is over; that takes no time once the authorization is aborted."""
        self._thread.join(_JOIN_SECONDS)

    def _log_in(self) -> None:
        failure: MCPError | None = None
        try:
            self._authorization.log_in()
        except MCPError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - a mistake of ours: the worker waits for the news, good or bad
            logger.error("login_broken", server=self._server, error=repr(error))
            failure = MCPError(f"the login failed: {error!r}")
        self._on_done(failure)
