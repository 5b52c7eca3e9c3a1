"""What can be told of a cluster and the servers placed there, by any program that has joined it. Holds no secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

_HIDDEN = ("object_store_memory", "node:")
"""Resources of each node that nothing is placed by."""

_MIB = 1024 * 1024
_UNIT = 0.0001
"""The least amount that Ray counts; what it tells is a little off."""


class UserReport(msgspec.Struct, frozen=True, kw_only=True):
    """One program that uses a placed server."""

    driver: str
    """The program, its machine and its process."""
    silent: float
    """Seconds since the host has heard of it."""
    in_flight: int = 0
    """Its calls at the host."""


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says of itself."""

    server: str | None = None
    """None before a program has said which one it is to start."""
    version: str
    """Of gaia-mcp."""
    python: str
    """The version of the interpreter."""
    node: str
    """The host name of its machine."""
    node_id: str | None = None
    pid: int
    """Of the actor's process."""
    server_pid: int | None = None
    state: str
    """Of the server."""
    error: str | None = None
    generation: int = 0
    restarts: int = 0
    seconds: float
    """Since the actor's process was started."""
    shared: bool = False
    """Whether it goes on without the program that has started it."""
    users: list[UserReport] = []
    resources: dict[str, float] = {}
    """What it occupies of its node."""


class PlacedHost(msgspec.Struct, frozen=True, kw_only=True):
    """An actor for a placed server, as the cluster knows it."""

    server: str
    actor: str
    """What the cluster calls the actor."""
    report: HostReport | None = None
    """None if it has no place yet, or does not answer."""


class NodeRoom(msgspec.Struct, frozen=True, kw_only=True):
    """A node, what it has, and what of that is free."""

    node: str
    node_id: str
    total: dict[str, float]
    free: dict[str, float] | None = None
    """None if the cluster does not say so for each node."""

    @property
    def shown(self) -> dict[str, tuple[float | None, float]]:
        """By resource, what is free, and what there is."""
        kept = {name: amount for name, amount in self.total.items() if not name.startswith(_HIDDEN)}
        return {
            name: (None if self.free is None else self.free.get(name, 0.0), total)
            for name, total in sorted(kept.items())
        }


class NodeSoftware(msgspec.Struct, frozen=True, kw_only=True):
    """What is installed on a node."""

    node: str
    python: str
    gaia: str | None = None
    """The version of gaia-mcp; None if it is not installed."""
    command: str | None = None
    """Where the command is that was asked for; None if it was not found."""


def actor_name(server: str, unique: str) -> str:
    return f"{server}#{unique}"


def server_of_actor(name: str) -> str:
    return name.rpartition("#")[0] or name


def amount_text(name: str, amount: float) -> str:
    """An amount of a resource for people; memory is counted in bytes."""
    return f"{amount / _MIB:,.0f} MiB" if name == "memory" else f"{amount:g}"


def shortage(demand: Mapping[str, float], nodes: Sequence[NodeRoom], free: Mapping[str, float]) -> str | None:
    """Why something that needs `demand` cannot be placed now; None if nothing is known to be missing.

    `free` is what is free in the whole cluster.
    """
    for name, amount in demand.items():
        most = max((node.total.get(name, 0) for node in nodes), default=0)
        if most < amount:
            has = f"has more than {amount_text(name, most)}" if most else "has any"
            return (
                f"no node of the Ray cluster can take it: it needs {amount_text(name, amount)} of the resource "
                f"{name!r}, and none of the {len(nodes)} nodes {has}"
            )
    for name, amount in demand.items():
        if free.get(name, 0) + _UNIT / 2 < amount:
            return (
                f"all of the resource {name!r} is in use: it needs {amount_text(name, amount)}, and "
                f"{amount_text(name, free.get(name, 0))} is left in the Ray cluster"
            )
    missing = [node_shortages(demand, node) for node in nodes]
    if demand and missing and all(missing) and all(node.free is not None for node in nodes):
        return "no single node has all of what it needs: " + "; ".join(
            f"{node.node} lacks {', '.join(lacks)}" for node, lacks in zip(nodes, missing, strict=True)
        )
    return None


def node_shortages(demand: Mapping[str, float], node: NodeRoom) -> list[str]:
    """The resources of which a node has less left than `demand`."""
    left = node.total if node.free is None else node.free
    return [name for name, amount in demand.items() if left.get(name, 0) + _UNIT / 2 < amount]
