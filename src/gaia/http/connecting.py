"""From a URL to a stream on which its server can be spoken with: addresses, proxies, TLS."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from collections.abc import Callable
from time import monotonic
from typing import Any

from gaia.http.errors import ConnectFailed, HttpClientError, ProtocolBroken, TimedOut, TooLong
from gaia.http.proxies import Proxy
from gaia.http.request_head import encode_head
from gaia.http.response_parser import ResponseParser
from gaia.http.settings import HttpSettings
from gaia.http.stream import Deadline, Stream
from gaia.http.tls import TlsStream
from gaia.http.url import Url

_LOOK_SECONDS = 0.1
"""How often a connection that is being made is looked at: not every system wakes up its thread when it is shut down."""

_UNKNOWN_ISSUER = (18, 19, 20, 21)
"""OpenSSL's codes for a certificate that is signed by itself, or by what is not among the trusted ones."""

Watch = Callable[[socket.socket | None], None]
"""Is told the socket that another thread may shut down, before the first wait for it. Raises `Interrupted`."""


def connect(url: Url, settings: HttpSettings, deadline: Deadline, watch: Watch) -> Stream | TlsStream:
    """Raises `ConnectFailed`, `TimedOut`, and what `watch` raises. On an error the socket is left to the caller of it.

    The name is looked up without a limit of time, because that cannot be interrupted; all else has
    `settings.connect_seconds`, and the deadline.
    """
    proxy = settings.proxies.for_url(url)
    first = url if proxy is None else proxy.url
    place = first.address if proxy is None else f"the proxy {first.address}"
    found = _look_up(first)
    # An interruption meanwhile.
    watch(None)
    until = monotonic() + settings.connect_seconds

    def limit() -> float:
        at = deadline() if callable(deadline) else deadline
        return until if at is None else min(at, until)

    try:
        stream: Stream | TlsStream = Stream(_connect_tcp(place, found, limit, watch))
        if first.scheme == "https":
            stream = _with_tls(stream, first, place, settings, limit)
        if proxy is not None and url.scheme == "https":
            _open_tunnel(stream, url, proxy, limit)
            stream = _with_tls(stream, url, url.address, settings, limit)
    except TimedOut:
        if monotonic() < until:
            raise
        raise ConnectFailed(f"cannot connect to {url.address} within {settings.connect_seconds:g} s") from None
    except HttpClientError:
        raise
    except OSError as error:
        raise ConnectFailed(f"cannot connect to {url.address}: {_reason(error)}") from error
    return stream


def _look_up(url: Url) -> list[tuple[Any, ...]]:
    try:
        return [*socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        raise ConnectFailed(f"cannot look up {url.host}: {_reason(error)}") from error


def _connect_tcp(place: str, found: list[tuple[Any, ...]], limit: Callable[[], float], watch: Watch) -> socket.socket:
    """A connection to the first address that takes one. Each has its share of the time."""
    problem = "it has no address"
    for number, (family, kind, protocol, _, address) in enumerate(found):
        now = monotonic()
        share = now + (limit() - now) / (len(found) - number)
        try:
            connecting = socket.socket(family, kind, protocol)
        except OSError as error:
            # A system without IPv6.
            problem = _reason(error)
            continue
        try:
            _connect_socket(connecting, address, share, watch)
        except OSError as error:
            problem = _reason(error)
            connecting.close()
        except BaseException:
            connecting.close()
            raise
        else:
            return connecting
    if monotonic() >= limit():
        raise TimedOut("the deadline of the request passed before there was a connection")
    raise ConnectFailed(f"cannot connect to {place}: {problem}")


def _connect_socket(connecting: socket.socket, address: Any, until: float, watch: Watch) -> None:
    """Raises OSError, and what `watch` raises."""
    connecting.setblocking(False)
    connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A stream that is quiet for hours must notice that the other side is gone.
    connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    begun = connecting.connect_ex(address)
    watch(connecting)
    if begun not in (0, errno.EINPROGRESS, errno.EINTR, errno.EWOULDBLOCK):
        raise OSError(begun, os.strerror(begun))
    ready = select.poll()
    ready.register(connecting, select.POLLOUT)
    while not ready.poll(max(0.0, min(_LOOK_SECONDS, until - monotonic())) * 1000):
        watch(connecting)
        if monotonic() >= until:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    watch(connecting)
    failed = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failed:
        raise OSError(failed, os.strerror(failed))


def _open_tunnel(stream: Stream | TlsStream, url: Url, proxy: Proxy, limit: Callable[[], float]) -> None:
    headers = {"Host": url.address}
    if proxy.authorization is not None:
        headers["Proxy-Authorization"] = proxy.authorization
    stream.send(encode_head("CONNECT", url.address, headers) + b"\r\n", limit)
    parser = ResponseParser()
    parser.begin(bodyless=True)
    try:
        while not parser.has_head:
            parser.feed(stream.receive(limit))
    except (ProtocolBroken, TooLong) as error:
        raise ConnectFailed(f"the proxy {proxy.url.address} makes no tunnel to {url.address}: {error}") from error
    if not 200 <= parser.status < 300:
        raise ConnectFailed(f"the proxy {proxy.url.address} makes no tunnel to {url.address}: status {parser.status}")
    if parser.body:
        raise ConnectFailed(f"the proxy {proxy.url.address} says more than that there is a tunnel")


def _with_tls(
    stream: Stream | TlsStream, url: Url, place: str, settings: HttpSettings, limit: Callable[[], float]
) -> Stream | TlsStream:
    if settings.tls is None:
        raise ConnectFailed(f"cannot connect to {place}: no certificates are known for https")
    secure = TlsStream(stream, settings.tls, url.host)
    try:
        secure.shake_hands(limit)
    except ssl.SSLCertVerificationError as error:
        remedy = "; a CA of your own is named with SSL_CERT_FILE" if error.verify_code in _UNKNOWN_ISSUER else ""
        raise ConnectFailed(
            f"cannot connect to {place}: its certificate is not trusted: {error.verify_message}{remedy}"
        ) from error
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise ConnectFailed(f"cannot connect to {place}: TLS fails: {reason}") from error
    return secure


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
