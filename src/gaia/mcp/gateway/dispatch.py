"""Which function answers which method."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gaia.exception_text import exception_text
from gaia.log import get_logger
from gaia.mcp.client.protocol.messages import INTERNAL_ERROR, METHOD_NOT_FOUND
from gaia.mcp.gateway.client_messages import RequestRefused
from gaia.mcp.gateway.opening import discover, initialize, ping
from gaia.mcp.gateway.pending_request import PendingRequest
from gaia.mcp.gateway.tools import call_tool, list_tools

__all__ = ["dispatch"]

logger = get_logger(__name__)

Handler = Callable[[PendingRequest], None]

_BOTH: Mapping[str, Handler] = {
    "tools/list": list_tools,
    "tools/call": call_tool,
}
_HANDSHAKE: Mapping[str, Handler] = {**_BOTH, "initialize": initialize, "ping": ping}
_STATELESS: Mapping[str, Handler] = {**_BOTH, "server/discover": discover}


def dispatch(request: PendingRequest) -> None:
    """Answer a request, now or later. Never raises."""
    handler = (_STATELESS if request.is_stateless else _HANDSHAKE).get(request.method)
    if handler is None:
        request.fail(METHOD_NOT_FOUND, f"Method not found: {request.method}", status=404)
        return
    try:
        handler(request)
    except RequestRefused as refused:
        request.fail(refused.code, refused.message, refused.data, status=refused.status)
    except Exception as error:  # noqa: BLE001 - a mistake of ours must not leave the client without an answer
        logger.error("gateway_request_failed", method=request.method, error=exception_text(error))
        request.fail(INTERNAL_ERROR, "internal error of the gateway")
