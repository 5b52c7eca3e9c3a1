"""``completion/complete``."""

from __future__ import annotations

from typing import Any

from gaia.mcp.client.protocol.messages import INVALID_PARAMS
from gaia.mcp.gateway.client_messages import RequestRefused, member
from gaia.mcp.gateway.pending_request import PendingRequest, later
from gaia.mcp.gateway.prompts import find_prompt
from gaia.mcp.gateway.relaying import relay

__all__ = ["complete"]


def complete(request: PendingRequest) -> None:
    reference: dict[str, Any] = member(request.params, "ref", dict) or {}
    match reference:
        case {"type": "ref/prompt", "name": str(name)}:
            request.view.when_prompts_known(later(request, lambda: _complete_prompt(request, reference, name)))
        case {"type": "ref/resource", "uri": str(uri)}:
            request.view.when_resources_known(later(request, lambda: _complete_resource(request, uri)))
        case _:
            raise RequestRefused(
                INVALID_PARAMS, "ref: has to be a ref/prompt with a name, or a ref/resource with a uri"
            )


def _complete_prompt(request: PendingRequest, reference: dict[str, Any], name: str) -> None:
    server, own_name = find_prompt(request.view, name)
    relay(request, server, request.forwarded(ref={**reference, "name": own_name}))


def _complete_resource(request: PendingRequest, uri: str) -> None:
    found = request.view.templates().routes.get(uri) or request.view.resources().routes.get(uri)
    if found is None:
        raise RequestRefused(INVALID_PARAMS, f"Unknown resource template: {uri}")
    relay(request, found[0], request.forwarded())
