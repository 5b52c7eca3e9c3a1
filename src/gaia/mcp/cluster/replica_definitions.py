"""Which definitions of tools the client goes by, if the replicas of a server do not agree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Named = dict[str, Any]


class ReplicaDefinitions:
    """The listings of all replicas, by their numbers. For one thread.

    The client goes by the listing that has changed last: what it has compared with filters and pins. A replica whose
    definition of a tool is another one gets no calls of this tool.
    """

    def __init__(self) -> None:
        self._by_replica: dict[int, tuple[Named, list[Any]]] = {}
        self._in_force: Named = {}

    def listed(self, replica: int, definitions: list[Any]) -> bool:
        """A replica has listed its tools. Whether the client has to go by them from now on."""
        named = {one["name"]: one for one in definitions if isinstance(one, dict) and isinstance(one.get("name"), str)}
        before = self._by_replica.get(replica)
        is_unchanged = before is not None and before[0] == named
        self._by_replica[replica] = named, definitions
        if named != self._in_force and is_unchanged:
            # That of another replica is newer.
            return False
        self._in_force = named
        return True

    def removed(self, replica: int) -> None:
        self._by_replica.pop(replica, None)

    def needed_from(self, ready: Iterable[int]) -> list[Any] | None:
        """The definitions of a replica that is ready, if the client goes by those of none of them; else None."""
        others = [self._by_replica[one] for one in ready if one in self._by_replica]
        if not others or any(named == self._in_force for named, _ in others):
            return None
        self._in_force, definitions = others[0]
        return definitions

    def differing(self, replica: int) -> frozenset[str]:
        """Tools whose definitions at this replica are others than those that the client goes by."""
        named = self._by_replica.get(replica, ({}, []))[0]
        if named == self._in_force:
            return frozenset()
        names = named.keys() | self._in_force.keys()
        return frozenset(name for name in names if named.get(name) != self._in_force.get(name))
