"""Use tools of MCP servers: `MCPClientMixin` in an agent, `MCPClientManager` for several servers, `MCPClient` for one.

All that an application needs of the client can be imported from here. A name is loaded on first use, so that importing
this package, or running one of its modules, loads no client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaia.mcp.client.authorization.config import AuthorizationRequest
    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.client.config_changes import AppliedConfig
    from gaia.mcp.client.mcp_client import MCPClient
    from gaia.mcp.client.mcp_client_manager import MCPClientManager
    from gaia.mcp.client.protocol.elicitation import ElicitationAnswer, ElicitationRequest
    from gaia.mcp.client.protocol.sampling import SamplingRequest
    from gaia.mcp.client.supervision.caller import CallFuture
    from gaia.mcp.client.supervision.events import (
        ElicitationCompleted,
        Event,
        EventsDropped,
        GaveUp,
        PromptsChanged,
        ResourcesChanged,
        ResourceUpdated,
        Restarted,
        ServerLog,
        ServerState,
        StateChanged,
        ToolDefinitionsChanged,
        ToolsChanged,
    )
    from gaia.mcp.client.supervision.policy import RestartPolicy
    from gaia.mcp.client.supervision.recycling_limits import RecyclingLimits
    from gaia.mcp.client.supervision.spare import StandbyStatus
    from gaia.mcp.client.supervision.status import ServerStatus
    from gaia.mcp.client.tool import MCPTool
    from gaia.mcp.client.tool_filter import ToolFilter
    from gaia.mcp.client.tool_result import (
        AudioContent,
        ContentBlock,
        EmbeddedResource,
        ImageContent,
        ResourceContents,
        ResourceLink,
        TextContent,
        ToolResult,
    )
    from gaia.mcp.client.transports.base import MCPTransport
    from gaia.mcp.client.transports.stdio import StdioTransport
    from gaia.mcp.errors import (
        AnswerLost,
        CallCancelled,
        CallTimeout,
        ConfigError,
        Delivery,
        HandshakeFailed,
        HttpError,
        InputMissing,
        InvalidResponse,
        JsonRpcError,
        MCPError,
        NeedsAuthorization,
        NotConnected,
        NotOffered,
        Overloaded,
        ServerCrashed,
        ServerUnavailable,
        StartFailed,
        ToolDenied,
        ToolFailed,
        ToolNotApproved,
        UnknownTool,
        UrlElicitationRequired,
    )
    from gaia.mcp.mixin import MCPClientMixin

__all__ = [
    "AnswerLost",
    "AppliedConfig",
    "AudioContent",
    "AuthorizationRequest",
    "CallCancelled",
    "CallFuture",
    "CallTimeout",
    "ConfigError",
    "ContentBlock",
    "Delivery",
    "ElicitationAnswer",
    "ElicitationCompleted",
    "ElicitationRequest",
    "EmbeddedResource",
    "Event",
    "EventsDropped",
    "GaveUp",
    "HandshakeFailed",
    "HttpError",
    "ImageContent",
    "InputMissing",
    "InvalidResponse",
    "JsonRpcError",
    "MCPClient",
    "MCPClientManager",
    "MCPClientMixin",
    "MCPConfig",
    "MCPError",
    "MCPTool",
    "MCPTransport",
    "NeedsAuthorization",
    "NotConnected",
    "NotOffered",
    "Overloaded",
    "PromptsChanged",
    "RecyclingLimits",
    "ResourceContents",
    "ResourceLink",
    "ResourceUpdated",
    "ResourcesChanged",
    "RestartPolicy",
    "Restarted",
    "SamplingRequest",
    "ServerCrashed",
    "ServerLog",
    "ServerState",
    "ServerStatus",
    "ServerUnavailable",
    "StandbyStatus",
    "StartFailed",
    "StateChanged",
    "StdioTransport",
    "TextContent",
    "ToolDefinitionsChanged",
    "ToolDenied",
    "ToolFailed",
    "ToolFilter",
    "ToolNotApproved",
    "ToolResult",
    "ToolsChanged",
    "UnknownTool",
    "UrlElicitationRequired",
]

_HOMES = {
    "AnswerLost": "gaia.mcp.errors",
    "AppliedConfig": "gaia.mcp.client.config_changes",
    "AudioContent": "gaia.mcp.client.tool_result",
    "AuthorizationRequest": "gaia.mcp.client.authorization.config",
    "CallCancelled": "gaia.mcp.errors",
    "CallFuture": "gaia.mcp.client.supervision.caller",
    "CallTimeout": "gaia.mcp.errors",
    "ConfigError": "gaia.mcp.errors",
    "ContentBlock": "gaia.mcp.client.tool_result",
    "Delivery": "gaia.mcp.errors",
    "ElicitationAnswer": "gaia.mcp.client.protocol.elicitation",
    "ElicitationCompleted": "gaia.mcp.client.supervision.events",
    "ElicitationRequest": "gaia.mcp.client.protocol.elicitation",
    "EmbeddedResource": "gaia.mcp.client.tool_result",
    "Event": "gaia.mcp.client.supervision.events",
    "EventsDropped": "gaia.mcp.client.supervision.events",
    "GaveUp": "gaia.mcp.client.supervision.events",
    "HandshakeFailed": "gaia.mcp.errors",
    "HttpError": "gaia.mcp.errors",
    "ImageContent": "gaia.mcp.client.tool_result",
    "InputMissing": "gaia.mcp.errors",
    "InvalidResponse": "gaia.mcp.errors",
    "JsonRpcError": "gaia.mcp.errors",
    "MCPClient": "gaia.mcp.client.mcp_client",
    "MCPClientManager": "gaia.mcp.client.mcp_client_manager",
    "MCPClientMixin": "gaia.mcp.mixin",
    "MCPConfig": "gaia.mcp.client.config",
    "MCPError": "gaia.mcp.errors",
    "MCPTool": "gaia.mcp.client.tool",
    "MCPTransport": "gaia.mcp.client.transports.base",
    "NeedsAuthorization": "gaia.mcp.errors",
    "NotConnected": "gaia.mcp.errors",
    "NotOffered": "gaia.mcp.errors",
    "Overloaded": "gaia.mcp.errors",
    "PromptsChanged": "gaia.mcp.client.supervision.events",
    "ResourceContents": "gaia.mcp.client.tool_result",
    "ResourceLink": "gaia.mcp.client.tool_result",
    "ResourceUpdated": "gaia.mcp.client.supervision.events",
    "ResourcesChanged": "gaia.mcp.client.supervision.events",
    "RecyclingLimits": "gaia.mcp.client.supervision.recycling_limits",
    "RestartPolicy": "gaia.mcp.client.supervision.policy",
    "Restarted": "gaia.mcp.client.supervision.events",
    "SamplingRequest": "gaia.mcp.client.protocol.sampling",
    "ServerCrashed": "gaia.mcp.errors",
    "ServerLog": "gaia.mcp.client.supervision.events",
    "ServerState": "gaia.mcp.client.supervision.events",
    "ServerStatus": "gaia.mcp.client.supervision.status",
    "ServerUnavailable": "gaia.mcp.errors",
    "StandbyStatus": "gaia.mcp.client.supervision.spare",
    "StartFailed": "gaia.mcp.errors",
    "StateChanged": "gaia.mcp.client.supervision.events",
    "StdioTransport": "gaia.mcp.client.transports.stdio",
    "TextContent": "gaia.mcp.client.tool_result",
    "ToolDefinitionsChanged": "gaia.mcp.client.supervision.events",
    "ToolDenied": "gaia.mcp.errors",
    "ToolFailed": "gaia.mcp.errors",
    "ToolFilter": "gaia.mcp.client.tool_filter",
    "ToolNotApproved": "gaia.mcp.errors",
    "ToolResult": "gaia.mcp.client.tool_result",
    "ToolsChanged": "gaia.mcp.client.supervision.events",
    "UnknownTool": "gaia.mcp.errors",
    "UrlElicitationRequired": "gaia.mcp.errors",
}
"""The module of each name."""


if not TYPE_CHECKING:
    # For a type checker, a module with `__getattr__` has every name, misspelt ones too.

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        """What a shell completes, loaded or not."""
        return sorted({*globals(), *__all__})
