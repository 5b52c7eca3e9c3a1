"""One HTTP connection at a time, and a way to tear it down under a thread that waits for it.

httpx2 reads without a way to be interrupted: closing a response from another thread does not wake up the one that
reads it, and closing a socket does not either. Shutting the socket down does. So each thread has a client of its own,
with one connection, whose socket is known from httpx2's trace events.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx2

__all__ = ["HttpConnection", "Interrupted"]

_CONNECTED = ("connect_tcp.complete", "start_tls.complete")
_SENDING = "http11.send_request_headers.started"
_ANSWERED = "http11.receive_response_headers.complete"


class Interrupted(Exception):
    """The request was given up before it was sent; for `on_sending` to raise."""


class HttpConnection:
    """For one thread at a time; `interrupt` and `after_fork` may be called from any."""

    def __init__(self, new_client: Callable[[], httpx2.Client]) -> None:
        """`new_client` makes a client that opens one connection at most; it is made for the first request."""
        self._new_client = new_client
        self._client: httpx2.Client | None = None
        self._socket: socket.socket | None = None
        self._cut = False

    @contextlib.contextmanager
    def request(
        self,
        method: str,
        url: httpx2.URL,
        headers: Mapping[str, str],
        content: bytes | None = None,
        *,
        on_sending: Callable[[], None] = lambda: None,
        on_status: Callable[[int], None] = lambda _: None,
    ) -> Iterator[httpx2.Response]:
        """Send a request and give the response, whose body is to be read inside of the context.

        `on_sending` is called when there is a connection, right before the first byte; `on_status` with the status of
        the response. An authorization may send the request, and get a response, several times. Raises
        `httpx2.HTTPError`, what `on_sending` raises, and ValueError or OSError for proxies or certificates that cannot
        be used.
        """
        self._cut = False

        def trace(event: str, details: Mapping[str, Any]) -> None:
            if event.endswith(_CONNECTED):
                self._connected(details["return_value"])
            elif event == _SENDING and details["request"].method != b"CONNECT":
                # To a proxy that only makes a tunnel, the message itself is not sent yet.
                on_sending()
            elif event == _ANSWERED:
                on_status(details["return_value"][1])

        client = self._client = self._client or self._new_client()
        request = client.build_request(method, url, headers=headers, content=content, extensions={"trace": trace})
        response = client.send(request, stream=True)
        try:
            yield response
        finally:
            response.close()

    def interrupt(self) -> None:
        """Make the request under way fail, now or as soon as it has a connection.

        One that is only about to begin is not seen: its `on_sending` has to raise `Interrupted`.
        """
        self._cut = True
        self._shut_down()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def after_fork(self) -> None:
        """In a forked child: close our copy of the connection, which stays the parent's."""
        if self._socket is not None:
            self._socket.close()

    def _connected(self, stream: Any) -> None:
        self._socket = stream.get_extra_info("socket")
        assert self._socket is not None, "a connection over TCP has a socket"
        # A stream that is quiet for hours must notice that the other side is gone.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._cut:
            self._shut_down()

    def _shut_down(self) -> None:
        if self._socket is not None:
            # It may be closed already. Not the method of a TLS socket, which waits for the other side.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
