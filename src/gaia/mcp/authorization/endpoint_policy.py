"""The addresses to which a login may connect. MCP and authorization servers name them, and both may be hostile.

A server on the internet must not lead the client to programs of this machine or its network.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Literal
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address

Where = Literal["internet", "network", "machine", "nowhere"]
"""``nowhere``: link-local and multicast addresses, which no authorization server has."""

_NAT64 = ip_network("64:ff9b::/96")


class EndpointPolicy:
    """Decides where one server's login may connect. For one event loop.

    All connections use https or stay on this machine. A server on the internet may name only addresses on the internet,
    a server in a private network also private addresses, and a server on this machine any address. The hosts of the
    server itself and of the configured authorization server are always permitted.
    """

    def __init__(self, server: str, issuer: str | None = None) -> None:
        self._server = urlsplit(server).hostname or ""
        self._named_by_user = {self._server, urlsplit(issuer or "").hostname}
        self._server_is: Where | None = None

    async def check(self, url: str) -> None:
        """Raise `OAuthFlowError` if the URL itself shows that the policy forbids it."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme != "https" and not is_loopback(host):
            # All endpoints of an authorization server must be served over https ("Communication Security").
            raise _refused(f"refused to send anything to {_shown(url)}: it is not https")
        if host not in self._named_by_user and (address := literal(host)) is not None:
            await self._check_address(_shown(url), address)

    def trace(self, url: str) -> Callable[[str, dict[str, Any]], Awaitable[None]]:
        """The httpx2 extension ``trace`` for a request to `url`: raises `OAuthFlowError` for a forbidden address.

        The check runs after the connection is made and before anything is sent, because only then is the address of a
        name known. If a proxy makes the connection, the proxy decides.
        """
        host = urlsplit(url).hostname or ""
        connecting_to = ""

        async def observe(event: str, details: dict[str, Any]) -> None:
            nonlocal connecting_to
            if event.endswith("connect_tcp.started"):
                connecting_to = details["host"]
            elif event.endswith("connect_tcp.complete") and connecting_to == host and host not in self._named_by_user:
                stream = details["return_value"]
                peer, *_ = stream.get_extra_info("server_addr")
                try:
                    await self._check_address(_shown(url), ip_address(peer.partition("%")[0]))
                except Exception:
                    await stream.aclose()
                    raise

        return observe

    async def _check_address(self, url: str, address: Address) -> None:
        where = where_is(address)
        if where == "internet":
            return
        if self._server_is is None:
            self._server_is = await _place_of(self._server)
        if self._server_is != "machine" and not where == self._server_is == "network":
            raise _refused(
                f"refused to send anything to {url}: {address} is not an address on the internet, and the server "
                f"{self._server} is elsewhere; if that is its authorization server, name it as issuer in the "
                "server's auth"
            )


async def _place_of(host: str) -> Where:
    """Where the MCP server is. Resolving its name reveals nothing, because the client connects there anyway."""
    if (address := literal(host)) is not None:
        return where_is(address)
    import asyncio

    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        # A proxy may know the name.
        return "internet"
    places = {where_is(ip_address(str(entry[4][0]).partition("%")[0])) for entry in found}
    # If a name has several addresses, the most public one counts.
    return next(place for place in ("internet", "nowhere", "network", "machine") if place in places)


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _refused(message: str) -> Exception:
    # Imported here because most callers of this module do not need the SDK.
    from mcp.client.auth import OAuthFlowError

    return OAuthFlowError(message)


def is_loopback(host: str) -> bool:
    address = literal(host)
    return address is not None and where_is(address) == "machine"


def literal(host: str) -> Address | None:
    """The address of a URL's host; None for a name that has to be resolved."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return IPv4Address("127.0.0.1")
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        # Resolvers also accept 127.1, 0x7f000001 and 2130706433.
        return IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def where_is(address: Address) -> Where:
    if isinstance(address, IPv6Address) and (inner := _inner(address)) is not None:
        return where_is(inner)
    if address.is_loopback or address.is_unspecified:
        # Connecting to 0.0.0.0 connects to this machine.
        return "machine"
    if address.is_link_local or address.is_multicast:
        # Cloud services that give out credentials have such addresses.
        return "nowhere"
    if isinstance(address, IPv6Address) and address.is_site_local:
        return "network"
    return "internet" if address.is_global else "network"


def _inner(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
