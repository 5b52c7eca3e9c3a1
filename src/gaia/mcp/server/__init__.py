"""Serves an `MCPAgent` to MCP clients, over stdio or Streamable HTTP, in both eras of the protocol.

- `factory` puts the SDK's server in front of an agent, with spans and the end of calls.
- `handlers`: requests to the agent, and the protocol's form of its results.
- `calls`: how an agent asks the client during a call, up to the limit of rounds.
- `changes`: which clients receive changes and log messages.
- `stdio` and `http`: the two transports.

Invariants: the agent's code runs on worker threads, never on the event loop. A wrong definition is left out, so that
the others still work. Nothing that an agent prints reaches the protocol.

Needs the extra ``gaia-mcp[serve]``; missing packages are reported when something is served, not on import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gaia.serving.loading import require

if TYPE_CHECKING:
    from gaia.agents.base.mcp_context import ServableAgent
    from gaia.serving.options import HttpOptions

__all__ = ["serve_http", "serve_stdio"]


def serve_stdio(agent: ServableAgent, **limits: Any) -> None:
    """Serve `agent` on standard input and output until the client disconnects or the process is told to end.

    While it serves, ``print`` writes to standard error, in this process and in its child processes.
    """
    require("mcp", "jsonschema")
    from gaia.mcp.server.stdio import serve

    serve(lambda: agent, **limits)


def serve_http(agent: ServableAgent, options: HttpOptions | None = None, **limits: Any) -> None:
    """Serve `agent` at ``http://host:port/mcp`` until the process is told to end."""
    require("mcp", "jsonschema", "uvicorn", "starlette", "httptools")
    from gaia.mcp.server.http import serve

    serve(agent, options, **limits)
