"""`HttpSettings`: what all connections to one server share."""

from __future__ import annotations

import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from gaia.http.cookies import Cookies
from gaia.http.proxies import Proxies


@dataclass(frozen=True)
class HttpSettings:
    """Immutable but for the cookies; connections on any thread use the same one."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; those of a request come in addition, and count where both have one."""
    tls: ssl.SSLContext | None = None
    """What certificates are trusted; None where no URL and no proxy is ``https``. See `tls_context`."""
    proxies: Proxies = field(default_factory=Proxies)
    """Usually `Proxies.from_environment()`."""
    cookies: Cookies = field(default_factory=Cookies, repr=False)
    connect_seconds: float = 10.0
    """For connection, proxy and TLS together; the deadline of the request holds besides."""
    idle_seconds: float = 3.0
    """How long a connection is kept without a request. Proxies often close idle connections after 5 s, and a request
    that is sent in that moment is lost."""
    max_bytes: int = 16 * 1024 * 1024
    """Of the decompressed body of a success. A longer one raises `TooLong`; that of a failure is cut at 64 KiB."""
    max_stream_bytes: float = math.inf
    """The same for a stream of events, whose events have limits of their own."""
