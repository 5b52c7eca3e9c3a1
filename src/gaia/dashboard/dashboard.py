"""`Dashboard`: collects and serves the data of one manager's page."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.serving.loading import require
from gaia.serving.options import HttpOptions

if TYPE_CHECKING:
    from gaia.dashboard.app import DashboardApp
    from gaia.dashboard.servers import GatewayWatch
    from gaia.serving.http import BackgroundServer

DEFAULT_PORT = 8484
_TOKEN_BYTES = 24


class Dashboard:
    """Serves a web page about the servers of `manager`. The application owns `manager`, and has to close it.

    As a context manager it serves on its own thread. The page shows tool calls by their spans. If the application has
    no OpenTelemetry tracer provider yet, one is set that keeps spans in this process only. An application with its own
    provider sets it before. Calls that its sampler leaves out are not shown.
    """

    def __init__(
        self,
        manager: MCPClientManager,
        options: HttpOptions | None = None,
        *,
        log_level: int | None = None,
        gateway: GatewayWatch | None = None,
    ) -> None:
        """Nothing is served yet. Without a token in `options` one is generated; the default port is 8484, 0 a free one.

        `log_level` is set on the logger ``gaia`` while the page is served, so that there are events to show; None
        leaves the level unchanged. With a `gateway`, the page shows the gateway, and `manager` reaches its servers
        through it.

        Raises ImportError if the packages of ``gaia-mcp[dashboard]`` are missing, and `UnsafeOptions` for an empty
        token.
        """
        require("starlette", "uvicorn", "httptools", "opentelemetry.sdk", extra="dashboard")
        from gaia.dashboard.app import DashboardApp

        options = options or HttpOptions(port=DEFAULT_PORT)
        if options.token is None:
            options = dataclasses.replace(options, token=secrets.token_urlsafe(_TOKEN_BYTES))
        options.check()
        self._options = options
        self._log_level = log_level
        self._server: BackgroundServer | None = None
        self.app: DashboardApp = DashboardApp(manager, gateway)
        """The ASGI application without checks of host and token, for applications with their own checks."""

    @property
    def token(self) -> str:
        """The token that the API requires as ``Authorization: Bearer …``."""
        assert self._options.token is not None, "generated in the constructor"
        return self._options.token

    @property
    def url(self) -> str:
        """The URL of the page, with the token in the fragment, which browsers do not send.

        Raises RuntimeError before `start`.
        """
        if self._server is None:
            raise RuntimeError("The dashboard is not being served: call start() first")
        return self._with_token(self._server.url)

    def watch(self) -> None:
        """Start to collect the page's data. `start` and `run` do so themselves."""
        self.app.collect(self._log_level)

    def start(self) -> str:
        """Serve on a thread until `close`; returns the `url`. Raises OSError if the address cannot be used."""
        from gaia.serving.http import BackgroundServer

        self.watch()
        if self._server is None:
            self._server = BackgroundServer(
                self.app, self._options, self.app.stream.close, name="gaia-dashboard", open_paths=self.app.open_paths
            )
        return self.url

    def run(self, started: Callable[[str], None]) -> None:
        """Serve in this thread, which must be the main one, until SIGINT or SIGTERM.

        `started` is called with the URL.
        """
        from gaia.serving.http import run_http

        self.watch()
        try:
            run_http(
                self.app,
                self._options,
                lambda url: started(self._with_token(url)),
                self.app.stream.close,
                open_paths=self.app.open_paths,
            )
        finally:
            self.close()

    def close(self) -> None:
        """Stop serving and collecting. A closed dashboard cannot be started again. The manager stays as it is."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()
        self.app.close()

    def __enter__(self) -> Dashboard:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _with_token(self, base: str) -> str:
        return f"{base}/#token={self.token}"
