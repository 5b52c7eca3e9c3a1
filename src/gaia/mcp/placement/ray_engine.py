"""`RayEngine`: hosts on the nodes of a Ray cluster. Ray decides where one runs, and tells when its node is lost.

One process of this program is in the cluster, for all servers that it has there, see `ray_member`. It joins the
cluster that the program itself has joined with ``ray.init``, else that of ``RAY_ADDRESS``, else the placement's
``address``. It must run on a machine of the cluster: over ``ray://`` no host can be reached.

An actor owns each host, with the resources, labels, node and ``runtimeEnv`` of the placement; a shared one is a
detached actor with a name. The host's settings, with all secrets, go to the actor as an argument of a call, which Ray
shows to nobody. On the network they are as safe as Ray's own messages: use Ray's TLS (``RAY_USE_TLS=1`` with its
certificates) and its token authentication (``RAY_AUTH_MODE=token``), on all nodes and in the environment of this
program. Calls do not go through Ray: a host on another machine has a certificate of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import ConfigError, StartFailed
from gaia.mcp.placement.certificate import make_certificate
from gaia.mcp.placement.engine import Address, Engine, Launch, Placed, PlacedServer
from gaia.mcp.placement.ray_member import Member
from gaia.runtime.extras import missing
from gaia.runtime.locks import reentrant_lock

_NO_CLUSTER = (
    "there is no Ray cluster to place it on: start one with 'ray start --head', and set RAY_ADDRESS to the address "
    'that it prints, or give that as "address" of the placement'
)
_LATE = "Ray has not started its host in time: startTimeout is for joining the cluster too, so make it longer"
_LEAVE_SECONDS = 5.0


class RayEngine(Engine):
    """See `Engine`."""

    def __init__(self, placement: Placement) -> None:
        """Raises ConfigError if Ray is missing."""
        if (absent := missing("ray", "ray", "cryptography")) is not None:
            raise ConfigError(f"a server on a Ray cluster needs {absent}")
        self._placement = placement
        self._member: Member | None = None

    def start(self, launch: Launch, on_ended: Callable[[str], None]) -> _RayHost:
        placement, demand = self._placement, self._placement.demand
        unique = "shared" if launch.is_shared else secrets.token_hex(6)
        options: dict[str, Any] = {
            "name": f"{launch.name}#{unique}",
            "num_cpus": demand.pop("CPU", 0),
            "num_gpus": demand.pop("GPU", 0),
            # Ray begins with a random node for each actor that needs nothing, and spreads none of them then.
            "memory": int(demand.pop("memory", placement.strategy == "spread" and not demand)),
            "resources": demand,
            "scheduling_strategy": "SPREAD" if placement.strategy == "spread" else "DEFAULT",
            "label_selector": placement.labels or None,
            "runtime_env": placement.runtime_env,
            "node": placement.node,
        }
        about = {"name": launch.name, "is_shared": launch.is_shared, "started_by": launch.started_by}
        # The actor keeps the host, so the host ends with its standard input.
        launch = msgspec.structs.replace(launch, certificate=make_certificate(), is_shared=False)
        return _RayHost(self._joined(), options, launch, about, self._placement.demand, on_ended)

    def list(self) -> list[PlacedServer]:
        return msgspec.convert(self._joined().ask("list")["servers"], list[PlacedServer])

    def look(self) -> str:
        found = self._joined().ask("look", demand=self._placement.demand)
        if found["reason"]:
            raise StartFailed(found["reason"])
        return f"{found['nodes']} nodes, Ray {found['version']}"

    def end(self, host: str) -> bool:
        return bool(self._joined().ask("end", actor=host, grace=_LEAVE_SECONDS)["stopped"])

    def close(self) -> None:
        with _joining:
            member, self._member = self._member, None
            # A forked child has only copies of its parent's.
            if member is not None and member.owner == os.getpid():
                member.users -= 1
                if not member.users and not member.ended.is_open:
                    member.leave()

    def _joined(self) -> Member:
        with _joining:
            address = _address(self._placement.address)
            if self._member is None or not self._member.is_usable or self._member.address != address:
                self.close()
                present = _members.get(address)
                if present is None or not present.is_usable:
                    present = _members[address] = Member(address)
                present.users += 1
                self._member = present
            return self._member


class _RayHost(Placed):
    """A host below an actor."""

    def __init__(
        self,
        member: Member,
        options: dict[str, Any],
        launch: Launch,
        about: dict[str, Any],
        demand: dict[str, float],
        on_ended: Callable[[str], None],
    ) -> None:
        super().__init__(on_ended)
        self._member = member
        self._demand = demand
        self._is_shared = about["is_shared"]
        launched = json.loads(launch.line())
        self._started = member.begin("start", self._actor_ended, options=options, launch=launched, about=about)

    def wait(self, timeout: float) -> Address:
        answer = self._member.result(self._started, timeout)
        if answer is None:
            # Ray would have the actor wait for a place for ever.
            reason = self._stop(0.0).get("reason")
            raise StartFailed(reason or _LATE)
        if (problem := answer.get("problem")) is not None:
            self._why_ended = problem
            raise StartFailed(f"on the Ray cluster at {self._member.address}: {problem}")
        host = f"[{answer['ip']}]" if ":" in answer["ip"] else answer["ip"]
        return Address(
            url=f"{'http' if answer['certificate'] is None else 'https'}://{host}:{answer['port']}",
            node=answer["node"],
            node_id=answer["nodeId"],
            id=answer["actor"],
            pid=answer["pid"],
            token=answer["token"],
            certificate=answer["certificate"],
        )

    def stop(self, grace: float) -> bool:
        if self._why_ended is not None:
            return True
        if self._is_shared:
            # It ends with the lease of its last owner.
            return False
        with contextlib.suppress(StartFailed):
            self._stop(grace)
        return self._why_ended is not None

    def after_fork(self) -> None:
        self._member.after_fork()

    def _stop(self, grace: float) -> dict[str, Any]:
        self._is_stopping = True
        answer = self._member.ask("stop", host=self._started, grace=grace, demand=self._demand)
        if answer["stopped"]:
            self._why_ended = "was stopped"
        return answer

    def _actor_ended(self, why: str) -> None:
        self._why_ended = f"ended: {why}"
        self._tell(self._why_ended)


_joining = reentrant_lock()
"""One thread joins a cluster, and the others wait for it. Owns `_members` and the numbers of their users."""
_members: dict[str, Member] = {}


def _address(configured: str | None) -> str:
    """The cluster's address. Raises StartFailed if there is none."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return str(ray.get_runtime_context().gcs_address)
    address = os.environ.get("RAY_ADDRESS") or configured
    if address is None:
        raise StartFailed(_NO_CLUSTER)
    if address.startswith("ray://"):
        raise StartFailed(
            f"{address} is an address of Ray's client server, over which no server can be reached: run the program on "
            "a machine of the cluster, and give the address of its head, such as 10.0.0.1:6379"
        )
    return address
