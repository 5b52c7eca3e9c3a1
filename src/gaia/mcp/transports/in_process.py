"""Servers that live in this program: objects that stand in a configuration where an entry does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from gaia.mcp.transports.base import ChannelTransport
from gaia.runtime.clock import Clock


class InProcessServer(Mapping[str, Any]):
    """A server that brings its own transport. It is its own entry: ``{"inProcess": server}``.

    So it is given to a manager, a client or an agent as the entry of its name, and ``{**server, "timeout": 5}`` is the
    same server with further keys. Such entries exist in memory only: no file can hold them.
    """

    KEY: ClassVar[str] = "inProcess"
    """The key of an entry under which the server stands."""

    clock: Clock | None = None
    """What its clients take the time from; None is the system's clock."""

    @abstractmethod
    def transport(self, timeout: float) -> ChannelTransport:
        """A transport for one client that is not open yet; `timeout` is in seconds."""

    def __getitem__(self, key: str) -> Any:
        if key != self.KEY:
            raise KeyError(key)
        return self

    def __iter__(self) -> Iterator[str]:
        return iter((self.KEY,))

    def __len__(self) -> int:
        return 1

    # What two entries with one server have in common is the server: neither its copies nor its equals exist.

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, dict) and len(other) == 1 and other.get(self.KEY) is self)

    __hash__ = object.__hash__

    def __deepcopy__(self, _memo: dict[int, Any]) -> InProcessServer:
        return self
