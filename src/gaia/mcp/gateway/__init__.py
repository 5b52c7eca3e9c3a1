"""All servers, supervised once, for every client, behind one endpoint."""

from __future__ import annotations

from gaia.mcp.gateway.gateway import Gateway

__all__ = ["Gateway"]
