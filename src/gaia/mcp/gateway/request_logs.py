"""Log messages for one request of the stateless era from a server that does not say which request they belong to."""

from __future__ import annotations

from typing import Any

from gaia.mcp.gateway.known_servers import Kind, KnownServer
from gaia.mcp.gateway.pending_request import PendingRequest

__all__ = ["follow_logs"]


class _RequestLogs:
    """An audience (see `Audience`) of what a server logs while a request is under way there."""

    def __init__(self, request: PendingRequest, server: str) -> None:
        self._request = request
        self._server = server

    def sees(self, server: str) -> bool:
        return server == self._server

    def list_changed(self, kind: Kind) -> None:
        """Comes with subscriptions only."""

    def resource_updated(self, uri: str) -> None:
        """Comes with subscriptions only."""

    def server_log(self, message: dict[str, Any]) -> None:
        self._request.log(message)


def follow_logs(request: PendingRequest, server: KnownServer) -> None:
    """Send the client what it wants of the server's log messages, until the request is answered.

    Other clients' calls to the same server may have led to them: a server of the handshake era does not say.
    """
    assert request.log_level is not None, "the client wants some"
    changes, audience = request.view.changes, _RequestLogs(request, server.name)
    changes.add(audience)
    request.on_end = lambda: changes.remove(audience)
    server.want_log_level(request.log_level)
