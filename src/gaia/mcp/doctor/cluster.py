"""Checks the cluster of a placed server: whether this program can join it, and what its nodes have."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gaia import __version__
from gaia.mcp.config.placement import Placement
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.doctor.diagnosis import Check, failed, ok, warned
from gaia.mcp.errors import StartFailed
from gaia.runtime.extras import missing

if TYPE_CHECKING:
    from gaia.mcp.cluster.ray_view import RayView
    from gaia.mcp.cluster.report import NodeSoftware


def check_cluster(server: ServerConfig, placement: Placement) -> Iterator[Check]:
    """The checks ``cluster``, ``nodes`` and ``place``. `server` is expanded. The cluster stays joined."""
    absent = missing("ray", "ray")
    if absent is not None:
        yield failed("cluster", f"a server with a placement needs {absent}", None)
        return
    from gaia.mcp.cluster.ray_view import RayView
    from gaia.mcp.cluster.report import shortage

    try:
        view = RayView(placement.address, is_asked_for=False)
    except StartFailed as error:
        yield failed("cluster", error.message, "`ray start --head` starts a cluster, and prints its address.")
        return
    nodes = view.nodes()
    yield ok("cluster", f"joined: {len(nodes)} nodes, Ray {view.version()}")
    command = (shlex.split(server.command or "") or [""])[0]
    yield _check_nodes(view.software(command), command, placement, len(nodes))
    yield _check_place(shortage(placement.demand, nodes, view.free()), view, server.name)


def _check_nodes(found: Sequence[NodeSoftware], command: str, placement: Placement, count: int) -> Check:
    """Whether the nodes have the same versions as this program, and the server's command."""
    here = (__version__, platform.python_version())
    others = [node for node in found if (node.gaia, node.python) != here]
    if others:
        texts = [
            f"{node.node} has {'no gaia-mcp' if node.gaia is None else f'gaia-mcp {node.gaia}'}, Python {node.python}"
            for node in others
        ]
        detail = f"here are gaia-mcp {here[0]} and Python {here[1]}, and {'; '.join(texts)}"
        return failed("nodes", detail, "Install the same versions on all nodes, or have Ray do so with runtimeEnv.")
    lacking = [node.node for node in found if node.command is None]
    if lacking and placement.runtime_env is None:
        detail = f"{command} was not found on the PATH of {', '.join(dict.fromkeys(lacking))}"
        remedy = "Install it there, or have the server placed elsewhere by a resource that only other nodes have."
        return warned("nodes", detail, remedy)
    if len(found) < count:
        return warned("nodes", f"{count - len(found)} of {count} nodes did not answer", "Are they overloaded?")
    return ok("nodes", f"all have gaia-mcp {here[0]}, Python {here[1]}, and {command}")


def _check_place(reason: str | None, view: RayView, name: str) -> Check:
    if reason is None:
        return ok("place", "a node has what it needs")
    if any(host.server == name and host.report is not None for host in view.hosts()):
        return warned("place", f"it runs already, and there is no room for another one: {reason}", None)
    return failed("place", reason, "Start a node that has it, such as: ray start --address ADDRESS --resources …")
