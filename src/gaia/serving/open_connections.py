"""`OpenConnections`: how many connections a server has, and which of them makes room for another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from enum import Enum
from typing import Generic, Protocol, TypeVar

STALLED_SECONDS = 30.0
"""How long a client may take nothing at all of a response that no longer fits the buffers."""

TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"


class Waiting(Enum):
    """What the server waits for on a connection."""

    NOTHING = "nothing"
    """There is no request."""
    HEAD = "head"
    BODY = "body"
    APPLICATION = "application"


class OneConnection(Protocol):
    """What is asked of a connection."""

    @property
    def waiting(self) -> Waiting: ...

    @property
    def group(self) -> Hashable:
        """Whose it is, as far as that is known."""

    def drop(self) -> None: ...


Connection = TypeVar("Connection", bound=OneConnection)


class OpenConnections(Generic[Connection]):
    """The open connections of one server, oldest first. For its event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open: dict[Connection, None] = {}
        self.counts: Counter[Hashable] = Counter()
        """How many each group has."""

    def add(self, connection: Connection) -> bool:
        """False if there are too many, all with complete requests. Otherwise one that is not that far makes room.

        It is one of the group that has the most.
        """
        if len(self.open) >= self.most:
            for waiting in (Waiting.HEAD, Waiting.NOTHING, Waiting.BODY):
                found = [each for each in self.open if each.waiting is waiting]
                if found:
                    max(found, key=lambda each: self.counts[each.group]).drop()
                    break
            else:
                return False
        self.open[connection] = None
        self.counts[connection.group] += 1
        return True

    def remove(self, connection: Connection) -> None:
        if connection in self.open:
            del self.open[connection]
            self._count_less(connection.group)

    def _count_less(self, group: Hashable) -> None:
        self.counts[group] -= 1
        if not self.counts[group]:
            del self.counts[group]
