"""Checks the engine of a placed server: whether this program reaches it, and whether it has a place for the server."""

from __future__ import annotations

import contextlib

from gaia.mcp.config.placement import Placement
from gaia.mcp.doctor.diagnosis import Check, failed, ok
from gaia.mcp.errors import ConfigError, StartFailed
from gaia.mcp.placement.engines import engine_for

_REMEDIES = {
    "ray": "`ray start --head` starts a cluster and prints its address; `ray start --resources …` adds a node to it.",
    "ssh": "Try `ssh HOST true`, because gaia answers no questions of ssh. "
    '"python" of the placement has to name an interpreter there that has gaia-mcp.',
    "kubernetes": "The kubeconfig of this user, or the service account of this pod, has to give access to the cluster, "
    "with the rights that docs/cluster.md lists.",
}


def check_placement(placement: Placement) -> Check:
    try:
        with contextlib.closing(engine_for(placement)) as engine:
            return ok("placement", f"{placement.engine}: {engine.look()}")
    except ConfigError as error:
        return failed("placement", error.message, None)
    except StartFailed as error:
        return failed("placement", error.message, _REMEDIES.get(placement.engine))
