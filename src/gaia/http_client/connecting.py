"""From a URL to a connection over which its server can be spoken with."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable
from time import monotonic

from gaia.http_client.errors import ConnectFailed, TimedOut
from gaia.http_client.settings import HttpSettings
from gaia.http_client.stream import Deadline, Stream
from gaia.http_client.url import Url

__all__ = ["connect"]

_LOOK_SECONDS = 0.1
"""How often a connection that is being made is looked at: not every system wakes up its thread when it is shut down."""

Watch = Callable[[socket.socket | None], None]
"""Is told the socket that another thread may shut down, before the first wait for it. Raises `Interrupted`."""


def connect(url: Url, settings: HttpSettings, deadline: Deadline, watch: Watch) -> Stream:
    """Raises `ConnectFailed`, `TimedOut`, and what `watch` raises."""
    connected = _connect_tcp(url.host, url.port, monotonic() + settings.connect_seconds, deadline, watch)
    return Stream(connected)


def _connect_tcp(host: str, port: int, until: float, deadline: Deadline, watch: Watch) -> socket.socket:
    """A connection to the first address of `host` that takes one, trying each for its share of the time."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConnectFailed(f"cannot look up {host}: {_reason(error)}") from error
    watch(None)
    problem = "it has no address"
    for number, (family, kind, protocol, _, address) in enumerate(found):
        share = monotonic() + (until - monotonic()) / (len(found) - number)
        try:
            connecting = socket.socket(family, kind, protocol)
        except OSError as error:
            problem = _reason(error)
            continue
        try:
            _connect_socket(connecting, address, share, deadline, watch)
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A stream that is quiet for hours must notice that the other side is gone.
            connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return connecting
        except TimedOut:
            connecting.close()
            raise
        except OSError as error:
            problem = _reason(error)
            connecting.close()
        except BaseException:
            connecting.close()
            raise
    raise ConnectFailed(f"cannot connect to {place}: {problem}")


def _connect_socket(
    connecting: socket.socket, address: tuple[object, ...], until: float, deadline: Deadline, watch: Watch
) -> None:
    """Raises OSError."""
    connecting.setblocking(False)
    begun = connecting.connect_ex(address)
    watch(connecting)
    if begun not in (0, errno.EINPROGRESS, errno.EINTR, errno.EWOULDBLOCK):
        raise OSError(begun, os.strerror(begun))
    ready = select.poll()
    ready.register(connecting, select.POLLOUT)
    while True:
        now = monotonic()
        limit = deadline() if callable(deadline) else deadline
        if limit is not None and now >= limit:
            raise TimedOut("the deadline of the request has passed before there was a connection")
        if now >= until:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        wait = min(until - now, _LOOK_SECONDS, _LOOK_SECONDS if limit is None else limit - now)
        if ready.poll(wait * 1000):
            break
        watch(connecting)
    watch(connecting)
    failed = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failed:
        raise OSError(failed, os.strerror(failed))


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
