"""The methods that list and use tools, prompts and resources, and ``completion/complete``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gaia.mcp.errors import JsonRpcError, MCPError
from gaia.mcp.gateway.access.audit import shown_uri
from gaia.mcp.gateway.clients.metadata import check_parameters
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.messages import RequestRefused, member
from gaia.mcp.gateway.methods.relaying import RESOURCE_NOT_FOUND, fail, record_unknown, refuse_unknown, relay
from gaia.mcp.gateway.views.upstream_servers import UpstreamServer
from gaia.mcp.gateway.views.view import MergedList, View, expanded
from gaia.mcp.protocol.messages import INVALID_PARAMS


def _listing(
    wait: Callable[[View, Callable[[], None]], None], merged: Callable[[View], MergedList]
) -> Callable[[PendingRequest], None]:
    """A handler that waits until the servers have listed, and answers with a page of the merged list."""

    def handle(request: PendingRequest) -> None:
        cursor, view = member(request.params, "cursor", str), request.view
        wait(
            view,
            later(request, lambda: request.succeed(merged(view).page(cursor, stateless=request.is_stateless))),
        )

    return handle


list_tools = _listing(View.when_settled, View.tools)
list_prompts = _listing(View.when_prompts_known, View.prompts)
list_resources = _listing(View.when_resources_known, View.resources)
list_templates = _listing(View.when_resources_known, View.templates)


def call_tool(request: PendingRequest, *, has_waited: bool = False) -> None:
    name, tools = request.text("name"), request.view.tools()
    found = tools.routes.get(name) or request.view.find_unlisted_tool(name)
    if found is None:
        if has_waited:
            refuse_unknown(request, "tool", name)
        else:
            # The tool's server may be about to list it.
            request.view.when_settled(later(request, lambda: call_tool(request, has_waited=True)))
        return
    if request.headers is not None and (marks := tools.marks.get(name)):
        check_parameters(request.headers, marks, request.params.get("arguments"))
    server, own_name = found
    relay(request, server, request.forwarded(name=own_name), own_name)


def get_prompt(request: PendingRequest) -> None:
    name = request.text("name")
    _with_prompt(request, name, lambda own_name: request.forwarded(name=own_name))


def _with_prompt(request: PendingRequest, name: str, params: Callable[[str], dict[str, Any]]) -> None:
    """Pass a request on to a prompt's server. `params` makes the params from the server's own name of the prompt."""

    def pass_on() -> None:
        found = request.view.prompts().routes.get(name)
        if found is None:
            refuse_unknown(request, "prompt", name)
        else:
            server, own_name = found
            relay(request, server, params(own_name), own_name)

    request.view.when_prompts_known(later(request, pass_on))


def read_resource(request: PendingRequest) -> None:
    uri = request.text("uri")
    view = request.view
    view.when_resources_known(later(request, lambda: _read(request, uri, view.servers_of_resource(uri))))


def _read(
    request: PendingRequest, uri: str, servers: list[UpstreamServer], first: tuple[str, MCPError] | None = None
) -> None:
    """Ask the first of `servers`, or the next if it does not know the resource. `first` is the first server's error."""
    if not servers:
        error = JsonRpcError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}", {"uri": uri})
        record_unknown(request, shown_uri(uri), "not_found", lambda: fail(request, "", error))
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
            # The first server is the most likely owner of the URI, so its error counts.
            fail(request, *found)

    relay(request, server, request.forwarded(uri=uri), shown_uri(uri), failed)


def _in_words_of(request: PendingRequest, server: UpstreamServer, uri: str, error: JsonRpcError) -> JsonRpcError:
    """The error with the client's code for a missing resource, for which the stateless era has none of its own."""
    is_missing = isinstance(error.data, Mapping) and error.data.get("uri") == uri
    if is_missing and server.speaks_stateless and not request.is_stateless:
        return JsonRpcError(RESOURCE_NOT_FOUND, error.message, error.data)
    return error


class _Argument(msgspec.Struct, frozen=True):
    name: str
    value: str


class _Context(msgspec.Struct, frozen=True):
    arguments: dict[str, str] = msgspec.field(default_factory=dict)


def complete(request: PendingRequest) -> None:
    reference: dict[str, Any] = member(request.params, "ref", dict) or {}
    match reference:
        case {"type": "ref/prompt", "name": str(name)}:
            _with_prompt(request, name, lambda own: request.forwarded(ref={"type": "ref/prompt", "name": own}))
        case {"type": "ref/resource", "uri": str(uri)}:
            request.view.when_resources_known(later(request, lambda: _complete_resource(request, uri)))
        case _:
            raise RequestRefused(
                INVALID_PARAMS, "ref: has to be a ref/prompt with a name, or a ref/resource with a uri"
            )


def _complete_resource(request: PendingRequest, uri: str) -> None:
    found = request.view.templates().routes.get(uri) or request.view.resources().routes.get(uri)
    if found is None:
        refuse_unknown(request, "resource template", shown_uri(uri))
        return
    argument = member(request.params, "argument", _Argument)
    context = member(request.params, "context", _Context)
    values = dict(context.arguments) if context is not None else {}
    if argument is not None:
        values[argument.name] = argument.value
    # The client's profile may hide some URIs of a template.
    if not request.view.sees_resource(found[0].name, expanded(uri, values)):
        refuse_unknown(request, "resource template", shown_uri(uri))
        return
    checked = {"argument": argument, "context": context}
    parts = {key: msgspec.to_builtins(part) for key, part in checked.items() if part is not None}
    params = request.forwarded(ref={"type": "ref/resource", "uri": uri}, **parts)
    relay(request, found[0], params, shown_uri(uri))
