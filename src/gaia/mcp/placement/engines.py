"""Which engine a server's ``placement`` names."""

from __future__ import annotations

from gaia.mcp.config.placement import Placement
from gaia.mcp.placement.engine import Engine


def engine_for(placement: Placement) -> Engine:
    """The engine of a server. Raises ConfigError if a package or a command for it is missing."""
    # Imported here: each engine needs other packages.
    if placement.engine == "ray":
        from gaia.mcp.placement.ray_engine import RayEngine

        return RayEngine(placement)
    if placement.engine == "ssh":
        from gaia.mcp.placement.ssh_engine import SshEngine

        return SshEngine(placement)
    if placement.engine == "kubernetes":
        from gaia.mcp.placement.kubernetes_engine import KubernetesEngine

        return KubernetesEngine(placement)
    from gaia.mcp.placement.process_engine import ProcessEngine

    return ProcessEngine()
