"""``prompts/list`` and ``prompts/get``."""

from __future__ import annotations

from gaia.mcp.gateway.clients.client_messages import member
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.methods.call_control import Target
from gaia.mcp.gateway.methods.relaying import refuse_unknown, relay


def list_prompts(request: PendingRequest) -> None:
    cursor = member(request.params, "cursor", str)
    view = request.view
    view.when_prompts_known(
        later(request, lambda: request.succeed(view.prompts().page(cursor, stateless=request.is_stateless)))
    )


def get_prompt(request: PendingRequest) -> None:
    name = request.text("name")

    def get() -> None:
        found = request.view.prompts().routes.get(name)
        if found is None:
            refuse_unknown(request, "prompt", name)
            return
        server, own_name = found
        relay(request, server, request.forwarded(name=own_name), Target(server.name, own_name))

    request.view.when_prompts_known(later(request, get))
