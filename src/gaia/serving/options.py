"""`HttpOptions`: the address of an HTTP server, and the requests that it accepts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
DEFAULT_PORTS = {"http": 80, "https": 443}
DEFAULT_MAX_BODY = 4 * 1024 * 1024


class UnsafeOptions(ValueError):
    """The options would let every machine that can reach this one call the server."""


@dataclass(frozen=True)
class HttpOptions:
    """The options of an HTTP server. The defaults serve this machine only."""

    host: str = "127.0.0.1"
    """The address to listen on. Any address other than this machine's own requires a token."""
    port: int = 8000
    """0 takes a free port."""
    token: str | None = field(default=None, repr=False)
    """The token that clients must send as ``Authorization: Bearer …``."""
    certificate: str | None = field(default=None, repr=False, kw_only=True)
    """A certificate and its private key as PEM, for TLS; None for plain HTTP."""
    allow_hosts: tuple[str, ...] = ()
    """Host names, without a port, under which clients reach the server, besides the loopback names and `host`; ``*``
    stands for all."""
    allow_origins: tuple[str, ...] = ()
    """Origins of web pages that may call the server, such as ``https://app.example``, besides its own pages."""
    trusted_proxies: tuple[str, ...] = field(default=(), kw_only=True)
    """Addresses and networks of proxies whose header X-Forwarded-For counts."""
    allow_anonymous: bool = False
    """Whether clients at other than loopback addresses need no token."""
    max_body: int = DEFAULT_MAX_BODY
    """Most bytes of a request's body."""
    max_connections: int = 200
    """Connections at once. Beyond that, connections without a complete request are dropped, from the largest client."""
    head_timeout: float = 10.0
    """Seconds that a client may take to send the head of a request."""
    body_timeout: float = 60.0
    """Seconds that a client may take to send the body of a request."""
    shutdown_delay: float = 0.0
    """How long the server still accepts requests after the signal to end, so that load balancers notice."""
    shutdown_grace: float = 5.0
    """How long requests then may take to end."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return _is_loopback(self.host)

    def check(self) -> None:
        """Raise `UnsafeOptions` if the token is empty, or if other machines could call the server without a token."""
        if self.token is not None and not self.token.strip():
            raise UnsafeOptions("the token is empty")
        if self.token is None and not self.allow_anonymous and not self.is_loopback:
            raise UnsafeOptions(
                f"{self.host} can be reached from other machines: give a token, or allow anonymous calls explicitly"
            )

    def allows_host(self, header: str) -> bool:
        """Whether a request's Host header names this server."""
        parts = _authority(f"//{header}")
        return parts is not None and self._is_own(parts.hostname)

    def allows_origin(self, header: str, host: str) -> bool:
        """Whether a web page of this origin may call the server. `host` is the request's Host header, which is allowed.

        Besides `allow_origins`, the server's own pages may: its names, with the port that the client addresses.
        """
        if header in self.allow_origins:
            return True
        origin, own = _authority(header), _authority(f"//{host}")
        if origin is None or own is None or origin.scheme not in DEFAULT_PORTS or not self._is_own(origin.hostname):
            return False
        default = DEFAULT_PORTS[origin.scheme]
        return (origin.port or default) == (own.port or default)

    def _is_own(self, name: str | None) -> bool:
        return (
            "*" in self.allow_hosts
            or name in LOOPBACK_NAMES
            or name in {own.lower().strip("[]") for own in (self.host, *self.allow_hosts)}
        )


def _authority(url: str) -> SplitResult | None:
    """The parts of a URL that has only a scheme and an authority; None for any other URL."""
    try:
        parts = urlsplit(url)
        # Reading the port raises ValueError if it is invalid.
        _ = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
