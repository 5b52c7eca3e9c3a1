"""`HttpConnection`: one exchange at a time over one connection, which other threads can tear down."""

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
"""So much of the body is copied behind the head, so that a small request is one packet."""

_WITHOUT_BODY = frozenset({"DELETE", "GET", "HEAD", "OPTIONS"})

_JUST_NOW_SECONDS = 1e-3
"""A request does not look again whether its connection is still open, if `is_connected` has looked so recently."""


class HttpConnection:
    """For one exchange at a time; `interrupt`, and in a forked child `close`, are for any thread and signal handler."""

    _socket: socket.socket | None = None
    """What `interrupt` shuts down. A class attribute, because `__del__` may come before the end of `__init__`."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._lock = reentrant_lock()
        """Owns `_socket`, so that only an open one is shut down, and `_cut`."""
        self._cut = False
        # The exchange owns the rest.
        self.waits_here = False
        """Whether the thread that drives it drives nothing else, and waits with `Stream.receive_here`."""
        self._stream: Stream | TlsStream | None = None
        self._origin: tuple[str, str, int] | None = None
        self._idle_since: float | None = None
        """Since when another request may use `_stream`; None while there is a response on it."""
        self._looked_at = 0.0
        """When `is_connected` found the connection open; 0 if it did not, and after the next request."""
        self._parser = ResponseParser()
        self._deadline: Deadline = None
        self._head_key: tuple[str, Url, Mapping[str, str], bool] | None = None
        self._head = b""

    @property
    def is_connected(self) -> bool:
        """Whether a request to the origin of the last one needs no new connection, as far as is known. Never waits."""
        # What can be read is data that was not asked for, or the end.
        is_open = self._stream is not None and not self.is_stale and not self._stream.is_readable()
        self._looked_at = monotonic() if is_open else 0.0
        return is_open

    @property
    def is_kept(self) -> bool:
        """Whether there is a connection that another request could use, if it has come before the end of its time."""
        return self._idle_since is not None

    @property
    def is_stale(self) -> bool:
        """Whether nothing has used the connection for so long that the next request makes another one."""
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
    ) -> Response:
        """Send a request, once, and give the response: a context, inside of which its body is to be read.

        `deadline`, a reading of `time.monotonic`, is that of the whole exchange, the body included; a callable is asked
        again during each wait. `on_sending` is called when there is a connection, right before the first byte, and
        prevents the request by raising; `on_status` with the status of the response. `with_shared` says whether the
        headers of the settings are sent, which are for one server. A caller's thread connects to nothing: it leaves the
        exchange to the I/O thread then.

        Raises `HttpClientError`: `ConnectFailed`, `TimedOut`, `ProtocolBroken`, `TooLong`, or itself if the connection
        broke; `Interrupted`; what `on_sending` raises; ValueError for headers that cannot be sent. No request is sent a
        second time.
        """
        self._cut = False
        self._deadline = deadline
        head = self._encoded_head(method, url, headers, body, with_shared)
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
        if b"set-cookie" in parser.headers:
            values = parser.headers[b"set-cookie"].decode("latin-1").split("\n")
            self._settings.cookies.take(url, values)
        if on_status is not None:
            on_status(response.status)
        return response

    def interrupt(self) -> None:
        """Make the request under way raise `Interrupted`. Before it is connected, its `on_sending` has to raise it."""
        with self._lock:
            self._cut = True
            if self._socket is not None:
                # Closing the socket would not wake up the thread that waits. The other side may have closed it already.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, or a forked child's copy of it. The next request makes another one."""
        self._stream = self._idle_since = None
        with self._lock:
            if self._socket is not None:
                # First of all: an exception of a signal handler may come before the next line.
                self._socket.close()
                self._socket = None

    def __del__(self) -> None:
        # An exception of a signal handler may take the connection away from what would close it. Nothing else has a
        # reference by now, so no lock is needed, which a finalizer may not take.
        if self._socket is not None:
            self._socket.close()

    # Inside.

    async def _connect(self, url: Url) -> None:
        self.close()
        connected, self._stream = await connect(url, self._settings, self._deadline)
        with self._lock:
            self._socket = connected
        self._parser = ResponseParser()
        self._origin = url.origin
        self._idle_since = monotonic()

    def _encoded_head(self, method: str, url: Url, headers: Mapping[str, str], body: bytes, with_shared: bool) -> bytes:
        if (method, url, headers, with_shared) != self._head_key:
            settings = self._settings
            complete = merged({"Host": url.authority}, settings.headers if with_shared else {}, headers)
            target = url.target
            if url.scheme == "http" and (proxy := settings.proxies.for_url(url)) is not None:
                target = str(url)
                if proxy.authorization is not None:
                    complete["Proxy-Authorization"] = proxy.authorization
            self._head = encode_head(method, target, complete)
            self._head_key = (method, url, dict(headers), with_shared)
        head = self._head
        cookies = self._settings.cookies
        if cookies.has_any and (cookie := cookies.header_for(url)) is not None:
            head += b"Cookie: %b\r\n" % cookie.encode("latin-1")
        if not body and method in _WITHOUT_BODY:
            return b"%b\r\n" % head
        return b"%bContent-Length: %d\r\n\r\n" % (head, len(body))

    def _send_now(self, stream: Stream | TlsStream, data: bytes) -> int:
        """How much of it was sent without waiting."""
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
        # A server may refuse a request before it has read all of it, and say why. If not, reading says the same.
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
