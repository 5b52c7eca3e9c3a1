"""Which engine a server's ``placement`` names."""

from __future__ import annotations

from gaia.mcp.config.placement import Placement
from gaia.mcp.placement.engine import Engine
from gaia.mcp.placement.process_engine import ProcessEngine


def engine_for(placement: Placement) -> Engine:  # noqa: ARG001 - the other engines read it
    """The engine of a server. Raises ConfigError if a package for it is missing."""
    return ProcessEngine()
