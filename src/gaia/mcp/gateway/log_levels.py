"""``logging/setLevel``, and which log messages a client wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaia.mcp.client.protocol.messages import INVALID_PARAMS
from gaia.mcp.gateway.client_messages import EMPTY_RESULT, RequestRefused
from gaia.mcp.gateway.known_servers import LOG_LEVELS

if TYPE_CHECKING:
    from gaia.mcp.gateway.pending_request import PendingRequest

__all__ = ["is_wanted", "set_level"]

_SEVERITY = {level: number for number, level in enumerate(LOG_LEVELS)}


def is_wanted(level: object, least: str | None) -> bool:
    """Whether a message of `level` is as severe as `least`; with None, none is wanted. Unknown words count as info."""
    if least is None:
        return False
    return _SEVERITY.get(str(level), 1) >= _SEVERITY.get(least, 1)


def set_level(request: PendingRequest) -> None:
    level, session = request.text("level"), request.session
    assert session is not None, "it is a request of the handshake era"
    if level not in _SEVERITY:
        raise RequestRefused(INVALID_PARAMS, f"level: has to be one of {', '.join(LOG_LEVELS)}")
    session.log_level = level
    # Servers are asked for what any client wants; each client gets its own level of that.
    for server in request.view.servers():
        if "logging" in server.capabilities:
            server.want_log_level(level)
    request.succeed(EMPTY_RESULT)
