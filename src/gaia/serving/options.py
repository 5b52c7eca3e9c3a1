"""`HttpOptions`: where an HTTP server listens, and which requests it accepts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

__all__ = ["HttpOptions", "UnsafeOptions"]

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
DEFAULT_MAX_BODY = 4 * 1024 * 1024


class UnsafeOptions(ValueError):
    """Every machine that can reach this one could call the server."""


@dataclass(frozen=True)
class HttpOptions:
    """The options of an HTTP server; the defaults serve this machine only."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes a free one."""
    token: str | None = field(default=None, repr=False)
    """What clients must send as ``Authorization: Bearer …``."""
    allow_hosts: tuple[str, ...] = ()
    """Host names, without port, under which clients reach the server besides the loopback names and `host`."""
    allow_origins: tuple[str, ...] = ()
    """Origins of web pages that may call, such as ``https://app.example``; those of this machine always may."""
    allow_anonymous: bool = False
    """Listen on other than loopback addresses without a token."""
    max_body: int = DEFAULT_MAX_BODY
    """Bytes."""
    shutdown_grace: float = 5.0
    """Seconds that requests get to end when the server is told to."""

    def check(self) -> None:
        """Raise `UnsafeOptions` if other machines could call without a token."""
        if self.token is not None and not self.token.strip():
            raise UnsafeOptions("the token is empty")
        if self.token is None and not self.allow_anonymous and not _is_loopback(self.host):
            raise UnsafeOptions(
                f"{self.host} can be reached from other machines: give a token, or allow anonymous calls explicitly"
            )

    def allows_host(self, header: str) -> bool:
        """Whether a request's Host header names this server."""
        name = _host_name(f"//{header}")
        return name is not None and (name in LOOPBACK_NAMES or name in self._names)

    def allows_origin(self, header: str) -> bool:
        """Whether a web page of this origin may call."""
        if header in self.allow_origins:
            return True
        name = _host_name(header)
        return name is not None and header.startswith(("http://", "https://")) and name in LOOPBACK_NAMES

    @property
    def _names(self) -> set[str]:
        return {name.lower().strip("[]") for name in (self.host, *self.allow_hosts)}


def _host_name(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        # Read for its ValueError, which an invalid port raises.
        _ = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
