"""``logging/setLevel``."""

from __future__ import annotations

from gaia.mcp.gateway.clients.client_messages import EMPTY_RESULT
from gaia.mcp.gateway.clients.pending_request import PendingRequest
from gaia.mcp.gateway.log_levels import LOG_LEVELS
from gaia.mcp.gateway.request_refused import RequestRefused
from gaia.mcp.protocol.messages import INVALID_PARAMS


def set_level(request: PendingRequest) -> None:
    level, session = request.text("level"), request.session
    assert session is not None, "it is a request of the handshake era"
    if level not in LOG_LEVELS:
        raise RequestRefused(INVALID_PARAMS, f"level: has to be one of {', '.join(LOG_LEVELS)}")
    session.log_level = level
    # Servers are asked for what any client wants; each client gets its own level of that.
    for server in request.view.servers():
        server.want_log_level(level)
    request.succeed(EMPTY_RESULT)
