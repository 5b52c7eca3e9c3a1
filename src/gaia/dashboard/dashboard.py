"""`Dashboard`: the page of one manager, from the first look to the last."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.serving.extra import require
from gaia.serving.options import HttpOptions

if TYPE_CHECKING:
    from gaia.dashboard.app import DashboardApp
    from gaia.serving.http import BackgroundServer

__all__ = ["DEFAULT_PORT", "Dashboard"]

DEFAULT_PORT = 8484
_TOKEN_BYTES = 24


class Dashboard:
    """Serves a web page about the servers of `manager`, which stays the application's: it is not closed here.

    As a context manager it serves on a thread of its own. The page shows tool calls by their spans: if the application
    has no OpenTelemetry tracer provider yet, one is set that keeps spans in this process only; an application with a
    provider of its own sets it before. Calls that its sampler leaves out are not shown.
    """

    def __init__(
        self, manager: MCPClientManager, options: HttpOptions | None = None, *, log_level: int | None = None
    ) -> None:
        """Nothing is served yet. Without a token in `options` one is made up; the default port is 8484, 0 a free one.

        `log_level` is set on the logger ``gaia`` while the page is served, so that there are events to show; None
        leaves the level as it is. Raises ImportError if the packages of ``gaia-mcp[dashboard]`` are missing, and
        `UnsafeOptions` for an empty token.
        """
        require("starlette", "uvicorn", extra="dashboard")
        from gaia.dashboard.app import DashboardApp
        from gaia.dashboard.journal import Journal
        from gaia.dashboard.logs import LogStore
        from gaia.dashboard.span_store import SpanStore
        from gaia.dashboard.timeline import Timeline

        options = options or HttpOptions(port=DEFAULT_PORT)
        if options.token is None:
            options = dataclasses.replace(options, token=secrets.token_urlsafe(_TOKEN_BYTES))
        options.check()
        self._options = options
        self._manager = manager
        self._log_level = log_level
        journal = Journal()
        self._spans = SpanStore(journal)
        self._logs = LogStore()
        self._timeline = Timeline(journal)
        self._unsubscribe: Callable[[], None] | None = None
        self._server: BackgroundServer | None = None
        self.app: DashboardApp = DashboardApp(manager, journal, self._spans, self._logs, self._timeline)
        """The ASGI application, without checks of host and token, for those who serve it with their own."""

    @property
    def token(self) -> str:
        """What the API wants as ``Authorization: Bearer …``."""
        assert self._options.token is not None, "made up in the constructor"
        return self._options.token

    @property
    def url(self) -> str:
        """Where the page is, with the token in the fragment, which browsers do not send.

        Raises RuntimeError before `start`.
        """
        if self._server is None:
            raise RuntimeError("The dashboard is not being served: call start() first")
        return self._with_token(self._server.url)

    def watch(self) -> None:
        """Begin to collect what the page shows. `start` and `run` do so themselves."""
        if self._unsubscribe is None:
            self._timeline.begin(self._manager)
            self._unsubscribe = self._manager.subscribe(self._timeline)
            self._logs.attach(self._log_level)
            self._spans.attach()

    def start(self) -> str:
        """Serve on a thread until `close`; returns the `url`. Raises OSError if the address cannot be had."""
        from gaia.dashboard.app import PAGE
        from gaia.serving.http import BackgroundServer

        self.watch()
        if self._server is None:
            self._server = BackgroundServer(
                self.app, self._options, self.app.stream.close, name="gaia-dashboard", open_paths=frozenset(PAGE)
            )
        return self.url

    def run(self, started: Callable[[str], None]) -> None:
        """Serve in this thread, the main one, until SIGINT or SIGTERM; `started` is told the URL with the token."""
        from gaia.dashboard.app import PAGE
        from gaia.serving.http import run_http

        self.watch()
        try:
            run_http(
                self.app,
                self._options,
                lambda url: started(self._with_token(url)),
                self.app.stream.close,
                open_paths=frozenset(PAGE),
            )
        finally:
            self.close()

    def close(self) -> None:
        """Stop serving and collecting. A dashboard is not started again; the manager goes on."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()
        self.app.close()
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()
            self._logs.detach()
            self._spans.close()

    def __enter__(self) -> Dashboard:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _with_token(self, base: str) -> str:
        return f"{base}/#token={self.token}"
