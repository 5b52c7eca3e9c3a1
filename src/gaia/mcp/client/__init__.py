"""The MCP client: `MCPClient` for one server, `MCPClientManager` for several, `MCPConfig` for the configured servers.

- `mcp_client`, `mcp_client_manager` and `config` hold the public classes.
- `client_engine` and `manager_engine` hold the parts of a client and of a manager, for gaia's own modules.
- `server_registry`: which servers are starting, connected, tried again or failed, and which client has a tool.
- `configured_servers` starts the servers of a configuration and applies another one; `client_factory` makes clients.
- `readiness`: why a server is not ready, and how a thread or a task waits for it.
- `session`: how a client reaches its server; `direct_session` is for transports that cannot be supervised.
- `tool_calls` and `features`: tools, resources, prompts, completions and log messages of one server.
- `client_options`: all settings of a client; `server_transport` makes the transport of a configured server.
- `server_memory` keeps the tools and the description of a lazy server from its last start.

Invariants: every tool call passes `ToolCalls.new_request`, so no face can skip the filters and the pins. The
registry's lock is never held while a server is waited for. `SupervisedSession` holds a lock while it connects or
disconnects, and a call never takes that lock.

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaia.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from gaia.mcp.authorization.config import AuthorizationRequest
    from gaia.mcp.client.mcp_client import MCPClient
    from gaia.mcp.client.mcp_client_manager import MCPClientManager
    from gaia.mcp.protocol.server_questions import ElicitationAnswer, ElicitationRequest
    from gaia.mcp.tools.tool import MCPTool
    from gaia.mcp.tools.tool_result import ToolResult

__all__ = [
    "AuthorizationRequest",
    "ElicitationAnswer",
    "ElicitationRequest",
    "MCPClient",
    "MCPClientManager",
    "MCPTool",
    "ToolResult",
]

if not TYPE_CHECKING:
    # For a type checker, a module with `__getattr__` has every name, misspelt ones too.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "gaia.mcp.authorization.config": "AuthorizationRequest",
            "gaia.mcp.client.mcp_client": "MCPClient",
            "gaia.mcp.client.mcp_client_manager": "MCPClientManager",
            "gaia.mcp.protocol.server_questions": "ElicitationAnswer ElicitationRequest",
            "gaia.mcp.tools.tool": "MCPTool",
            "gaia.mcp.tools.tool_result": "ToolResult",
        },
    )
