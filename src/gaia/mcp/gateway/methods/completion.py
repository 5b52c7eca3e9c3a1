"""``completion/complete``."""

from __future__ import annotations

from typing import Any

import msgspec

from gaia.mcp.gateway.access.audit import shown_uri
from gaia.mcp.gateway.clients.client_messages import member
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.methods.call_control import Target
from gaia.mcp.gateway.methods.relaying import refuse_unknown, relay
from gaia.mcp.gateway.request_refused import RequestRefused
from gaia.mcp.gateway.views.uri_templates import expanded
from gaia.mcp.protocol.messages import INVALID_PARAMS


class _Argument(msgspec.Struct, frozen=True):
    name: str
    value: str


class _Context(msgspec.Struct, frozen=True):
    arguments: dict[str, str] = msgspec.field(default_factory=dict)


def complete(request: PendingRequest) -> None:
    reference: dict[str, Any] = member(request.params, "ref", dict) or {}
    match reference:
        case {"type": "ref/prompt", "name": str(name)}:
            request.view.when_prompts_known(later(request, lambda: _complete_prompt(request, name)))
        case {"type": "ref/resource", "uri": str(uri)}:
            request.view.when_resources_known(later(request, lambda: _complete_resource(request, uri)))
        case _:
            raise RequestRefused(
                INVALID_PARAMS, "ref: has to be a ref/prompt with a name, or a ref/resource with a uri"
            )


def _complete_prompt(request: PendingRequest, name: str) -> None:
    found = request.view.prompts().routes.get(name)
    if found is None:
        refuse_unknown(request, "prompt", name)
        return
    server, own_name = found
    reference = {"type": "ref/prompt", "name": own_name}
    relay(request, server, request.forwarded(ref=reference), Target(server.name, own_name))


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
    # Of what a template stands for, some may be hidden.
    if not request.view.sees_resource(found[0].name, expanded(uri, values)):
        refuse_unknown(request, "resource template", shown_uri(uri))
        return
    checked = {"argument": argument, "context": context}
    parts = {key: msgspec.to_builtins(part) for key, part in checked.items() if part is not None}
    params = request.forwarded(ref={"type": "ref/resource", "uri": uri}, **parts)
    relay(request, found[0], params, Target(found[0].name, shown_uri(uri)))
