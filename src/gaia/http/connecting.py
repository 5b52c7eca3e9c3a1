"""Connects to the server of a URL: looks up addresses, and opens TCP connections, proxy tunnels and TLS."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Callable
from time import monotonic
from typing import Any

from gaia.http.errors import ConnectFailed, HttpClientError, ProtocolBroken, TimedOut, TooLong
from gaia.http.request import HttpSettings, encode_head
from gaia.http.response_parser import ResponseParser
from gaia.http.streams import Stream, TlsStream
from gaia.http.url import Proxy, Url
from gaia.http.waits import Deadline, Job, Ready, time_of

_UNKNOWN_ISSUER = (18, 19, 20, 21)
"""OpenSSL's codes for a certificate that is self-signed, or signed by an issuer that is not trusted."""

Limit = Callable[[], float]


async def connect(url: Url, settings: HttpSettings, deadline: Deadline) -> tuple[socket.socket, Stream | TlsStream]:
    """The socket, and the stream over it. Raises `ConnectFailed` and `TimedOut`.

    Looking up the name may take until the deadline. The rest may take `settings.connect_seconds` at most, too.
    """
    proxy = settings.proxies.for_url(url)
    first = url if proxy is None else proxy.url
    place = first.address if proxy is None else f"the proxy {first.address}"
    found = await _look_up(first, deadline)
    until = monotonic() + settings.connect_seconds

    def limit() -> float:
        at = time_of(deadline)
        return until if at is None else min(at, until)

    connected: socket.socket | None = None
    try:
        connected = await _connect_tcp(place, found, limit)
        stream: Stream | TlsStream = Stream(connected)
        if first.scheme == "https":
            stream = await _with_tls(stream, first, place, settings, limit)
        if proxy is not None and url.scheme == "https":
            await _open_tunnel(stream, url, proxy, limit)
            stream = await _with_tls(stream, url, url.address, settings, limit)
        # From here on the caller closes it.
        result, connected = (connected, stream), None
    except TimedOut:
        if monotonic() < until:
            raise
        raise ConnectFailed(f"cannot connect to {url.address} within {settings.connect_seconds:g} s") from None
    except HttpClientError:
        raise
    except OSError as error:
        raise ConnectFailed(f"cannot connect to {url.address}: {_reason(error)}") from error
    finally:
        if connected is not None:
            connected.close()
    return result


async def _look_up(url: Url, deadline: Deadline) -> list[Any]:
    try:
        return [*socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)]
    except (OSError, UnicodeError):
        # The host is a name, not an address.
        found = await Job(lambda: _addresses(url), deadline=deadline, key=(url.host, url.port))
    if isinstance(found, (OSError, UnicodeError)):
        raise ConnectFailed(f"cannot look up {url.host}: {_reason(found)}") from found
    return list(found)


def _addresses(url: Url) -> list[Any] | OSError | UnicodeError:
    try:
        return [*socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        # Returned, because several exchanges may wait for this lookup.
        return error


async def _connect_tcp(place: str, found: list[Any], limit: Limit) -> socket.socket:
    """Connect to the first address that accepts. Each address gets an equal share of the remaining time."""
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
            await _connect_socket(connecting, address, share)
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


async def _connect_socket(connecting: socket.socket, address: Any, until: float) -> None:
    connecting.setblocking(False)
    connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A stream that is quiet for hours must notice that the other side is gone.
    connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    begun = connecting.connect_ex(address)
    if begun not in (0, errno.EINPROGRESS, errno.EINTR, errno.EWOULDBLOCK):
        raise OSError(begun, os.strerror(begun))
    connected = Ready(connecting, writable=True)
    connected.deadline = until
    if not await connected:
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    failed = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failed:
        raise OSError(failed, os.strerror(failed))


async def _open_tunnel(stream: Stream | TlsStream, url: Url, proxy: Proxy, limit: Limit) -> None:
    headers = {"Host": url.address}
    if proxy.authorization is not None:
        headers["Proxy-Authorization"] = proxy.authorization
    await stream.send(encode_head("CONNECT", url.address, headers) + b"\r\n", limit)
    parser = ResponseParser()
    parser.begin(bodyless=True)
    try:
        while not parser.has_head:
            parser.feed(await stream.receive(limit))
    except (ProtocolBroken, TooLong) as error:
        raise ConnectFailed(f"the proxy {proxy.url.address} makes no tunnel to {url.address}: {error}") from error
    if not 200 <= parser.status < 300:
        raise ConnectFailed(f"the proxy {proxy.url.address} makes no tunnel to {url.address}: status {parser.status}")
    if parser.body:
        raise ConnectFailed(f"the proxy {proxy.url.address} says more than that there is a tunnel")


async def _with_tls(
    stream: Stream | TlsStream, url: Url, place: str, settings: HttpSettings, limit: Limit
) -> Stream | TlsStream:
    if settings.tls is None:
        raise ConnectFailed(f"cannot connect to {place}: no certificates are known for https")
    secure = TlsStream(stream, settings.tls, url.host)
    try:
        await secure.shake_hands(limit)
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
