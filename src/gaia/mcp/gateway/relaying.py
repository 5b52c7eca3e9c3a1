"""Passing a request on to a server, and its end to the client."""

from __future__ import annotations

from typing import Any

from gaia.mcp.errors import JsonRpcError, MCPError
from gaia.mcp.gateway.known_servers import KnownServer
from gaia.mcp.gateway.pending_request import PendingRequest
from gaia.mcp.gateway.upstream import Relayed

__all__ = ["relay"]

_FAILED = -32000
"""The code of errors that no server has answered."""


def relay(request: PendingRequest, server: KnownServer, params: dict[str, Any]) -> None:
    def ended(relayed: Relayed) -> None:
        if relayed.error is None:
            request.succeed(relayed.result)
        else:
            fail(request, server.name, relayed.error)

    request.call = server.upstream.request(request.method, params, request, ended)


def fail(request: PendingRequest, server: str, error: MCPError) -> None:
    if isinstance(error, JsonRpcError):
        request.fail(error.code, error.message, error.data)
        return
    data = {"server": server, "errorType": error.error_type, "delivery": error.delivery}
    request.fail(_FAILED, error.message, data)
