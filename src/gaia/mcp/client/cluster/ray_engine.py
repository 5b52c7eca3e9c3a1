"""Ray as the engine: one actor per host. The only module that imports Ray."""

from __future__ import annotations

import functools
import logging
import os
import threading
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError, RayTaskError

from gaia.locks import reentrant_lock
from gaia.log import get_logger
from gaia.mcp.client.cluster.link import HostGone, HostLost, OnAnswer
from gaia.mcp.client.cluster.placement import Placement
from gaia.mcp.errors import StartFailed

__all__ = ["RayEngine"]

logger = get_logger(__name__)

_NO_CLUSTER = (
    "there is no Ray cluster to place it on: start one with 'ray start --head', and set RAY_ADDRESS to the address "
    'that it prints, or give that as "address" of the placement'
)

_CONTROL_THREADS = 4
_POLL_THREADS = 2
"""One that waits, and one for the next poll, which ends it."""

_joining = reentrant_lock()
"""One thread joins the cluster, and the others wait for it."""


def _actor_class() -> type:
    """A host as an actor, which is code for Ray, and not a class of a module that a worker would have to load first.

    Ray has other work wait, in steps of a second, until an actor has begun. Loading gaia takes a third of a second, or
    more on a machine that has just lost something, so the actor begins first.
    """

    class PlacedServerHost:
        """Its name is what Ray shows: neither the server's name nor its command."""

        def __init__(self) -> None:
            self._host: Any = None
            self._problem: BaseException | None = None
            self._loading = threading.Thread(target=self._load, daemon=True)
            self._loading.start()

        def _load(self) -> None:
            try:
                from gaia.mcp.client.cluster.host import ServerHost

                # Ray starts the actor again, but not after an orderly end.
                self._host = ServerHost(ray.get_runtime_context().get_node_id(), on_over=lambda: os._exit(1))
            except BaseException as error:  # noqa: BLE001 - of what is installed on the node
                self._problem = error

        def tell(self, method: str, *arguments: Any) -> Any:
            """Any message for the host, by the name of its method."""
            self._loading.join()
            if self._problem is not None:
                raise self._problem
            return getattr(self._host, method)(*arguments)

    return PlacedServerHost


class RayEngine:
    """Starts actors in the cluster that the program has joined, or that it joins now."""

    def start(self, name: str, placement: Placement) -> RayLink:  # noqa: ARG002 - Ray is not told the name
        _join(placement.address)
        demand = placement.demand
        options: dict[str, Any] = {
            "num_cpus": demand.pop("CPU", 0),
            "resources": {name: amount for name, amount in demand.items() if name != "memory"} or None,
            "scheduling_strategy": "SPREAD" if placement.strategy == "spread" else "DEFAULT",
            # A lost host is Ray's business, a lost call is ours: Ray must not send one twice.
            "max_restarts": -1,
            "max_task_retries": 0,
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
        return RayLink(ray.remote(**options)(_actor_class()).remote(), placement)


def _join(address: str | None) -> None:
    with _joining:
        if ray.is_initialized():
            return
        address = os.environ.get("RAY_ADDRESS") or address
        if address is None:
            raise StartFailed(_NO_CLUSTER)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (RayError, OSError, ValueError, RuntimeError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StartFailed(f"the Ray cluster at {address} cannot be joined: {text}; {_NO_CLUSTER}") from error


class RayLink:
    """The actor of one host. Implements `HostLink`."""

    def __init__(self, actor: Any, placement: Placement) -> None:
        self._actor = actor
        self._placement = placement
        self._call: Any = actor.tell.options(concurrency_group="calls", name="call")
        self._poll: Any = actor.tell.options(concurrency_group="poll", name="poll")
        self._tell: Any = actor.tell.options(concurrency_group="control", name="tell")
        self._greet: Any = actor.tell.options(concurrency_group="control", name="greet")

    def greet(self, settings: bytes, on_answer: OnAnswer) -> None:
        self._send(self._greet, ("greet", settings), on_answer)

    def call(self, asked: bytes, on_answer: OnAnswer) -> None:
        self._send(self._call, ("call", asked), on_answer)

    def poll(self, incarnation: str, acknowledged: int, on_answer: OnAnswer) -> None:
        self._send(self._poll, ("poll", incarnation, acknowledged), on_answer)

    def tell(self, method: str, *arguments: object, on_answer: OnAnswer = lambda *_: None) -> None:
        self._send(self._tell, (method, *arguments), on_answer)

    def _send(self, method: Any, arguments: tuple[object, ...], on_answer: OnAnswer) -> None:
        try:
            future = method.remote(*arguments).future()
        except ActorDiedError as error:
            on_answer(None, HostGone(_first_line(error)))
        except Exception as error:  # noqa: BLE001 - Ray raises more than its own exceptions when it is shut down
            on_answer(None, HostLost(_first_line(error)))
        else:
            future.add_done_callback(functools.partial(_done, on_answer))

    @property
    def actor_id(self) -> str:
        return str(self._actor._actor_id.hex())

    def why_not_placed(self) -> str:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        demand = self._placement.demand
        for name, amount in demand.items():
            most = max((node["Resources"].get(name, 0) for node in nodes), default=0)
            if most < amount:
                has = f"has more than {most:g}" if most else "has any"
                return (
                    f"no node of the Ray cluster can take it: it needs {amount:g} of the resource {name!r}, and none "
                    f"of the {len(nodes)} nodes {has}"
                )
        available = ray.available_resources()
        for name, amount in demand.items():
            if available.get(name, 0) < amount:
                return (
                    f"all of the resource {name!r} is in use: it needs {amount:g}, and {available.get(name, 0):g} is "
                    "left in the Ray cluster"
                )
        return "Ray has not started its actor yet"

    def kill(self) -> None:
        try:
            ray.kill(self._actor, no_restart=True)
        except Exception as error:  # noqa: BLE001 - as above
            logger.debug("actor_not_killed", error=_first_line(error))


def _done(on_answer: OnAnswer, future: Any) -> None:
    """On a thread of Ray's."""
    failure = future.exception()
    if failure is None:
        on_answer(future.result(), None)
    elif isinstance(failure, ActorDiedError | RayTaskError):
        # It would be so again: hosts raise nothing of their own.
        on_answer(None, HostGone(_first_line(failure)))
    else:
        on_answer(None, HostLost(_first_line(failure)))


def _first_line(error: BaseException) -> str:
    if isinstance(error, RayTaskError):
        # Of the actor itself; Ray's own text begins with where it was.
        return f"{type(error.cause).__name__}: {error.cause}"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
