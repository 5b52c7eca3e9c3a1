"""Which function answers which method."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gaia.mcp.gateway.access.principal import ANONYMOUS
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.methods.completion import complete
from gaia.mcp.gateway.methods.logging_level import set_level
from gaia.mcp.gateway.methods.opening import discover, initialize, ping
from gaia.mcp.gateway.methods.prompts import get_prompt, list_prompts
from gaia.mcp.gateway.methods.relaying import fail
from gaia.mcp.gateway.methods.resources import list_resources, list_templates, read_resource
from gaia.mcp.gateway.methods.subscriptions import listen, subscribe, unsubscribe
from gaia.mcp.gateway.methods.tools import call_tool, list_tools
from gaia.mcp.protocol.messages import METHOD_NOT_FOUND

Handler = Callable[[PendingRequest], None]


def _limited(handler: Handler) -> Handler:
    """The same handler, for requests that the gateway answers itself. They count for the client's own limits."""

    def begin(request: PendingRequest) -> None:
        limits, client = request.view.checks.limits, request.principal or ANONYMOUS
        if limits is None or not limits.concern(client):
            handler(request)
            return
        admission = limits.admit(
            client,
            "",
            None,
            None,
            lambda _: later(request, lambda: handler(request))(),
            lambda error: fail(request, "", error),
        )
        if request.is_answered:
            admission.end()
        else:
            request.after_end(admission.end)

    return begin


_BOTH: Mapping[str, Handler] = {
    "tools/list": _limited(list_tools),
    "tools/call": call_tool,
    "prompts/list": _limited(list_prompts),
    "prompts/get": get_prompt,
    "resources/list": _limited(list_resources),
    "resources/templates/list": _limited(list_templates),
    "resources/read": read_resource,
    "completion/complete": complete,
}
_HANDSHAKE: Mapping[str, Handler] = {
    **_BOTH,
    "initialize": initialize,
    "ping": ping,
    "logging/setLevel": set_level,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
}
_STATELESS: Mapping[str, Handler] = {**_BOTH, "server/discover": discover, "subscriptions/listen": listen}


def dispatch(request: PendingRequest) -> None:
    """Answer a request, now or later. Never raises."""
    handler = (_STATELESS if request.is_stateless else _HANDSHAKE).get(request.method)
    if handler is None:
        request.fail(METHOD_NOT_FOUND, f"Method not found: {request.method}", status=404)
        return
    later(request, lambda: handler(request))()
