"""Passing a request on to a server, and its end to the client."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import orjson

from gaia.mcp.errors import InvalidResponse, JsonRpcError, MCPError, Overloaded, ServerUnavailable
from gaia.mcp.gateway.access.checks import OverShare
from gaia.mcp.gateway.access.circuit import CircuitOpen
from gaia.mcp.gateway.access.principal import ANONYMOUS
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.instances.owners import with_handle
from gaia.mcp.gateway.messages import cacheable_result
from gaia.mcp.gateway.methods.call_control import Target, pass_on, record_unknown
from gaia.mcp.gateway.upstream.rounds import OnEnd, OngoingCall, Relayed
from gaia.mcp.gateway.views.known_servers import KnownServer
from gaia.mcp.protocol.eras import MISSING_CAPABILITY, UNSUPPORTED_VERSION
from gaia.mcp.protocol.gateway_answers import NOT_SENT, OUTCOME_UNKNOWN, details_of, failed_result
from gaia.mcp.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from gaia.mcp.protocol.request_headers import HEADER_MISMATCH
from gaia.mcp.protocol.rounds import delivery_of
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

RESOURCE_NOT_FOUND = -32002
"""Up to 2025-11-25."""

_STATUS = {METHOD_NOT_FOUND: 404, MISSING_CAPABILITY: 400}
"""Of HTTP responses in the stateless era, where it is not 200."""

_OWN_AFFAIRS = frozenset({HEADER_MISMATCH, UNSUPPORTED_VERSION})
"""Errors about the messages between gateway and server, of which the client's are independent."""

_LARGE_RESULT = 64 * 1024
"""Bytes. Smaller ones are sent however much a client has not read."""

_HOST_DETAILS = {
    "server_unavailable": "it is unavailable",
    "server_crashed": "it was lost",
    "not_connected": "it is not connected",
    "config": "its configuration cannot be used",
    "denied": "its tool is denied",
    "needs_authorization": "the gateway has to log in at it",
    "http": "the HTTP request to it failed",
}
"""Error types whose messages name programs, folders and URLs, or what a server wrote, and what other machines get."""

_DELIVERY = {
    "not_sent": "the server has not received it",
    "unknown": "the server may have acted on it",
}


def relay(
    request: PendingRequest,
    server: KnownServer,
    params: dict[str, Any],
    target: Target,
    failed: Callable[[MCPError], None] | None = None,
) -> None:
    """Pass a request on with other `params`. `failed` takes errors; without it they go to the client."""
    owner, handle = server.owner_of(request)
    counts, begun = request.view.checks.counts, time.monotonic()

    def count(outcome: str) -> None:
        counts.add(request.principal, server.name, outcome, time.monotonic() - begun)

    request.count = count

    def send(on_end: OnEnd) -> OngoingCall | None:
        try:
            upstream = server.upstream_of(owner)
        except Overloaded as error:
            on_end(Relayed(error=error))
            return None
        return upstream.request(request.method, params, request, on_end)

    def ended(relayed: Relayed) -> None:
        if len(relayed.result) > _LARGE_RESULT and (unread := _too_much_unread(request, relayed)) is not None:
            relayed = Relayed(error=unread)
        count(relayed.outcome)
        if relayed.error is None:
            result = relayed.result if handle is None else with_handle(relayed.result, handle)
            is_kept = request.is_stateless and request.method == "resources/read"
            request.succeed(cacheable_result(result) if is_kept else result)
        elif failed is not None:
            failed(relayed.error)
        else:
            fail(request, server.name, relayed.error)

    def guarded(relayed: Relayed) -> None:
        # This is called by what has ended the call, which has nobody to tell of an error.
        later(request, lambda: ended(relayed))()

    if request.is_stateless and request.log_level is not None:
        server.want_log_level(request.log_level)
    pass_on(request, target, send, guarded)


def _too_much_unread(request: PendingRequest, relayed: Relayed) -> MCPError | None:
    """The error that is sent instead of a large result, if the client has left too much unread; None if not."""
    client = (request.principal or ANONYMOUS).name
    try:
        request.view.checks.shares.check_unread(client, request.unread, request.address)
    except OverShare as over:
        return InvalidResponse(f"the result has {len(relayed.result)} bytes and is not sent: {over}")
    return None


def refuse_unknown(request: PendingRequest, what: str, name: str) -> None:
    """Answer a request for something that does not exist, or that the client may not see."""
    outcome = "unknown_tool" if what == "tool" else "not_found"
    request.view.checks.counts.add(request.principal, "", outcome, 0.0)
    record_unknown(
        request,
        Target(None, name),
        outcome,
        lambda: request.fail(INVALID_PARAMS, f"Unknown {what}: {name}"),
    )


def fail(request: PendingRequest, server: str, error: MCPError) -> None:
    """Answer with the error of a server, or with what went wrong on the way and whether the server may have acted."""
    if isinstance(error, JsonRpcError):
        # The stateless era has no code for this.
        code = INVALID_PARAMS if request.is_stateless and error.code == RESOURCE_NOT_FOUND else error.code
        if code in _OWN_AFFAIRS:
            request.fail(
                INTERNAL_ERROR, f"the gateway and server {server!r} do not understand one another: {error.message}"
            )
        else:
            request.fail(code, error.message, error.data, status=_STATUS.get(code, 200))
        return
    delivery = delivery_of(request.params, error)
    # The circuit of a tool is the gateway's own, and names no host.
    message, short = error.message, None if isinstance(error, CircuitOpen) else _HOST_DETAILS.get(error.error_type)
    if request.principal is not None and short is not None:
        # A client with a name may be on another machine.
        client = request.principal.name
        left_out = request.view.checks.withheld.passes((server, client, error.error_type))
        if left_out is not None:
            logger.warning("server_error_withheld", server=server, client=client, error=message, left_out=left_out)
        hint = error.next_attempt if isinstance(error, ServerUnavailable) else ""
        message = f"server {server!r}: {short}{hint}; the log of the gateway has the reason"
    details, words = details_of(server, error, delivery), f" ({_DELIVERY[delivery]})"
    # It is there already if the server is a gateway.
    text = message.removesuffix(words) + words
    if delivery == "not_sent":
        request.fail(NOT_SENT, text, details)
    elif request.method == "tools/call":
        request.succeed(orjson.dumps(failed_result(text, details)))
    else:
        request.fail(OUTCOME_UNKNOWN, text, details)
