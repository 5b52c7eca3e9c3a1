"""The page with the metrics for Prometheus, served on its own thread.

Prometheus's own server limits neither the number nor the duration of connections, and answers for every host name.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

from gaia.runtime.locks import reentrant_lock

_HOST = "127.0.0.1"
_NAMES = frozenset({"localhost", _HOST})
_MAX_CONNECTIONS = 8
_SECONDS = 10.0


class _Handler(WSGIRequestHandler):
    timeout = _SECONDS

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""


class MetricsPage(WSGIServer):
    """Serves ``/metrics`` on this machine until `close`, each connection on a thread. A new one may end the oldest."""

    request_queue_size = 128
    """With the standard library's 5, a burst of connections would delay others by seconds."""

    def __init__(self, port: int) -> None:
        """Raises OSError if the port is taken. Port 0 means any free port."""
        super().__init__((_HOST, port), _Handler)
        self._page = make_wsgi_app()
        self.set_app(self._answer)
        self._lock = reentrant_lock()
        self._open: dict[socket.socket, float] = {}
        self._thread = threading.Thread(target=self.serve_forever, name="gaia-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= _MAX_CONNECTIONS:
                self._drop(next(iter(self._open)))
            self._open[request] = time.monotonic()
        try:
            threading.Thread(target=self._process, args=(request, client_address), daemon=True).start()
        except RuntimeError:
            # The system starts no more threads.
            self._end(request)

    def service_actions(self) -> None:
        with self._lock:
            overdue = time.monotonic() - _SECONDS
            for request in [request for request, began in self._open.items() if began < overdue]:
                self._drop(request)

    def _drop(self, request: socket.socket) -> None:
        """Wake the connection's thread, which closes it. The caller holds the lock."""
        del self._open[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def _process(self, request: socket.socket, client_address: Any) -> None:
        # The client is gone or too slow, or the connection was dropped.
        with contextlib.suppress(OSError, ValueError):
            self.finish_request(request, client_address)
        self._end(request)

    def _end(self, request: socket.socket) -> None:
        with self._lock:
            self._open.pop(request, None)
        self.shutdown_request(request)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        # A web page could let its own host name point to this machine, and read the answer.
        if environ.get("HTTP_HOST", "").partition(":")[0] in _NAMES:
            return self._page(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Length", "0")])
        return [b""]
