"""Serves an ASGI application behind a `Guard`: `run_http` in the main thread, `BackgroundServer` on its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from gaia.serving.guards import HEALTH, App, Cors, Guard, Receive, Scope, Send
from gaia.serving.http_protocol import http_protocol
from gaia.serving.options import HttpOptions
from gaia.serving.responses import RequestHandler

_STOP_SECONDS = 5.0


class _Server(uvicorn.Server):
    """A server that returns on SIGTERM and SIGINT, so that callers clean up and the exit code is 0.

    uvicorn itself raises the signal again at the end, which kills the process.
    """

    catching: Callable[[], None] | None = None
    stopping: Callable[[], None] | None = None

    delay = 0.0
    """Seconds between the first signal and the end of accepting requests. A second signal ends the delay."""
    told: Callable[[], None] | None = None
    """Called at the first signal. `stopping` is called after the delay."""
    _is_told = False
    _delayed: asyncio.TimerHandle | None = None
    _is_stopping = False
    grace = 0.0
    """How long the server keeps listening for the clients of open requests."""
    _under_way: frozenset[object] = frozenset()
    _stop_by = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        is_first, self._is_told = not self._is_told, True
        if is_first and self.told is not None:
            self.told()
        if is_first and self.delay:
            self._delayed = asyncio.get_running_loop().call_later(self.delay, self._begin_to_stop, sig, frame)
            return
        if self._delayed is not None:
            # Otherwise the timer would count as a further signal, which ends the server at once.
            self._delayed.cancel()
        self._begin_to_stop(sig, frame)

    def _begin_to_stop(self, sig: int, frame: FrameType | None) -> None:
        is_first, self._is_stopping = not self._is_stopping, True
        if is_first and self.stopping is not None:
            self.stopping()
        if is_first and self.grace:
            self._under_way = frozenset(self._requests())
        if self._under_way and is_first:
            self._stop_by = asyncio.get_running_loop().time() + self.grace
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Listen until the open requests have ended, because their clients may need another connection."""
        if self._is_stopping and not self.should_exit:
            left = self._stop_by - asyncio.get_running_loop().time()
            if left <= 0 or self._under_way.isdisjoint(self._requests()):
                self.config.timeout_graceful_shutdown = max(1, round(left))
                self.should_exit = True
                if self.stopping is not None:
                    # End streams that were opened in the meantime.
                    self.stopping()
        return await super().on_tick(counter)

    def _requests(self) -> Iterator[object]:
        yield from self.server_state.tasks
        for connection in self.server_state.connections:
            responder = getattr(connection, "responder", None)
            if responder is not None:
                yield responder

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


class BackgroundServer:
    """Serves `app` on its own thread until `stop`, which calls `stopping` to end requests that would not end.

    Raises `UnsafeOptions`, and OSError if it cannot listen at the address. Accepts connections at once.
    """

    def __init__(
        self,
        app: App,
        options: HttpOptions,
        stopping: Callable[[], None],
        *,
        name: str,
        open_paths: frozenset[str] = frozenset(),
    ) -> None:
        options.check()
        self._listener = _listen(options)
        self._stopping = stopping
        self._stop_timeout = options.shutdown_grace + _STOP_SECONDS
        # uvicorn handles signals only in the main thread, so this server handles none.
        self._server = uvicorn.Server(_configuration(app, options, open_paths))
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve(sockets=[self._listener])), name=name, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return _url(self._listener)

    def stop(self) -> None:
        """Stop listening. Requests have `options.shutdown_grace` seconds to end."""
        self._stopping()
        self._server.should_exit = True
        self._thread.join(self._stop_timeout)
        self._listener.close()


def run_http(
    app: App,
    options: HttpOptions,
    started: Callable[[str], None] | None = None,
    stopping: Callable[[], None] | None = None,
    *,
    told: Callable[[], None] | None = None,
    open_paths: frozenset[str] = frozenset(),
    direct: RequestHandler | None = None,
) -> None:
    """Serve `app`; call `started` with the server's URL once it accepts connections, and `stopping` at a signal.

    `told` is called at the first signal. `stopping` is called `options.shutdown_delay` seconds later, or at the second
    signal; it ends requests that have no end of their own. Requests then have `options.shutdown_grace` seconds.
    Requests for `open_paths` need no token.

    Requests that `direct` takes pass the same checks and bypass `app`; ``uvloop`` is used if it is installed. With
    `direct`, the server accepts connections until the open requests have ended, then calls `stopping` again.

    Raises `UnsafeOptions`, and OSError if it cannot listen at the address.
    """
    options.check()
    with _listen(options) as listener:
        server = _Server(_configuration(app, options, open_paths, direct))
        if started is not None:
            # The operating system already queues connections. A program that reads the URL may send a signal at once.
            server.catching = lambda: started(_url(listener))
        server.stopping = stopping
        server.told = told
        server.delay = options.shutdown_delay
        if direct is not None:
            server.grace = options.shutdown_grace
        with asyncio.Runner(loop_factory=None if direct is None else _fast_loop()) as runner:
            runner.run(server.serve(sockets=[listener]))
    if not server.started:
        sys.exit(1)


def _listen(options: HttpOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.create_server((options.host.strip("[]"), options.port), family=family)
    # Accepted connections inherit the option. asyncio sets it only on sockets it made itself. Without it, each response
    # on a kept-alive connection waits some 40 ms for the client's acknowledgement of its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """A factory of uvloop's event loops, which take two thirds of the time for a call; None without uvloop."""
    try:
        import uvloop
    except ImportError:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


def _with_health(app: App) -> App:
    from starlette.responses import JSONResponse

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        is_probe = scope["type"] == "http" and scope["path"] == HEALTH
        await (JSONResponse({"status": "ok"}) if is_probe else app)(scope, receive, send)

    return application


def _configuration(
    app: App, options: HttpOptions, open_paths: frozenset[str], direct: RequestHandler | None = None
) -> uvicorn.Config:
    guard = Guard(options, open_paths)
    configuration = uvicorn.Config(
        Cors(options.allow_origins).around(app if direct else _with_health(app)),
        interface="asgi3",
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=max(1, round(options.shutdown_grace)),
        http=http_protocol(options, guard, direct),
        # With `direct`, only headers of trusted proxies count.
        proxy_headers=direct is None,
        # A WebSocket would bypass the guard and the bounds.
        ws="none",
    )
    if options.certificate is not None:
        configuration.load()
        configuration.ssl = _tls(options.certificate)
    return configuration


def _tls(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # OpenSSL reads keys from files only, and Python has no other way to give it one.
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(certificate)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
