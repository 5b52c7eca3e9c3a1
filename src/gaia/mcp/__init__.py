"""Use tools of MCP servers: `MCPClientMixin` in an agent, `MCPClientManager` for several servers, `MCPClient` for one.

All that an application needs of the client can be imported from here. A name is loaded on first use, so that importing
this package, or running one of its modules, loads no client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaia.mcp.authorization.config import AuthorizationRequest
    from gaia.mcp.client.config import MCPConfig
    from gaia.mcp.client.configured_servers import AppliedConfig
    from gaia.mcp.client.mcp_client import MCPClient
    from gaia.mcp.client.mcp_client_manager import MCPClientManager
    from gaia.mcp.client.pinned_client import PinnedClient
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
        SessionLost,
        StartFailed,
        ToolDenied,
        ToolFailed,
        ToolNotApproved,
        UnknownTool,
        UrlElicitationRequired,
    )
    from gaia.mcp.mixin import MCPClientMixin
    from gaia.mcp.protocol.server_questions import ElicitationAnswer, ElicitationRequest, SamplingRequest
    from gaia.mcp.requests.submitted_request import CallFuture
    from gaia.mcp.supervision.context import RecyclingLimits
    from gaia.mcp.supervision.events import (
        ElicitationCompleted,
        Event,
        EventsDropped,
        GaveUp,
        PromptsChanged,
        ReplicaChanged,
        ResourcesChanged,
        ResourceUpdated,
        Restarted,
        ServerLog,
        ServerState,
        StateChanged,
        ToolDefinitionsChanged,
        ToolsChanged,
    )
    from gaia.mcp.supervision.policy import RestartPolicy
    from gaia.mcp.supervision.status import PlacementStatus, ReplicaStatus, ServerStatus, StandbyStatus
    from gaia.mcp.tools.tool import MCPTool
    from gaia.mcp.tools.tool_filter import ToolFilter
    from gaia.mcp.tools.tool_result import (
        AudioContent,
        ContentBlock,
        EmbeddedResource,
        ImageContent,
        ResourceContents,
        ResourceLink,
        TextContent,
        ToolResult,
    )
    from gaia.mcp.transports.base import MCPTransport
    from gaia.mcp.transports.stdio import StdioTransport

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
    "PinnedClient",
    "PlacementStatus",
    "PromptsChanged",
    "RecyclingLimits",
    "ReplicaChanged",
    "ReplicaStatus",
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
    "SessionLost",
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
    "AppliedConfig": "gaia.mcp.client.configured_servers",
    "AudioContent": "gaia.mcp.tools.tool_result",
    "AuthorizationRequest": "gaia.mcp.authorization.config",
    "CallCancelled": "gaia.mcp.errors",
    "CallFuture": "gaia.mcp.requests.submitted_request",
    "CallTimeout": "gaia.mcp.errors",
    "ConfigError": "gaia.mcp.errors",
    "ContentBlock": "gaia.mcp.tools.tool_result",
    "Delivery": "gaia.mcp.errors",
    "ElicitationAnswer": "gaia.mcp.protocol.server_questions",
    "ElicitationCompleted": "gaia.mcp.supervision.events",
    "ElicitationRequest": "gaia.mcp.protocol.server_questions",
    "EmbeddedResource": "gaia.mcp.tools.tool_result",
    "Event": "gaia.mcp.supervision.events",
    "EventsDropped": "gaia.mcp.supervision.events",
    "GaveUp": "gaia.mcp.supervision.events",
    "HandshakeFailed": "gaia.mcp.errors",
    "HttpError": "gaia.mcp.errors",
    "ImageContent": "gaia.mcp.tools.tool_result",
    "InputMissing": "gaia.mcp.errors",
    "InvalidResponse": "gaia.mcp.errors",
    "JsonRpcError": "gaia.mcp.errors",
    "MCPClient": "gaia.mcp.client.mcp_client",
    "MCPClientManager": "gaia.mcp.client.mcp_client_manager",
    "MCPClientMixin": "gaia.mcp.mixin",
    "MCPConfig": "gaia.mcp.client.config",
    "MCPError": "gaia.mcp.errors",
    "MCPTool": "gaia.mcp.tools.tool",
    "MCPTransport": "gaia.mcp.transports.base",
    "NeedsAuthorization": "gaia.mcp.errors",
    "NotConnected": "gaia.mcp.errors",
    "NotOffered": "gaia.mcp.errors",
    "Overloaded": "gaia.mcp.errors",
    "PinnedClient": "gaia.mcp.client.pinned_client",
    "PlacementStatus": "gaia.mcp.supervision.status",
    "PromptsChanged": "gaia.mcp.supervision.events",
    "ResourceContents": "gaia.mcp.tools.tool_result",
    "ResourceLink": "gaia.mcp.tools.tool_result",
    "ResourceUpdated": "gaia.mcp.supervision.events",
    "ResourcesChanged": "gaia.mcp.supervision.events",
    "RecyclingLimits": "gaia.mcp.supervision.context",
    "ReplicaChanged": "gaia.mcp.supervision.events",
    "ReplicaStatus": "gaia.mcp.supervision.status",
    "RestartPolicy": "gaia.mcp.supervision.policy",
    "Restarted": "gaia.mcp.supervision.events",
    "SamplingRequest": "gaia.mcp.protocol.server_questions",
    "ServerCrashed": "gaia.mcp.errors",
    "ServerLog": "gaia.mcp.supervision.events",
    "ServerState": "gaia.mcp.supervision.events",
    "ServerStatus": "gaia.mcp.supervision.status",
    "ServerUnavailable": "gaia.mcp.errors",
    "SessionLost": "gaia.mcp.errors",
    "StandbyStatus": "gaia.mcp.supervision.status",
    "StartFailed": "gaia.mcp.errors",
    "StateChanged": "gaia.mcp.supervision.events",
    "StdioTransport": "gaia.mcp.transports.stdio",
    "TextContent": "gaia.mcp.tools.tool_result",
    "ToolDefinitionsChanged": "gaia.mcp.supervision.events",
    "ToolDenied": "gaia.mcp.errors",
    "ToolFailed": "gaia.mcp.errors",
    "ToolFilter": "gaia.mcp.tools.tool_filter",
    "ToolNotApproved": "gaia.mcp.errors",
    "ToolResult": "gaia.mcp.tools.tool_result",
    "ToolsChanged": "gaia.mcp.supervision.events",
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
