"""Use tools of MCP servers: `MCPClientMixin` in an agent, `MCPClientManager` for several servers, `MCPClient` for one.

Applications import the client's public names from here. A name is loaded on first use, so that importing this package,
or running one of its modules, loads no client.

- `client`, `tools`, `config`: the client, its tools, and its configuration.
- `requests`, `protocol`, `rpc`, `transports`: a request's life, messages, calls under way, and connections to servers.
- `supervision`: starting, watching and restarting servers. `placement`: servers on other machines.
- `aio`: the same client for asyncio. `authorization`: logins. `observation`: spans.
- `gateway`, `server`, `doctor`: many servers behind one endpoint, an agent as a server, and diagnosis.

`errors` has all exceptions; each says whether the server may have acted on the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaia.runtime.lazy_names import lazy_names

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
    from gaia.mcp.rpc.call_origin import CurrentCall, current_call
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
    from gaia.mcp.supervision.status import ReplicaStatus, ServerStatus, StandbyStatus
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
    from gaia.mcp.transports.base import MCPTransport, PlacementStatus
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
    "CurrentCall",
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
    "current_call",
]

if not TYPE_CHECKING:
    # Hidden from type checkers: for them, a module with `__getattr__` has every name, misspelt ones too.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "gaia.mcp.authorization.config": "AuthorizationRequest",
            "gaia.mcp.client.config": "MCPConfig",
            "gaia.mcp.client.configured_servers": "AppliedConfig",
            "gaia.mcp.client.mcp_client": "MCPClient",
            "gaia.mcp.client.mcp_client_manager": "MCPClientManager",
            "gaia.mcp.client.pinned_client": "PinnedClient",
            "gaia.mcp.errors": (
                "AnswerLost CallCancelled CallTimeout ConfigError Delivery HandshakeFailed HttpError "
                "InputMissing InvalidResponse JsonRpcError MCPError NeedsAuthorization NotConnected NotOffered "
                "Overloaded ServerCrashed ServerUnavailable SessionLost StartFailed ToolDenied ToolFailed "
                "ToolNotApproved UnknownTool UrlElicitationRequired"
            ),
            "gaia.mcp.mixin": "MCPClientMixin",
            "gaia.mcp.protocol.server_questions": "ElicitationAnswer ElicitationRequest SamplingRequest",
            "gaia.mcp.requests.submitted_request": "CallFuture",
            "gaia.mcp.rpc.call_origin": "CurrentCall current_call",
            "gaia.mcp.supervision.context": "RecyclingLimits",
            "gaia.mcp.supervision.events": (
                "ElicitationCompleted Event EventsDropped GaveUp PromptsChanged ReplicaChanged ResourceUpdated "
                "ResourcesChanged Restarted ServerLog ServerState StateChanged ToolDefinitionsChanged "
                "ToolsChanged"
            ),
            "gaia.mcp.supervision.policy": "RestartPolicy",
            "gaia.mcp.supervision.status": "ReplicaStatus ServerStatus StandbyStatus",
            "gaia.mcp.tools.tool": "MCPTool",
            "gaia.mcp.tools.tool_filter": "ToolFilter",
            "gaia.mcp.tools.tool_result": (
                "AudioContent ContentBlock EmbeddedResource ImageContent ResourceContents ResourceLink "
                "TextContent ToolResult"
            ),
            "gaia.mcp.transports.base": "MCPTransport PlacementStatus",
            "gaia.mcp.transports.stdio": "StdioTransport",
        },
    )
