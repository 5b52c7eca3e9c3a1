"""`Cookies`: those of one server, which all connections to it share."""

from __future__ import annotations

from collections.abc import Sequence
from email.message import Message
from http.client import HTTPResponse
from http.cookiejar import Cookie, CookieJar
from typing import cast
from urllib.request import Request

from gaia.http.url import Url

_MAX_CHARACTERS = 8192
"""Each request repeats them, and servers take some 8 KiB of headers."""


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
