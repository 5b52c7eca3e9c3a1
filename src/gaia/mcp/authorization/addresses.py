"""Whether an address, or a host in a URL, is this machine, a private network or the internet."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal

Address = IPv4Address | IPv6Address

Where = Literal["internet", "network", "machine", "nowhere"]
"""``nowhere``: link-local and multicast addresses, which no authorization server has."""

_NAT64 = ip_network("64:ff9b::/96")


def is_loopback(host: str) -> bool:
    """Whether a host in a URL is this machine, as far as its name or its number says so."""
    address = literal(host)
    return address is not None and where_is(address) == "machine"


def literal(host: str) -> Address | None:
    """The address that a host in a URL stands for; None for a name that has to be resolved."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return IPv4Address("127.0.0.1")
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        # What resolvers understand besides: 127.1, 0x7f000001, 2130706433.
        return IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def where_is(address: Address) -> Where:
    if isinstance(address, IPv6Address) and (inner := _inner(address)) is not None:
        return where_is(inner)
    if address.is_loopback or address.is_unspecified:
        # To connect to 0.0.0.0 is to connect to this machine.
        return "machine"
    if address.is_link_local or address.is_multicast:
        # The services of clouds that give out credentials are there.
        return "nowhere"
    if isinstance(address, IPv6Address) and address.is_site_local:
        return "network"
    return "internet" if address.is_global else "network"


def _inner(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that is reached by this one."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
