"""``tools/list`` and ``tools/call``."""

from __future__ import annotations

from gaia.mcp.gateway.clients.client_messages import member
from gaia.mcp.gateway.clients.metadata import check_parameters
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.methods.call_control import Target
from gaia.mcp.gateway.methods.relaying import refuse_unknown, relay
from gaia.mcp.gateway.views.known_servers import KnownServer


def list_tools(request: PendingRequest) -> None:
    cursor = member(request.params, "cursor", str)
    view = request.view
    view.when_settled(
        later(request, lambda: request.succeed(view.tools().page(cursor, stateless=request.is_stateless)))
    )


def call_tool(request: PendingRequest) -> None:
    name = request.text("name")
    found = request.view.find_tool(name)
    if found is not None:
        _call(request, name, found)
    else:
        # Its server may be about to list it.
        request.view.when_settled(later(request, lambda: _call(request, name, request.view.find_tool(name))))


def _call(request: PendingRequest, name: str, found: tuple[KnownServer, str] | None) -> None:
    if found is None:
        refuse_unknown(request, "tool", name)
        return
    if request.headers is not None and (marks := request.view.tools().marks.get(name)):
        check_parameters(request.headers, marks, request.params.get("arguments"))
    server, own_name = found
    relay(request, server, request.forwarded(name=own_name), Target(server.name, own_name, is_tool=True))
