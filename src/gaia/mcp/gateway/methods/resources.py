"""``resources/list``, ``resources/templates/list`` and ``resources/read``."""

from __future__ import annotations

from collections.abc import Mapping

from gaia.mcp.errors import JsonRpcError, MCPError
from gaia.mcp.gateway.access.audit import shown_uri
from gaia.mcp.gateway.clients.client_messages import member
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.methods.call_control import Target, record_unknown
from gaia.mcp.gateway.methods.relaying import RESOURCE_NOT_FOUND, fail, relay
from gaia.mcp.gateway.views.known_servers import KnownServer
from gaia.mcp.protocol.messages import INVALID_PARAMS


def list_resources(request: PendingRequest) -> None:
    cursor = member(request.params, "cursor", str)
    view = request.view
    view.when_resources_known(
        later(request, lambda: request.succeed(view.resources().page(cursor, stateless=request.is_stateless)))
    )


def list_templates(request: PendingRequest) -> None:
    cursor = member(request.params, "cursor", str)
    view = request.view
    view.when_resources_known(
        later(request, lambda: request.succeed(view.templates().page(cursor, stateless=request.is_stateless)))
    )


def read_resource(request: PendingRequest) -> None:
    uri = request.text("uri")
    view = request.view
    view.when_resources_known(later(request, lambda: _read(request, uri, view.servers_of_resource(uri))))


def _read(
    request: PendingRequest, uri: str, servers: list[KnownServer], first: tuple[str, MCPError] | None = None
) -> None:
    """Ask the first of `servers`, and the others if it does not know the resource. `first` is what one has said."""
    if not servers:
        error = JsonRpcError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}", {"uri": uri})
        record_unknown(request, Target(None, shown_uri(uri)), "not_found", lambda: fail(request, "", error))
        return
    server, *others = servers

    def failed(error: MCPError) -> None:
        if not (isinstance(error, JsonRpcError) and error.code in (RESOURCE_NOT_FOUND, INVALID_PARAMS)):
            fail(request, server.name, error)
            return
        found = first or (server.name, _in_words_of(request, server, uri, error))
        if others:
            _read(request, uri, others, found)
        else:
            # The first is the likeliest to know what is wrong with the URI.
            fail(request, *found)

    relay(request, server, request.forwarded(uri=uri), Target(server.name, shown_uri(uri)), failed)


def _in_words_of(request: PendingRequest, server: KnownServer, uri: str, error: JsonRpcError) -> JsonRpcError:
    """The error as the client's revision has it. The stateless era has no code for a resource that there is not."""
    is_missing = isinstance(error.data, Mapping) and error.data.get("uri") == uri
    if is_missing and server.speaks_stateless and not request.is_stateless:
        return JsonRpcError(RESOURCE_NOT_FOUND, error.message, error.data)
    return error
