"""`Shares`: how much one client of a gateway may have of what all clients use.

Connections, streams, memory for bodies and for results that are not read, and processes. `Limits` is about calls: they
can wait. What is counted here is refused, or taken from the client's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from gaia.mcp.gateway.access.limit_settings import GatewayLimits
from gaia.mcp.gateway.access.refusals import Refusals

RETRY_SECONDS = 1
"""When a client that has its share may try again."""


class OverShare(Exception):
    """The client has as much as it may have. The message says of what, and which key allows more."""


class LargerThanShare(OverShare):
    """The client could not have this at any time: it is larger than its whole share."""


class Shares:
    """Those of all clients, by name. Belongs to the gateway's event loop."""

    def __init__(self, refusals: Refusals) -> None:
        """What is refused is noted in `refusals`."""
        self.settings = GatewayLimits()
        self._refusals = refusals
        self._used: Counter[tuple[str, str]] = Counter()

    def take_stream(self, client: str, address: str | None) -> Callable[[], None]:
        """Count a stream until the function returned is called. Raises `OverShare`."""
        return self._take(client, "streams", 1, self.settings.streams_per_client, "streamsPerClient", address)

    def take_body(self, client: str, size: int, address: str | None) -> Callable[[], None]:
        """Count the bytes of a request's body until the function returned is called.

        Raises `OverShare`; of this `LargerThanShare` if trying again would not help.
        """
        most = self.settings.body_bytes_per_client
        if size > most:
            message = (
                f"the body has up to {size} bytes, and client {client!r} may send {most} at once; send "
                "a smaller one, or raise 'bodyBytesPerClient' of \"limits\" in the clients file"
            )
            self._refusals.note("over_limit", message, "bodyBytesPerClient", address, client)
            raise LargerThanShare(message)
        return self._take(client, "bytes of open requests", size, most, "bodyBytesPerClient", address)

    def check_unread(self, client: str, unread: int, address: str | None) -> None:
        """Raise `OverShare` if a client has left too many bytes unread to be given more."""
        most = self.settings.unread_bytes_per_client
        if unread > most:
            raise self.over(
                client, f"{unread} bytes of responses that it does not read", "unreadBytesPerClient", address
            )

    def over(self, client: str, what: str, key: str, address: str | None) -> OverShare:
        """The error for a client that has `what`, and may have more only with a higher `key`. It leaves a trace."""
        message = (
            f'client {client!r} has {what}, and limits allow no more; raise {key!r} of "limits" in the clients file'
        )
        self._refusals.note("over_limit", message, key, address, client)
        return OverShare(message)

    def used(self, client: str, what: str) -> int:
        """How much a client has now."""
        return self._used[client, what]

    def _take(
        self, client: str, what: str, amount: int, most: int, key: str, address: str | None
    ) -> Callable[[], None]:
        place = (client, what)
        if self._used[place] + amount > most:
            raise self.over(client, f"{self._used[place]} {what}", key, address)
        self._used[place] += amount
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._used[place] -= amount
                if not self._used[place]:
                    del self._used[place]

        return release
