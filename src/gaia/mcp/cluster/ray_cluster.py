"""Ray's cluster, as the program knows it: how it is joined, what its nodes have, and what Ray says of failures."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError

from gaia.mcp.cluster.ray_session import RaySession, present_session
from gaia.mcp.cluster.report import NodeRoom
from gaia.mcp.errors import StartFailed
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

_NO_CLUSTER = (
    "there is no Ray cluster to place it on: start one with 'ray start --head', and set RAY_ADDRESS to the address "
    'that it prints, or give that as "address" of the placement'
)

_REACH_SECONDS = 5.0

_joining = reentrant_lock()
"""One thread joins the cluster, and the others wait for it."""


def join(address: str | None, *, is_asked_for: bool = False) -> None:
    """Join the cluster at ``RAY_ADDRESS`` or `address`, unless the program is in one. Raises `StartFailed`.

    An address that `is_asked_for` comes before the variable.
    """
    with _joining:
        if ray.is_initialized():
            return
        in_environment = os.environ.get("RAY_ADDRESS")
        address = (address or in_environment) if is_asked_for else (in_environment or address)
        if address is None:
            raise StartFailed(_NO_CLUSTER)
        try:
            _reach(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            _log_messages()
        except (RayError, OSError, ValueError, RuntimeError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            # The variable comes before what the placement says, and may be an old one.
            where = f"{address} (RAY_ADDRESS)" if address == in_environment else address
            raise StartFailed(
                f"the Ray cluster at {where} cannot be joined: {text}; "
                "'ray start --head' starts one, and prints its address"
            ) from error


def joined_session() -> RaySession:
    """How long the program is in the cluster that it has joined."""
    with _joining:
        return present_session()


def _log_messages() -> None:
    """Keep what Ray tells every driver of lost nodes off standard output, which may be a protocol's."""
    from ray._private import worker

    def log(data: dict[str, Any], *_: object, **__: object) -> None:
        logger.debug("ray_message", text="\n".join(map(str, data.get("lines", ()))))

    # Ray has no setting for it. Where the function is called otherwise some day, messages are shown as Ray shows them.
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = log


def _reach(address: str) -> None:
    """Raise OSError if nothing is there: Ray would try for a long time, and say so on the terminal."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()


def rooms() -> list[NodeRoom]:
    """The nodes of the cluster that are alive."""
    free = _free_by_node()
    return [
        NodeRoom(
            node=str(node.get("NodeManagerHostname")),
            node_id=str(node.get("NodeID")),
            total=dict(node["Resources"]),
            free=None if free is None else free.get(str(node.get("NodeID")), {}),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def _free_by_node() -> dict[str, dict[str, float]] | None:
    # Ray offers this to its dashboard only, a process of its own that is often not there.
    try:
        from ray._private.state import available_resources_per_node

        return dict(available_resources_per_node())
    except Exception as error:  # noqa: BLE001 - Ray promises nothing about it
        logger.debug("free_resources_not_known", error=first_line(error))
        return None


def state_of(actor_id: str) -> str | None:
    # As for what nodes have free: Ray offers it to its dashboard only.
    try:
        from ray._private.state import actors

        return str(actors(actor_id)["State"])
    except Exception as error:  # noqa: BLE001 - Ray promises nothing about it
        logger.debug("actor_state_not_known", error=first_line(error))
        return None


def first_line(error: BaseException) -> str:
    if isinstance(error, RayTaskError):
        # Of the actor itself; Ray's own text begins with where it was.
        return f"{type(error.cause).__name__}: {error.cause}"
    lines = str(error).strip().splitlines()
    if isinstance(error, RuntimeEnvSetupError):
        # Below tracebacks of Ray's own code.
        return f"Ray could not set up its runtimeEnv: {lines[-1].strip()}"
    return lines[0] if lines else type(error).__name__
