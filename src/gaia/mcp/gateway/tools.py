"""``tools/list`` and ``tools/call``."""

from __future__ import annotations

from gaia.mcp.client.protocol.messages import INVALID_PARAMS
from gaia.mcp.gateway.client_messages import RequestRefused
from gaia.mcp.gateway.pending_request import PendingRequest
from gaia.mcp.gateway.relaying import relay

__all__ = ["call_tool", "list_tools"]


def list_tools(request: PendingRequest) -> None:
    def answer() -> None:
        listing = request.view.tools()
        request.succeed(listing.stateless_result if request.is_stateless else listing.result)

    request.view.when_settled(answer)


def call_tool(request: PendingRequest) -> None:
    name = request.text("name")
    found = request.view.find_tool(name)
    if found is None:
        raise RequestRefused(INVALID_PARAMS, f"Unknown tool: {name}")
    server, own_name = found
    relay(request, server, request.forwarded(name=own_name))
