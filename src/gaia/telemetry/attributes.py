"""The names of the conventions for MCP, and gaia's own.

The conventions' names (open-telemetry/semantic-conventions-genai, `docs/gen-ai/mcp.md`, 2026-08) are literals: the
constants of the semantic-conventions package are private and deprecated. Gaia's own begin with ``gaia.mcp.``.
"""

from __future__ import annotations

from typing import Final

METHOD_NAME: Final = "mcp.method.name"
PROTOCOL_VERSION: Final = "mcp.protocol.version"
RESOURCE_URI: Final = "mcp.resource.uri"
SESSION_ID: Final = "mcp.session.id"
REQUEST_ID: Final = "jsonrpc.request.id"
STATUS_CODE: Final = "rpc.response.status_code"
ERROR_TYPE: Final = "error.type"
OPERATION_NAME: Final = "gen_ai.operation.name"
TOOL_NAME: Final = "gen_ai.tool.name"
PROMPT_NAME: Final = "gen_ai.prompt.name"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
PROMPT_VARIABLE: Final = "gen_ai.prompt.variable."
"""A prefix; the name of a prompt's argument follows."""
NETWORK_TRANSPORT: Final = "network.transport"
NETWORK_PROTOCOL_NAME: Final = "network.protocol.name"
NETWORK_PROTOCOL_VERSION: Final = "network.protocol.version"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
CLIENT_ADDRESS: Final = "client.address"
CLIENT_PORT: Final = "client.port"

EXECUTE_TOOL: Final = "execute_tool"
"""`gen_ai.operation.name` of a tool call; other requests have none."""
TOOL_ERROR: Final = "tool_error"
"""`error.type` of a tool result whose `isError` is true."""

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
CALLERS_FAULT: Final = frozenset({-32700, -32600, METHOD_NOT_FOUND, INVALID_PARAMS, -32002})
"""JSON-RPC codes of the caller's mistakes: on SERVER spans they are not errors."""

# Gaia's own.
SERVER_NAME: Final = "gaia.mcp.server.name"
DELIVERY: Final = "gaia.mcp.delivery"
HANDLED_ERROR: Final = "gaia.mcp.handled_error.type"
"""The type of an expected failure, such as a refused probe; the span is not an error."""
GENERATION: Final = "gaia.mcp.generation"
STANDBY: Final = "gaia.mcp.standby"
"""True if a stand-by took over; false after a new start."""
PID: Final = "gaia.mcp.process.pid"
EXIT_CODE: Final = "gaia.mcp.process.exit_code"
SIGNAL: Final = "gaia.mcp.process.signal"
STDERR_TAIL: Final = "gaia.mcp.process.stderr_tail"
UPTIME: Final = "gaia.mcp.uptime"
"""Seconds."""
REASON: Final = "gaia.mcp.reason"
"""Why a server was lost: a `LossReason` of `gaia.mcp.observation.lifecycle_spans`."""
DELAY: Final = "gaia.mcp.backoff.delay"
"""Seconds."""
ARGUMENTS_SIZE: Final = "gaia.mcp.arguments.size"
"""Bytes of the arguments as JSON."""
RESULT_SIZE: Final = "gaia.mcp.result.size"
"""Bytes of the result as JSON."""
RESULT_TYPES: Final = "gaia.mcp.result.types"
NODE: Final = "gaia.mcp.placement.node"
REPLICA: Final = "gaia.mcp.replica"
PROGRESS: Final = "gaia.mcp.progress"
PROGRESS_TOTAL: Final = "gaia.mcp.progress.total"
GATEWAY_CLIENT: Final = "gaia.mcp.gateway.client"
"""The gateway's client that made the request: its name in the clients file, or ``<issuer>/<subject>``. Metrics have
only the issuer of the latter, because they need few values."""
EARLIER_REQUEST_ID: Final = "gaia.mcp.request.earlier_id"
"""The JSON-RPC id of an earlier sending of a repeated call."""
