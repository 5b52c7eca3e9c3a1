"""Serve an `MCPAgent` to MCP clients, over stdio or Streamable HTTP, in both eras of the protocol.

Needs the extra ``gaia-mcp[serve]``; what is missing is said when something is served, not when this is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gaia.serving.loading import require

if TYPE_CHECKING:
    from gaia.agents.base.mcp_context import ServableAgent
    from gaia.serving.options import HttpOptions

__all__ = ["serve_http", "serve_stdio"]


def serve_stdio(agent: ServableAgent, **limits: Any) -> None:
    """Serve `agent` on standard input and output until the client goes away or the process is told to end.

    Meanwhile ``print`` writes to standard error, in this process and in those it starts.
    """
    require("mcp", "jsonschema")
    from gaia.mcp.server.stdio import serve

    serve(lambda: agent, **limits)


def serve_http(agent: ServableAgent, options: HttpOptions | None = None, **limits: Any) -> None:
    """Serve `agent` at ``http://host:port/mcp`` until the process is told to end."""
    require("mcp", "jsonschema", "uvicorn", "starlette", "httptools")
    from gaia.mcp.server.http import serve

    serve(agent, options, **limits)
