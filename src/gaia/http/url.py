"""`Url`: an absolute URL in the parts that a request needs. `Proxies`: the proxies for it."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies

_PORTS = {"http": 80, "https": 443}
# Characters that a path or a query may have unescaped (RFC 3986). A percent sign counts as the start of an escape.
_PATH = "/:@!$&'()*+,;=-._~%"
_QUERY = _PATH + "?"


@dataclass(frozen=True)
class Url:
    """An absolute URL of ``http`` or ``https``, without user, password and fragment."""

    scheme: str
    host: str
    """In lower case and in ASCII; an IPv6 address without brackets."""
    port: int
    target: str

    @classmethod
    def parse(cls, text: str) -> Url:
        """Raises ValueError, whose message does not show the URL, because it may hold secrets."""
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
        """Scheme, host and port. URLs with the same origin have the same server."""
        return (self.scheme, self.host, self.port)

    @cached_property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @cached_property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def join(self, reference: str) -> Url:
        """The URL of a `reference`, such as the header ``Location``, relative to this one. Raises ValueError."""
        try:
            joined = urljoin(str(self), reference.strip())
        except ValueError as error:
            raise ValueError(f"url: {error}") from None
        return self.parse(joined)

    def without_query(self) -> str:
        """For messages: the query may be secret."""
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
        # Raises ValueError for an invalid address. The scope of a link-local address follows a percent sign.
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


@dataclass(frozen=True)
class Proxy:
    """A proxy makes tunnels for ``https``, and forwards requests of ``http``."""

    url: Url
    authorization: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """Raises ValueError, whose message does not show the user and the password."""
        url = text if "://" in text else f"http://{text}"
        scheme = urlsplit(url).scheme
        if scheme not in ("http", "https"):
            raise ValueError(f"proxies of the kind {scheme}:// are not supported, only http:// and https://")
        credentials = credentials_of(url)
        return cls(Url.parse(url), None if credentials is None else basic_authorization(*credentials))


@dataclass(frozen=True)
class Proxies:
    by_scheme: Mapping[str, Proxy] = field(default_factory=dict)
    excepted: tuple[str, ...] = ()
    """As in ``NO_PROXY``: host names (each with its subdomains), addresses, networks, ``*``."""

    @classmethod
    def from_environment(cls) -> Proxies:
        """Proxies from ``HTTP_PROXY`` etc. in any case, or the settings of macOS and Windows. Raises ValueError."""
        found = getproxies()
        by_scheme = {scheme: Proxy.parse(found[scheme]) for scheme in ("http", "https", "all") if found.get(scheme)}
        excepted = (entry.strip().lower() for entry in found.get("no", "").split(","))
        return cls(by_scheme, tuple(entry for entry in excepted if entry))

    def for_url(self, url: Url) -> Proxy | None:
        if not self.by_scheme or any(_names(entry, url) for entry in self.excepted):
            return None
        return self.by_scheme.get(url.scheme) or self.by_scheme.get("all")


def basic_authorization(user: str, password: str) -> str:
    """The value of a header ``Authorization`` or ``Proxy-Authorization`` (RFC 7617)."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


def _names(entry: str, url: Url) -> bool:
    if entry == "*":
        return True
    scheme, found, rest = entry.partition("://")
    if found:
        if scheme not in ("all", url.scheme):
            return False
        entry = rest
    try:
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return _is_below(entry, url)
    try:
        return ipaddress.ip_address(url.host) in network
    except ValueError:
        return False


def _is_below(entry: str, url: Url) -> bool:
    host, colon, port = entry.rpartition(":")
    if colon and port.isdigit():
        if int(port) != url.port:
            return False
        entry = host.strip("[]")
    if entry.startswith(("*.", ".")):
        return url.host.endswith(entry.removeprefix("*"))
    return url.host == entry or url.host.endswith(f".{entry}")
