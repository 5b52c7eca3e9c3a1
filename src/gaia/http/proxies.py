"""Which proxy leads to a URL, by the variables that most programs read."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import getproxies

from gaia.http.url import Url, credentials_of


@dataclass(frozen=True)
class Proxy:
    """Makes tunnels for ``https``, and passes requests of ``http`` on."""

    url: Url
    authorization: str | None = field(default=None, repr=False)
    """The value of the header ``Proxy-Authorization``."""

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """Raises ValueError, which does not show the user and the password."""
        url = text if "://" in text else f"http://{text}"
        scheme = urlsplit(url).scheme
        if scheme not in ("http", "https"):
            raise ValueError(f"proxies of the kind {scheme}:// are not supported, only http:// and https://")
        credentials = credentials_of(url)
        return cls(Url.parse(url), None if credentials is None else basic_authorization(*credentials))


@dataclass(frozen=True)
class Proxies:
    """The proxies for each scheme, and the hosts that need none. Immutable."""

    by_scheme: Mapping[str, Proxy] = field(default_factory=dict)
    """For ``http``, ``https`` and ``all``."""
    excepted: tuple[str, ...] = ()
    """As in ``NO_PROXY``: names, which stand for those below them too, addresses, networks, ``*``."""

    @classmethod
    def from_environment(cls) -> Proxies:
        """``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``, in small letters or capitals.

        On macOS and Windows the settings of the system, if there is none of them. Raises ValueError.
        """
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
    """Whether an entry of ``NO_PROXY`` means `url`."""
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
