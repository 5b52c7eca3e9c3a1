"""`Service`: runs a gateway under a service manager, with signals and reloads."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import signal
from collections.abc import Callable, Iterable

from gaia.mcp.gateway.gateway import Gateway
from gaia.mcp.gateway.operations.reloader import Reloader, Source
from gaia.mcp.gateway.operations.status import ReloadStatus
from gaia.serving.guards import Receive, Scope, Send
from gaia.serving.http import run_http
from gaia.serving.options import HttpOptions
from gaia.serving.service_manager import ServiceManager

_ANSWER_SECONDS = 5.0
"""Additional seconds in which calls that did not end in time receive their errors."""


class Service:
    """Runs a gateway in the main thread until SIGTERM or SIGINT. SIGHUP makes it read its files again.

    At the first SIGTERM or SIGINT the gateway drains: open calls have the options' grace period.
    """

    def __init__(self, gateway: Gateway, manager: ServiceManager | None = None, sources: Iterable[Source] = ()) -> None:
        """`manager` receives the gateway's state. `sources` are read again when their files change."""
        self._gateway = gateway
        self._manager = manager or ServiceManager()
        self._sources = list(sources)
        self._reloader: Reloader | None = None
        self._grace = 0.0
        self._is_drained = False
        self._watchdog: asyncio.TimerHandle | None = None

    def run(self, options: HttpOptions, started: Callable[[str], None]) -> None:
        """Serve over HTTP. `started` is called with the URL, without a path, once connections are accepted.

        Raises `UnsafeOptions`, ConfigError if the audit cannot be written, and OSError if it cannot listen at the
        address.
        """
        # Opened here, because an error during the HTTP server's start would end the process.
        self._gateway.open_audit()
        with contextlib.suppress(ValueError):
            # Ignore SIGHUP until `_begin`. The files are being read now, and by default the signal ends the process.
            signal.signal(signal.SIGHUP, lambda *_: None)
        # The additional time lets open calls end with an error before their connections are closed.
        self._grace = options.shutdown_grace
        later = dataclasses.replace(options, shutdown_grace=options.shutdown_grace + _ANSWER_SECONDS)
        run_http(self.application, later, started, self.drain, told=self.told, direct=self._gateway.endpoint)

    def told(self) -> None:
        """Called on the event loop when the process is told to end."""
        # Requests are still accepted until the load balancers have noticed.
        self._gateway.is_draining = True
        self._manager.stopping("finishing calls")

    def drain(self) -> None:
        """Drain the gateway, whose server no longer listens. On its event loop. May be called again."""
        self._gateway.drain()
        if self._is_drained:
            return
        self._is_drained = True
        if self._reloader is not None:
            # A server that a reload starts now would be stopped at once.
            self._reloader.stop()
        asyncio.get_running_loop().call_later(self._grace, self._gateway.give_up)

    async def application(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The gateway as an ASGI application. Its ``lifespan`` also begins and ends the service."""
        if scope["type"] != "lifespan":
            await self._gateway(scope, receive, send)
            return

        async def sent(message: Scope) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._begin()
            await send(message)

        try:
            await self._gateway(scope, receive, sent)
        finally:
            self._end()

    def _begin(self) -> None:
        # Exclude the objects of the start from garbage collection. Scanning them takes a tenth of all calls' time.
        gc.freeze()
        loop = asyncio.get_running_loop()
        self._reloader = Reloader(self._sources, loop, began=self._manager.reloading, ended=self.reloaded)
        self._reloader.start()
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        self._manager.ready(self._words())
        if self._manager.watchdog_seconds is not None:
            self._feed_watchdog(self._manager.watchdog_seconds / 2)

    def _end(self) -> None:
        gc.unfreeze()
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._reloader is not None:
            self._reloader.stop()
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)

    def _feed_watchdog(self, seconds: float) -> None:
        """Runs on the event loop, so that the service manager notices a blocked loop."""
        self._manager.alive()
        self._watchdog = asyncio.get_running_loop().call_later(seconds, self._feed_watchdog, seconds)

    def _hung_up(self) -> None:
        """Handle SIGHUP: files have changed, or the audit file was moved."""
        self._gateway.reopen_audit()
        if self._reloader is not None:
            self._reloader.reload()

    def reloaded(self, reload: ReloadStatus) -> None:
        self._gateway.last_reload = reload
        self._manager.ready(self._words() if reload.error is None else f"still as it was: {reload.error}")

    def _words(self) -> str:
        count = len(self._gateway.manager.status())
        return f"{count} server{'' if count == 1 else 's'}"
