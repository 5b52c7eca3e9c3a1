"""``prompts/list`` and ``prompts/get``."""

from __future__ import annotations

from gaia.mcp.client.protocol.messages import INVALID_PARAMS
from gaia.mcp.gateway.client_messages import RequestRefused, member
from gaia.mcp.gateway.known_servers import KnownServer
from gaia.mcp.gateway.pending_request import PendingRequest, later
from gaia.mcp.gateway.relaying import relay
from gaia.mcp.gateway.view import View

__all__ = ["find_prompt", "get_prompt", "list_prompts"]


def list_prompts(request: PendingRequest) -> None:
    cursor = member(request.params, "cursor", str)
    view = request.view
    view.when_prompts_known(
        later(request, lambda: request.succeed(view.prompts().page(cursor, stateless=request.is_stateless)))
    )


def get_prompt(request: PendingRequest) -> None:
    name = request.text("name")

    def get() -> None:
        server, own_name = find_prompt(request.view, name)
        relay(request, server, request.forwarded(name=own_name))

    request.view.when_prompts_known(later(request, get))


def find_prompt(view: View, name: str) -> tuple[KnownServer, str]:
    """The server of a prompt, and the server's own name for it. Raises `RequestRefused`."""
    found = view.prompts().routes.get(name)
    if found is None:
        raise RequestRefused(INVALID_PARAMS, f"Unknown prompt: {name}")
    return found
