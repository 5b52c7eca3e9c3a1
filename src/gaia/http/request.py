"""The head of a request: the settings of all requests to one server, cookies, and headers."""

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
    """Keeps cookies up to 8,192 characters in all, and ignores further ones. Thread-safe."""

    has_any = False

    def header_for(self, url: Url) -> str | None:
        """The value of the header ``Cookie``; None if there is none to send."""
        request = _asking(url)
        self.add_cookie_header(request)
        return request.get_header("Cookie")

    def take(self, url: Url, set_cookie: Sequence[str]) -> None:
        self.extract_cookies(cast("HTTPResponse", _Answer(set_cookie)), _asking(url))

    def set_cookie(self, cookie: Cookie) -> None:
        value = cookie.value or ""
        if not (value.isascii() and value.isprintable()):
            # A header cannot carry it.
            return
        others = sum(_size(other) for other in self if (other.name, other.path) != (cookie.name, cookie.path))
        if others + _size(cookie) <= _MAX_CHARACTERS:
            super().set_cookie(cookie)
            self.has_any = True


class _Answer:
    """The part of a response that `CookieJar` uses."""

    def __init__(self, set_cookie: Sequence[str]) -> None:
        self._message = Message()
        for value in set_cookie:
            self._message["Set-Cookie"] = value

    def info(self) -> Message:
        return self._message


def _asking(url: Url) -> Request:
    """The part of a request that `CookieJar` uses."""
    return Request(str(url))  # noqa: S310 - nothing is opened with it


def _size(cookie: Cookie) -> int:
    return len(cookie.name) + len(cookie.value or "") + len(cookie.path)


@dataclass(frozen=True)
class HttpSettings:
    """Settings of all requests to one server, for connections on any thread. Immutable except for the cookies."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request. A header of the request itself replaces the one of the same name here."""
    tls: ssl.SSLContext | None = None
    """The trusted certificates (see `tls_context`); None if no URL and no proxy is ``https``."""
    proxies: Proxies = field(default_factory=Proxies)
    cookies: Cookies = field(default_factory=Cookies, repr=False)
    connect_seconds: float = 10.0
    """For connection, proxy and TLS together. The deadline of the request applies too."""
    idle_seconds: float = 3.0
    """How long an idle connection is kept. Proxies often close one after 5 s, and lose a request of that moment."""
    max_bytes: int = 16 * 1024 * 1024
    """Of the decompressed body of a success. A longer one raises `TooLong`. The body of a failure is cut at 64 KiB."""


def encode_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
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
    """All headers. Of several with the same name, in any case, the last one counts."""
    return dict({name.lower(): (name, value) for headers in several for name, value in headers.items()}.values())
