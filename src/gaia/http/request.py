"""What a request consists of besides its body: the settings of all requests to one server, cookies, and the head."""

from __future__ import annotations

import ssl
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPResponse
from http.cookiejar import Cookie, CookieJar
from typing import cast
from urllib.request import Request

from gaia.http.url import Proxies, Url

_MAX_CHARACTERS = 8192

_FRAMING = frozenset({"content-length", "transfer-encoding"})

_TOKEN = frozenset(string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~")


class Cookies(CookieJar):
    """As many cookies as a request can repeat, the first ones first. Thread-safe."""

    has_any = False
    """Whether a cookie was ever kept."""

    def header_for(self, url: Url) -> str | None:
        """The value of the header ``Cookie``; None if there is none to send."""
        request = _asking(url)
        self.add_cookie_header(request)
        return request.get_header("Cookie")

    def take(self, url: Url, set_cookie: Sequence[str]) -> None:
        """Keep what the headers ``Set-Cookie`` of the response to a request to `url` say."""
        self.extract_cookies(cast("HTTPResponse", _Answer(set_cookie)), _asking(url))

    def set_cookie(self, cookie: Cookie) -> None:
        value = cookie.value or ""
        if not (value.isascii() and value.isprintable()):
            # It could not be sent.
            return
        others = sum(_size(other) for other in self if (other.name, other.path) != (cookie.name, cookie.path))
        if others + _size(cookie) <= _MAX_CHARACTERS:
            super().set_cookie(cookie)
            self.has_any = True


class _Answer:
    """What a cookie jar looks at of a response."""

    def __init__(self, set_cookie: Sequence[str]) -> None:
        self._message = Message()
        for value in set_cookie:
            self._message["Set-Cookie"] = value

    def info(self) -> Message:
        return self._message


def _asking(url: Url) -> Request:
    """What a cookie jar looks at of a request."""
    return Request(str(url))  # noqa: S310 - nothing is opened with it


def _size(cookie: Cookie) -> int:
    return len(cookie.name) + len(cookie.value or "") + len(cookie.path)


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


def encode_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Request line and headers, without the empty line at the end. Raises ValueError, which shows no value."""
    lines = [f"{method} {target} HTTP/1.1\r\n"]
    for name, value in headers.items():
        if not name or not _TOKEN.issuperset(name):
            raise ValueError(f"headers: {name!r} is not the name of a header")
        if name.lower() in _FRAMING:
            raise ValueError(f"headers.{name}: the client sets it")
        # Visible characters of ASCII, spaces and tabs.
        if not (value.isascii() and value.replace("\t", " ").isprintable()):
            raise ValueError(f"headers.{name}: the value has characters that cannot be sent (line breaks, accents, …)")
        lines.append(f"{name}: {value.strip()}\r\n")
    return "".join(lines).encode("ascii")


def merged(*several: Mapping[str, str]) -> dict[str, str]:
    """All headers; of those with the same name, in whatever case, the last one."""
    return dict({name.lower(): (name, value) for headers in several for name, value in headers.items()}.values())
