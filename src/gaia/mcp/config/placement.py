"""The ``"placement"`` of a server: its keys, checked."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gaia.mcp.transports.sandbox import memory_bytes
from gaia.runtime.clock import is_number

_MAX_PORT = 65535
_MIN_LEASE, _MAX_LEASE = 1, 3600


EngineName = Literal["ray", "ssh", "kubernetes", "process"]

_ENGINES_OF = {
    "resources": ("ray", "kubernetes"),
    "num_cpus": ("ray", "kubernetes"),
    "memory": ("ray", "kubernetes"),
    "labels": ("ray", "kubernetes"),
    "node": ("ray", "kubernetes"),
    "strategy": ("ray",),
    "runtime_env": ("ray",),
    "address": ("ray",),
    "host": ("ssh",),
    "user": ("ssh",),
    "port": ("ssh",),
    "identity_file": ("ssh",),
    "python": ("ssh",),
    "image": ("kubernetes",),
    "namespace": ("kubernetes",),
}
"""Settings that have a meaning for some engines only."""

MOVED = {
    "replicas": 'give "replicas": N and "stateless": true beside "placement"; client.scale(N) changes the number, '
    "which no longer follows the load",
    "stateless": 'give it beside "placement"',
    "maxPending": 'give it beside "placement"',
}
"""Former keys, and what to do instead."""

_REQUIRED = {"ssh": "host", "kubernetes": "image"}


class Placement(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Where a server runs, or each replica of it. The constructor raises ValueError for unusable values."""

    engine: EngineName = "ray"
    resources: dict[str, float] = msgspec.field(default_factory=dict)
    """Resources of a node that the server needs, by the nodes' names for them."""
    num_cpus: float = 0
    """Processors that the server needs; 0 if only its other resources decide where it runs."""
    memory: str | int | None = None
    """Main memory that the server needs: bytes, or a text such as ``2G`` (K, M and G are powers of 1024)."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that the node must have."""
    node: str | None = None
    """The node itself: its name, or for Ray also its address or id."""
    host: str | None = None
    """For ssh: the machine, as the ssh command takes it."""
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    """For ssh; by default these three are as the user's settings of ssh say."""
    python: str = "python3"
    """For ssh: the interpreter there, in whose environment gaia-mcp is installed."""
    image: str | None = None
    """For Kubernetes: the image of the pod, with gaia-mcp and the server."""
    namespace: str | None = None
    """For Kubernetes; None is the namespace of the present context."""
    strategy: Literal["spread", "pack"] = "pack"
    """``spread``: over as many nodes as possible. ``pack``: on as few nodes as possible."""
    lifetime: Literal["driver", "detached"] = "driver"
    """``driver``: the server ends with this program. ``detached``: it keeps running, for other programs."""
    name: str | None = None
    """The name by which programs share a detached server; by default the server's name."""
    runtime_env: dict[str, Any] | None = None
    """Ray's ``runtime_env`` for the actor. Ray shows it to all users of the cluster, so it must hold no secret."""
    address: str | None = None
    """The cluster's address. It is used if the program has not joined a cluster and ``RAY_ADDRESS`` is not set."""
    lease: float = 30.0
    """Seconds without a message from this program after which the host stops a server: by then it may run elsewhere."""

    def __post_init__(self) -> None:
        for name, amount in (*self.resources.items(), ("numCpus", self.num_cpus)):
            if not is_number(amount) or not 0 <= amount < float("inf"):
                raise ValueError(f"{name}: expected an amount from 0 upwards, got {amount!r}")
        for name in ("CPU", "memory"):
            if name in self.resources:
                key = "numCpus" if name == "CPU" else "memory"
                raise ValueError(f'resources: {name} has a key of its own; give it as "{key}" of the placement')
        if self.memory is not None:
            memory_bytes(self.memory)
        self._check_engine()
        if self.name is not None and (self.lifetime != "detached" or not self.name.strip()):
            raise ValueError('name: is for "lifetime": "detached", and must not be empty')
        if not is_number(self.lease) or not _MIN_LEASE <= self.lease <= _MAX_LEASE:
            raise ValueError(f"lease: must be from {_MIN_LEASE} to {_MAX_LEASE} seconds, got {self.lease!r}")
        if self.address is not None and not self.address.strip():
            raise ValueError("address: is empty; leave it out, or give the address of the cluster's head node")

    def _check_engine(self) -> None:
        for field in msgspec.structs.fields(self):
            engines = _ENGINES_OF.get(field.name)
            default = field.default_factory() if callable(field.default_factory) else field.default
            if engines is not None and self.engine not in engines and getattr(self, field.name) != default:
                raise ValueError(f'{field.name}: means nothing for "engine": "{self.engine}"; remove it')
        needed = _REQUIRED.get(self.engine)
        if needed is not None and not str(getattr(self, needed) or "").strip():
            raise ValueError(f'{needed}: missing; "engine": "{self.engine}" needs it')
        for key in ("host", "user"):
            if (getattr(self, key) or "").startswith("-"):
                raise ValueError(f"{key}: must not begin with -, because ssh would take it for an option")
        if self.engine == "ssh" and self.lifetime == "detached":
            raise ValueError(
                "lifetime: a server over ssh ends with the connection; to share one, run `gaia mcp gateway` there as a "
                "service, and give its url"
            )
        if self.port is not None and not 1 <= self.port <= _MAX_PORT:
            raise ValueError(f"port: must be from 1 to {_MAX_PORT}, got {self.port}")
        if (self.address or "").startswith("ray://"):
            raise ValueError(
                "address: ray:// is Ray's client server, over which no server can be reached; run the program on a "
                "machine of the cluster, and give the address of its head, such as 10.0.0.1:6379"
            )

    @property
    def is_shared(self) -> bool:
        return self.lifetime == "detached"

    @property
    def demand(self) -> dict[str, float]:
        """The resources that the server needs by Ray's names; amounts of 0 are left out."""
        memory = 0 if self.memory is None else memory_bytes(self.memory)
        wanted = {"CPU": self.num_cpus, "memory": float(memory), **self.resources}
        return {name: amount for name, amount in wanted.items() if amount}
