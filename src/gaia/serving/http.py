"""`run_http`: an ASGI application behind a `Guard`, until the process is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn

from gaia.serving.guards import App, Guard
from gaia.serving.options import HttpOptions

__all__ = ["run_http"]


class _Server(uvicorn.Server):
    """Ends on SIGTERM and SIGINT by returning, so that what surrounds it is cleaned up and the exit code is 0.

    uvicorn's own way is to raise the signal again at the end, which kills the process.
    """

    catching: Callable[[], None] | None = None
    """Called once signals are caught."""
    stopping: Callable[[], None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self.stopping is not None:
            self.stopping()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        caught = (signal.SIGTERM, signal.SIGINT)
        for number in caught:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        if self.catching is not None:
            self.catching()
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)


def run_http(
    app: App,
    options: HttpOptions,
    started: Callable[[str], None] | None = None,
    stopping: Callable[[], None] | None = None,
) -> None:
    """Serve `app`; call `started` with the server's URL once it accepts connections, and `stopping` at a signal.

    Requests have `options.shutdown_grace` seconds from then on; `stopping` is for those that would never end.

    Raises `UnsafeOptions`, and OSError if the address cannot be had.
    """
    options.check()
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.create_server((options.host.strip("[]"), options.port), family=family) as listener:
        config = uvicorn.Config(
            _with_cors(Guard(app, options), options),
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            timeout_graceful_shutdown=max(1, round(options.shutdown_grace)),
        )
        server = _Server(config)
        if started is not None:
            # The operating system queues connections already. Whoever reads the URL may also send a signal at once.
            server.catching = lambda: started(_url(listener))
        server.stopping = stopping
        asyncio.run(_serve(server, listener))


async def _serve(server: _Server, listener: socket.socket) -> None:
    await server.serve(sockets=[listener])
    if not server.started:
        sys.exit(1)


def _with_cors(app: App, options: HttpOptions) -> Any:
    """Let the web pages that may call also read the answers."""
    if not options.allow_origins:
        return app
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app,
        allow_origins=options.allow_origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["mcp-session-id", "mcp-protocol-version"],
    )


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
