"""`ClientAddress`: the IP address of a client, also behind proxies that are trusted."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class ClientAddress:
    """Reads the header X-Forwarded-For of trusted proxies. Immutable."""

    def __init__(self, trusted: Iterable[str]) -> None:
        """`trusted` are addresses and networks of proxies, such as ``10.0.0.0/8``. Raises ValueError."""
        self._networks = [ipaddress.ip_network(each, strict=False) for each in trusted]

    def trusts(self, peer: str | None) -> bool:
        """Whether what `peer` says of its clients counts."""
        if not self._networks or peer is None:
            return False
        found = _address(peer)
        return found is not None and any(found in network for network in self._networks)

    def behind(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """Whose request it is that `peer`, a trusted proxy, has passed on. Names of `headers` are in lower case.

        Each proxy appends the address that it was reached from, so the client is the last one that is no trusted proxy.
        What stands before that address, anybody may have written. What is no address was hidden by the proxy behind it.
        """
        client = peer
        given = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        for each in reversed(given.split(",")):
            found = _address(each.strip())
            if found is None:
                break
            client = str(found)
            if not self.trusts(client):
                break
        return client


def _address(text: str) -> _Address | None:
    """Some proxies append the port."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
