"""What is placed in a Ray cluster, by all programs, and what room there is: from Ray's names of actors and nodes."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gaia.mcp.cluster.ray_cluster import join, rooms
from gaia.mcp.cluster.report import HostReport, NodeRoom, NodeSoftware, PlacedHost, server_of_actor
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_NAMESPACE = "gaia-mcp"

_ANSWER_SECONDS = 2.0
"""For hosts to say how they are. One without a place does not answer."""

_TASK_SECONDS = 20.0
"""For nodes to start a process and look around."""

_report = msgspec.msgpack.Decoder(HostReport)


class RayView:
    """Joins the cluster; what the program has joined already stays joined. Not thread-safe."""

    def __init__(self, address: str | None = None, *, is_asked_for: bool = True) -> None:
        """`address` counts if the program has not joined a cluster; one that `is_asked_for` before ``RAY_ADDRESS``.

        Raises `StartFailed` if there is no cluster there.
        """
        self._leaves = not ray.is_initialized()
        join(address, is_asked_for=is_asked_for)

    def close(self) -> None:
        """Leave the cluster, if it was joined here."""
        if self._leaves:
            ray.shutdown()

    def hosts(self, seconds: float = _ANSWER_SECONDS) -> list[PlacedHost]:
        """The actors of all placed servers, by name, each with its report if it gives one within `seconds`."""
        asked: dict[Any, tuple[str, Any]] = {}
        for known in ray.util.list_named_actors(all_namespaces=True):
            if known["namespace"] != _NAMESPACE:
                continue
            try:
                actor = ray.get_actor(known["name"], namespace=_NAMESPACE)
                answer = actor.tell.options(concurrency_group="control").remote("report")
            except (ValueError, AttributeError, RayError) as error:
                # It has ended meanwhile, or is of another version.
                logger.debug("actor_not_asked", error=str(error))
                continue
            asked[answer] = (known["name"], actor)
        answers = list(asked)
        came, _ = ray.wait(answers, num_returns=len(answers), timeout=seconds) if answers else ([], [])
        return sorted(
            (
                PlacedHost(
                    server=server_of_actor(name),
                    actor=str(actor._actor_id.hex()),
                    report=_answer(answer) if answer in came else None,
                )
                for answer, (name, actor) in asked.items()
            ),
            key=lambda host: (host.server, host.actor),
        )

    def nodes(self) -> list[NodeRoom]:
        """The nodes that are alive."""
        return rooms()

    def free(self) -> dict[str, float]:
        """What is free in the whole cluster."""
        return dict(ray.available_resources())

    def software(self, command: str, seconds: float = _TASK_SECONDS) -> list[NodeSoftware]:
        """What is installed on each node that answers within `seconds`, and where `command` is there."""
        look = ray.remote(num_cpus=0, max_retries=0)(_software())
        asked = {}
        for node in rooms():
            # That node, or none.
            affinity = NodeAffinitySchedulingStrategy(node_id=node.node_id, soft=False)
            asked[look.options(name="versions", scheduling_strategy=affinity).remote(command)] = node.node
        came, _ = ray.wait(list(asked), num_returns=len(asked), timeout=seconds) if asked else ([], [])
        found = []
        for answer in came:
            try:
                python, gaia, path = ray.get(answer)
            except RayError as error:
                logger.debug("node_not_known", node=asked[answer], error=str(error))
                continue
            found.append(NodeSoftware(node=asked[answer], python=python, gaia=gaia, command=path))
        return found

    def version(self) -> str:
        """Of Ray, here and on all nodes, because Ray joins no others."""
        return str(ray.__version__)

    def end(self, actor: str, server: str, seconds: float) -> bool:
        """Stop a placed server, whatever programs use it. False if it is not gone within `seconds`.

        `actor` and `server` are as in `hosts`.
        """
        for known in ray.util.list_named_actors(all_namespaces=True):
            if known["namespace"] != _NAMESPACE or server_of_actor(known["name"]) != server:
                continue
            try:
                handle = ray.get_actor(known["name"], namespace=_NAMESPACE)
            except ValueError:
                continue
            if handle._actor_id.hex() != actor:
                continue
            deadline = time.monotonic() + seconds
            try:
                ray.wait([handle.tell.options(concurrency_group="control").remote("stop")], timeout=seconds)
                ray.kill(handle, no_restart=True)
                while time.monotonic() < deadline:
                    ray.get(handle.tell.options(concurrency_group="control").remote("report"), timeout=seconds)
            except RayError as error:
                logger.debug("actor_ended", error=str(error))
                return True
            return False
        return True


def _software() -> Any:
    """A function that runs on nodes, which need not have gaia: Ray is given its code, and not where it is."""

    def look_around(command: str) -> tuple[str, str | None, str | None]:
        import platform
        import shutil

        try:
            from gaia import __version__
        except ImportError:
            return platform.python_version(), None, shutil.which(command)
        return platform.python_version(), __version__, shutil.which(command)

    return look_around


def _answer(answer: Any) -> HostReport | None:
    try:
        return _report.decode(ray.get(answer))
    except (RayError, msgspec.MsgspecError) as error:
        logger.debug("host_not_known", error=str(error))
        return None
