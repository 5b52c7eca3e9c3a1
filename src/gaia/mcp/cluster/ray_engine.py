"""Ray as the engine: one actor per host."""

from __future__ import annotations

import os
import threading
import uuid
from typing import Any

import ray

from gaia.mcp.cluster.ray_cluster import join, joined_session
from gaia.mcp.cluster.ray_link import RayLink
from gaia.mcp.cluster.report import actor_name
from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import StartFailed

NAMESPACE = "gaia-mcp"
"""Of all actors for placed servers, so that they are found."""

_SHARED = "shared"
"""In the name of an actor that several programs use: there is one of that name."""

_CONTROL_THREADS = 4
_POLL_THREADS = 2
"""One that waits, and one for the next poll, which ends it."""


def _actor_class() -> type:
    """A host as an actor, which is code for Ray, and not a class of a module that a worker would have to load first.

    Ray has other work wait, in steps of a second, until an actor has begun. Loading gaia takes a third of a second, or
    more on a machine that has just lost something, so the actor begins first.
    """

    class PlacedServerHost:
        """Ray shows the name of this class, and of the server; it never sees its command."""

        def __init__(self, is_shared: bool) -> None:
            self._is_shared = is_shared
            self._context = ray.get_runtime_context()
            self._process = uuid.uuid4().hex
            self._host: Any = None
            self._problem: BaseException | None = None
            self._loading = threading.Thread(target=self._load, daemon=True)
            self._loading.start()

        def _load(self) -> None:
            try:
                from gaia.mcp.cluster.host import ServerHost

                # Ray starts the actor again, but not after an orderly end.
                self._host = ServerHost(
                    self._context.get_node_id(),
                    on_over=lambda: os._exit(1),
                    resources=self._context.get_assigned_resources(),
                    on_unused=self._on_unused if self._is_shared else None,
                )
            except BaseException as error:  # noqa: BLE001 - of what is installed on the node
                self._problem = error

        def _on_unused(self) -> None:
            # Only one of its own tasks can end an actor for good. It may run in another process by then.
            self._context.current_actor.end.options(concurrency_group="control").remote(self._process)

        def end(self, process: str) -> None:
            """End the actor for good, if it is still in that process."""
            if process == self._process:
                ray.actor.exit_actor()

        def call(self, asked: bytes) -> bytes:
            """Of all messages the most frequent, so it has a method of its own: each further argument costs time."""
            host = self._host or self._loaded()
            answer: bytes = host.call(asked)
            return answer

        def tell(self, method: str, *arguments: Any) -> Any:
            """Any other message for the host, by the name of its method."""
            return getattr(self._loaded(), method)(*arguments)

        def _loaded(self) -> Any:
            self._loading.join()
            if self._problem is not None:
                raise self._problem
            return self._host

    return PlacedServerHost


class RayEngine:
    """Starts actors in the cluster that the program has joined, or that it joins now."""

    def start(self, name: str, placement: Placement) -> RayLink:
        join(placement.address)
        demand = placement.demand
        options: dict[str, Any] = {
            "num_cpus": demand.pop("CPU", 0),
            "num_gpus": demand.pop("GPU", 0),
            "resources": {name: amount for name, amount in demand.items() if name != "memory"} or None,
            "scheduling_strategy": "SPREAD" if placement.strategy == "spread" else "DEFAULT",
            # A lost host is Ray's business, a lost call is ours: Ray must not send one twice.
            "max_restarts": -1,
            "max_task_retries": 0,
            "namespace": NAMESPACE,
            "concurrency_groups": {
                "calls": placement.max_pending,
                "control": _CONTROL_THREADS,
                "poll": _POLL_THREADS,
            },
        }
        if "memory" in demand:
            options["memory"] = int(demand["memory"])
        elif placement.strategy == "spread" and not placement.demand:
            # Ray begins with a random node for each actor that needs nothing, and spreads none of them then. Every node
            # has a byte.
            options["memory"] = 1
        if placement.runtime_env is not None:
            options["runtime_env"] = placement.runtime_env
        is_shared = placement.lifetime == "detached"
        if is_shared:
            options |= {
                "name": actor_name(placement.name or name, _SHARED),
                "lifetime": "detached",
                "get_if_exists": True,
            }
        else:
            options["name"] = actor_name(name, uuid.uuid4().hex[:12])
        session = joined_session()
        try:
            return RayLink(ray.remote(**options)(_actor_class()).remote(is_shared), placement, session)
        except ValueError as error:
            # Such as a part of a GPU too many, or a directory as the `runtime_env` of an actor.
            raise StartFailed(f"Ray does not accept the placement: {error}") from error
