"""`HttpConnection`: one exchange at a time over one connection, which other threads can interrupt."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from time import monotonic

from gaia.http.connecting import connect
from gaia.http.errors import HttpClientError, Interrupted, is_own
from gaia.http.request import HttpSettings, encode_head, merged
from gaia.http.response import Response
from gaia.http.response_parser import ResponseParser
from gaia.http.streams import Stream, TlsStream
from gaia.http.url import Url
from gaia.http.waits import Deadline, IoThreadOnly
from gaia.runtime.locks import reentrant_lock

_MAX_JOINED_BYTES = 64 * 1024
"""At most so much of the body is copied behind the head, so that a small request is one packet."""

_WITHOUT_BODY = frozenset({"DELETE", "GET", "HEAD", "OPTIONS"})

_JUST_NOW_SECONDS = 1e-3
"""A request does not check again that its connection is open if `is_connected` has checked within this time."""


class HttpConnection:
    """For one exchange at a time; `interrupt`, and in a forked child `close`, are for any thread and signal handler."""

    _socket: socket.socket | None = None
    """For `interrupt`. A class attribute, because `__del__` may run before the end of `__init__`."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._lock = reentrant_lock()
        """Owns `_socket`, so that only an open one is shut down, and `_cut`."""
        self._cut = False
        # Only the exchange uses the attributes below.
        self.waits_here = False
        """Whether the thread that drives the exchange drives no other, and waits with `Stream.receive_here`."""
        self._stream: Stream | TlsStream | None = None
        self._origin: tuple[str, str, int] | None = None
        self._idle_since: float | None = None
        """Since when another request may use `_stream`; None while a response is read from it."""
        self._looked_at = 0.0
        """When `is_connected` found the connection open; 0 if it did not, and after the next request."""
        self._parser = ResponseParser()
        self._deadline: Deadline = None
        self._head_key: tuple[str, Url, Mapping[str, str], bool] | None = None
        self._head = b""

    @property
    def is_connected(self) -> bool:
        """Whether a request to the last origin needs no new connection, as far as is known. Never waits."""
        # A readable socket has unsolicited data, or the end of the connection.
        is_open = self._stream is not None and not self.is_stale and not self._stream.is_readable()
        self._looked_at = monotonic() if is_open else 0.0
        return is_open

    @property
    def is_kept(self) -> bool:
        return self._idle_since is not None

    @property
    def is_stale(self) -> bool:
        """Whether the connection has been idle for so long that the next request makes another one."""
        idle_since = self._idle_since
        return idle_since is None or monotonic() - idle_since >= self._settings.idle_seconds

    async def request(
        self,
        method: str,
        url: Url,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        deadline: Deadline = None,
        on_sending: Callable[[], None] | None = None,
        on_status: Callable[[int], None] | None = None,
        with_shared: bool = True,
        keep_cookies: bool = True,
        added: bytes = b"",
    ) -> Response:
        """Send a request, once, and return the response: a context in which the caller reads the body.

        The caller does not change `headers` afterwards.

        `deadline`, a reading of `time.monotonic`, is for the whole exchange with the body; a callable is called again
        during each wait. `on_sending` is called once there is a connection, right before the first byte, and prevents
        the request by raising; `on_status` receives the status of the response. With `with_shared`, the request has the
        headers of the settings too, which are for one server. With `keep_cookies`, later requests send the cookies
        that the response sets. `added` are further lines of the head, which differ from
        request to request. A caller's thread does not connect: it leaves the exchange to the I/O thread.

        Raises an `HttpClientError` (`ConnectFailed`, `TimedOut`, `ProtocolBroken`, `TooLong`, or the base class if the
        connection broke), `Interrupted`, the exceptions of `on_sending`, and ValueError for headers that cannot be
        sent. No request is sent a second time.
        """
        self._cut = False
        self._deadline = deadline
        head = self._encoded_head(method, url, headers, body, with_shared, added)
        was_open = self._stream is not None and monotonic() - self._looked_at < _JUST_NOW_SECONDS
        if self._origin != url.origin or not (was_open or self.is_connected):
            await IoThreadOnly()
            await self._connect(url)
        self._looked_at = 0.0
        if on_sending is not None:
            on_sending()
        stream, parser = self._open(), self._parser
        try:
            first = head + body[:_MAX_JOINED_BYTES]
            self._idle_since = None
            sent = self._send_now(stream, first)
            if sent < len(first) or len(body) > _MAX_JOINED_BYTES:
                await self._send(stream, memoryview(first)[sent:], memoryview(body)[_MAX_JOINED_BYTES:])
            parser.begin(bodyless=method == "HEAD")
            while not parser.has_head:
                if self.waits_here:
                    self._take(stream.receive_here(deadline))
                else:
                    await self._receive()
            response = Response(parser, self._settings, self._receive, self._done)
        except OSError as error:
            self.close()
            raise self._failure(error) from error
        except BaseException:
            self.close()
            raise
        if keep_cookies and b"set-cookie" in parser.headers:
            values = parser.headers[b"set-cookie"].decode("latin-1").split("\n")
            self._settings.cookies.take(url, values)
        if on_status is not None:
            on_status(response.status)
        return response

    def interrupt(self) -> None:
        """Make the current request raise `Interrupted`. Before it is connected, its `on_sending` has to raise it."""
        with self._lock:
            self._cut = True
            if self._socket is not None:
                # Closing the socket would not wake the thread that waits. The other side may have closed it already.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, or a forked child's copy of it. The next request makes another one."""
        self._stream = self._idle_since = None
        with self._lock:
            if self._socket is not None:
                # First, because a signal handler may raise before the next line.
                self._socket.close()
                self._socket = None

    def __del__(self) -> None:
        # A signal handler's exception may lose the connection before any code closes it. No other reference exists now,
        # so the finalizer needs no lock, and it must take none.
        if self._socket is not None:
            self._socket.close()

    async def _connect(self, url: Url) -> None:
        self.close()
        connected, self._stream = await connect(url, self._settings, self._deadline)
        with self._lock:
            self._socket = connected
        self._parser = ResponseParser()
        self._origin = url.origin
        self._idle_since = monotonic()

    def _encoded_head(
        self, method: str, url: Url, headers: Mapping[str, str], body: bytes, with_shared: bool, added: bytes
    ) -> bytes:
        if (method, url, headers, with_shared) != self._head_key:
            settings = self._settings
            complete = merged({"Host": url.authority}, settings.headers if with_shared else {}, headers)
            target = url.target
            if url.scheme == "http" and (proxy := settings.proxies.for_url(url)) is not None:
                target = str(url)
                if proxy.authorization is not None:
                    complete["Proxy-Authorization"] = proxy.authorization
            self._head = encode_head(method, target, complete)
            self._head_key = (method, url, headers, with_shared)
        head = self._head
        cookies = self._settings.cookies
        if cookies.has_any and (cookie := cookies.header_for(url)) is not None:
            head += b"Cookie: %b\r\n" % cookie.encode("latin-1")
        if not body and method in _WITHOUT_BODY:
            return b"%b%b\r\n" % (head, added)
        return b"%b%bContent-Length: %d\r\n\r\n" % (head, added, len(body))

    def _send_now(self, stream: Stream | TlsStream, data: bytes) -> int:
        """Send without waiting. Returns the number of bytes sent."""
        try:
            return stream.send_now(data, self._deadline)
        except (BrokenPipeError, ConnectionResetError):
            self._sending_failed()
            return len(data)

    async def _send(self, stream: Stream | TlsStream, *several: memoryview) -> None:
        try:
            for data in several:
                await stream.send(data, self._deadline)
        except (BrokenPipeError, ConnectionResetError):
            self._sending_failed()

    def _sending_failed(self) -> None:
        # A server may refuse a request before it has read all of it, and its response says why. Without a response,
        # receiving fails in the same way.
        if self._cut:
            raise Interrupted from None

    async def _receive(self) -> None:
        try:
            self._take(await self._open().receive(self._deadline))
        except OSError as error:
            raise self._failure(error) from error

    def _open(self) -> Stream | TlsStream:
        if self._stream is None:
            raise HttpClientError("the connection was closed")
        return self._stream

    def _take(self, data: bytes) -> None:
        if not data and self._cut:
            raise Interrupted
        self._parser.feed(data)

    def _failure(self, error: OSError) -> Exception:
        if not is_own(error):
            return error
        if self._cut:
            return Interrupted()
        if isinstance(error, HttpClientError):
            return error
        return HttpClientError(f"the connection broke: {error.strerror or error}")

    def _done(self) -> None:
        parser = self._parser
        if parser.complete and parser.keep_alive and not self._cut:
            self._idle_since = monotonic()
        else:
            self.close()
