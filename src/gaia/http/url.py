"""`Url`: where a request goes, as the parts that a request is made of."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

_PORTS = {"http": 80, "https": 443}
# What may stand in a path or a query as it is (RFC 3986); a percent sign is taken to be the beginning of an escape.
_PATH = "/:@!$&'()*+,;=-._~%"
_QUERY = _PATH + "?"


@dataclass(frozen=True)
class Url:
    """An absolute URL of ``http`` or ``https``, without user, password and fragment. Immutable."""

    scheme: str
    host: str
    """In lower case and in ASCII; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query, as they stand in a request line."""

    @classmethod
    def parse(cls, text: str) -> Url:
        """Raises ValueError, which does not show the URL: it may hold secrets."""
        stripped = text.strip()
        if not stripped.isprintable():
            raise ValueError("url: it has line breaks or other control characters")
        try:
            return cls._of(urlsplit(stripped))
        except ValueError as error:
            raise ValueError(f"url: {error}") from None

    @classmethod
    def _of(cls, parts: SplitResult) -> Url:
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("must begin with http:// or https:// and name a host")
        try:
            port = _PORTS[parts.scheme] if parts.port is None else parts.port
        except ValueError:
            port = 0
        if port == 0:
            raise ValueError("the port is not a number from 1 to 65535")
        target = quote(parts.path, _PATH) or "/"
        if parts.query:
            target += "?" + quote(parts.query, _QUERY)
        return cls(parts.scheme, _ascii_host(parts.hostname), port, target)

    @cached_property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: URLs with the same origin lead to the same server."""
        return (self.scheme, self.host, self.port)

    @cached_property
    def authority(self) -> str:
        """The value of the header ``Host``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @cached_property
    def address(self) -> str:
        """Host and port, for messages and for a proxy that makes a tunnel."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def join(self, reference: str) -> Url:
        """Where `reference`, such as the header ``Location``, leads from here. Raises ValueError like `parse`."""
        try:
            joined = urljoin(str(self), reference.strip())
        except ValueError as error:
            raise ValueError(f"url: {error}") from None
        return self.parse(joined)

    def without_query(self) -> str:
        """For messages: what follows the path may be secret."""
        return str(self).partition("?")[0]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def credentials_of(text: str) -> tuple[str, str] | None:
    """User and password of a URL; None if it has none. Raises ValueError."""
    parts = urlsplit(text.strip())
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")


def _ascii_host(host: str) -> str:
    if ":" in host:
        # Raises ValueError for what is no address; the scope of a link-local one follows a percent sign.
        address, percent, scope = host.partition("%")
        return ipaddress.IPv6Address(address).compressed + percent + scope
    try:
        ascii_host = host.encode("ascii" if host.isascii() else "idna").decode("ascii").lower()
    except UnicodeError:
        ascii_host = ""
    if not all(ascii_host.removesuffix(".").split(".")):
        raise ValueError("the host is not a name that can be looked up")
    if not all(character.isalnum() or character in "-._" for character in ascii_host):
        raise ValueError("the host has characters that no name has")
    return ascii_host
