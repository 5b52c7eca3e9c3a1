"""Passes a request on to a server, and its result to the client."""

from __future__ import annotations

import functools
import re
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from gaia.mcp.errors import (
    CallCancelled,
    InvalidResponse,
    JsonRpcError,
    MCPError,
    Overloaded,
    ServerUnavailable,
    ToolDenied,
)
from gaia.mcp.gateway.access.audit import AuditEntry, digest_of, shown_text
from gaia.mcp.gateway.access.checks import OverShare
from gaia.mcp.gateway.access.gate import CircuitOpen
from gaia.mcp.gateway.access.limits import Admission
from gaia.mcp.gateway.access.principal import ANONYMOUS, metric_name
from gaia.mcp.gateway.clients.pending_request import PendingRequest, Target, later
from gaia.mcp.gateway.instances.owners import Handle, with_handle
from gaia.mcp.gateway.messages import cacheable_result
from gaia.mcp.gateway.upstream.relayed_call import EndingOnError, RelayedCall
from gaia.mcp.gateway.upstream.rounds import Relayed
from gaia.mcp.gateway.views.upstream_servers import UpstreamServer
from gaia.mcp.protocol.eras import MISSING_CAPABILITY, UNSUPPORTED_VERSION
from gaia.mcp.protocol.gateway_answers import NOT_SENT, OUTCOME_UNKNOWN, details_of, failed_result
from gaia.mcp.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from gaia.mcp.protocol.request_headers import HEADER_MISMATCH
from gaia.mcp.protocol.rounds import delivery_of
from gaia.runtime.log import get_logger
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics

logger = get_logger(__name__)

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-")

RESOURCE_NOT_FOUND = -32002
"""The code up to revision 2025-11-25."""

_STATUS = {METHOD_NOT_FOUND: 404, MISSING_CAPABILITY: 400}
"""HTTP statuses other than 200 for error codes, in the stateless era."""

_OWN_AFFAIRS = frozenset({HEADER_MISMATCH, UNSUPPORTED_VERSION})
"""Errors about the messages between gateway and server. The client's own message did not cause them."""

_LARGE_RESULT = 64 * 1024
"""Bytes. Smaller results are sent even to a client that has left much unread."""

_HOST_DETAILS = {
    "server_unavailable": "it is unavailable",
    "server_crashed": "it was lost",
    "not_connected": "it is not connected",
    "config": "its configuration cannot be used",
    "denied": "its tool is denied",
    "needs_authorization": "the gateway has to log in at it",
    "http": "the HTTP request to it failed",
}
"""Replacements for errors whose messages name programs, folders or URLs, or quote a server. For named clients."""

_DELIVERY = {
    "not_sent": "the server has not received it",
    "unknown": "the server may have acted on it",
}


def relay(
    request: PendingRequest,
    server: UpstreamServer,
    params: dict[str, Any],
    target: Target,
    failed: Callable[[MCPError], None] | None = None,
) -> None:
    """Pass a request on with other `params`, once the limits admit it. `failed` gets an error in place of the client.

    The audit has its line before the client gets the answer.
    """
    owner, handle = server.owner_of(request)
    checks = request.view.checks
    request.target, request.begun, request.admission = target, time.monotonic(), None
    request.on_cancelled = functools.partial(_cancelled, request)
    on_end = functools.partial(_ended, request, _Ending(server.name, handle, failed))

    def new_call() -> RelayedCall | None:
        """The call to start; None if a parked call continues instead."""
        upstream = server.upstream_of(owner)
        parked = upstream.parked(request.method, params, request)
        if parked is None:
            request.call = call = RelayedCall(upstream, request.method, params, request, on_end)
            return call
        request.call = parked
        parked.go_on(params, request, on_end)
        return None

    def admitted(admission: Admission) -> None:
        request.admission = admission
        if admission.waited:
            metrics.instruments.limit_wait_duration.record(admission.waited, _labels(request))
        with EndingOnError(on_end):
            if (call := new_call()) is not None:
                call.start()

    def refused(error: MCPError) -> None:
        metrics.instruments.refused.add(1, {**_labels(request), names.ERROR_TYPE: error.error_type})
        on_end(Relayed(error=error))

    if request.is_stateless and request.log_level is not None:
        server.want_log_level(request.log_level)
    limits, client = checks.limits, request.principal or ANONYMOUS
    if checks.audit is not None and (unrecorded := checks.audit.refusal()) is not None:
        refused(unrecorded)
    elif limits is None or not limits.concern(client):
        with EndingOnError(on_end):
            if (call := new_call()) is not None:
                call.start()
    else:
        admission = limits.admit(client, server.name, target.tool, admitted, refused)
        if not request.is_answered and request.admission is None:
            request.admission = admission


class _Ending(NamedTuple):
    server: str
    handle: Handle | None
    """A new handle, which is added to the result."""
    failed: Callable[[MCPError], None] | None


def _ended(request: PendingRequest, ending: _Ending, relayed: Relayed) -> None:
    """Handle the end of a call, with a result or an error."""
    # While the audit holds the answer back, the client can still cancel. The call itself is over.
    request.on_cancelled = lambda _: _count(request, ending.server, "cancelled")
    admission, request.admission = request.admission, None
    if admission is not None:
        too_large = None if relayed.error is not None else admission.check_answer(len(relayed.result))
        admission.end(failed=_failed(relayed))
        if too_large is not None:
            relayed = Relayed(error=too_large)
    answer = later(request, lambda: _answer(request, ending, relayed))
    error = relayed.error
    size = len(relayed.result) if error is None else 0
    _record(request, admission, relayed.outcome, _delivery(request.params, error), answer, size)


def _answer(request: PendingRequest, ending: _Ending, relayed: Relayed) -> None:
    if len(relayed.result) > _LARGE_RESULT and (unread := _too_much_unread(request, relayed)) is not None:
        relayed = Relayed(error=unread)
    _count(request, ending.server, relayed.outcome)
    if relayed.error is None:
        result = relayed.result if ending.handle is None else with_handle(relayed.result, ending.handle)
        is_kept = request.is_stateless and request.method == "resources/read"
        request.succeed(cacheable_result(result) if is_kept else result)
    elif ending.failed is not None:
        ending.failed(relayed.error)
    else:
        fail(request, ending.server, relayed.error)


def _cancelled(request: PendingRequest, was_sent: bool) -> None:
    admission = request.admission
    if admission is not None:
        admission.end()
    assert request.target is not None, "it was passed on"
    _count(request, request.target.server or "", "cancelled")
    _record(request, admission, "cancelled", "unknown" if was_sent else "not_sent", lambda: None)


def _count(request: PendingRequest, server: str, outcome: str) -> None:
    request.view.checks.counts.add(request.principal, server, outcome, time.monotonic() - request.begun)


def _labels(request: PendingRequest) -> dict[str, str]:
    """Labels of metrics. Clients of an issuer count as one, to keep the number of values small."""
    server = None if request.target is None else request.target.server
    client = metric_name((request.principal or ANONYMOUS).name)
    return {names.SERVER_NAME: server or "", names.GATEWAY_CLIENT: client}


def _too_much_unread(request: PendingRequest, relayed: Relayed) -> MCPError | None:
    """The error that replaces a large result if the client has left too much unread; None otherwise."""
    client = (request.principal or ANONYMOUS).name
    try:
        request.view.checks.shares.check_unread(client, request.reply.unread, request.address)
    except OverShare as over:
        return InvalidResponse(f"the result has {len(relayed.result)} bytes and is not sent: {over}")
    return None


def refuse_unknown(request: PendingRequest, what: str, name: str) -> None:
    """Answer a request for something that does not exist, or that the client may not see."""
    outcome = "unknown_tool" if what == "tool" else "not_found"
    request.view.checks.counts.add(request.principal, "", outcome, 0.0)
    record_unknown(request, name, outcome, lambda: request.fail(INVALID_PARAMS, f"Unknown {what}: {name}"))


def record_unknown(request: PendingRequest, name: str, outcome: str, then: Callable[[], None]) -> None:
    """Record a request for something that does not exist, then answer it."""
    request.target, request.begun = Target(None, name), time.monotonic()
    _record(request, None, outcome, "not_sent", then)


def fail(request: PendingRequest, server: str, error: MCPError) -> None:
    """Answer with the server's error, or with an error of the way there that says whether the server may have acted."""
    if isinstance(error, JsonRpcError):
        # The stateless era has no code for a missing resource.
        code = INVALID_PARAMS if request.is_stateless and error.code == RESOURCE_NOT_FOUND else error.code
        if code in _OWN_AFFAIRS:
            request.fail(
                INTERNAL_ERROR, f"the gateway and server {server!r} do not understand one another: {error.message}"
            )
        else:
            request.fail(code, error.message, error.data, status=_STATUS.get(code, 200))
        return
    delivery = delivery_of(request.params, error)
    # The gateway's own circuit breaker names no host, so its message is shown.
    message, short = error.message, None if isinstance(error, CircuitOpen) else _HOST_DETAILS.get(error.error_type)
    if request.principal is not None and short is not None:
        # A client with a name may be on another machine.
        client = request.principal.name
        suppressed = request.view.checks.withheld.passes((server, client, error.error_type))
        if suppressed is not None:
            logger.warning("server_error_withheld", server=server, client=client, error=message, suppressed=suppressed)
        hint = error.next_attempt if isinstance(error, ServerUnavailable) else ""
        message = f"server {server!r}: {short}{hint}; the log of the gateway has the reason"
    details, words = details_of(server, error, delivery), f" ({_DELIVERY[delivery]})"
    # The words are there already if the server is a gateway.
    text = message.removesuffix(words) + words
    if delivery == "not_sent":
        request.fail(NOT_SENT, text, details)
    elif request.method == "tools/call":
        request.succeed(orjson.dumps(failed_result(text, details)))
    else:
        request.fail(OUTCOME_UNKNOWN, text, details)


def _failed(relayed: Relayed) -> bool | None:
    """Whether the tool failed; None if the call says nothing about the tool."""
    error = relayed.error
    if isinstance(error, JsonRpcError) and error.code in names.CALLERS_FAULT:
        return None
    if isinstance(error, (CallCancelled, Overloaded, ToolDenied)):
        return None
    return error is not None or relayed.is_error


def _delivery(params: Mapping[str, Any], error: MCPError | None) -> str:
    if error is None or (isinstance(error, JsonRpcError) and error.delivery == "unknown"):
        return "answered"
    return delivery_of(params, error)


def _trace_id(request: PendingRequest) -> str:
    """The id of the trace for the audit.

    It is the client's trace, which the gateway's spans continue (W3C Trace Context), or the gateway's own one. Without
    tracing it is random, and serves as the name of the line.
    """
    found = _TRACEPARENT.match(str(request.meta.get("traceparent", "")))
    if found is not None:
        return found[1]
    observation = request.observation
    return (None if observation is None else observation.trace_id) or secrets.token_hex(16)


def _record(
    request: PendingRequest,
    admission: Admission | None,
    outcome: str,
    delivery: Any,
    then: Callable[[], None],
    size: int = 0,
) -> None:
    """Record an ended request in the audit, which then calls `then`. Without an audit, only call `then`."""
    audit, target = request.view.checks.audit, request.target
    if audit is None or target is None:
        then()
        return
    arguments = bytes(request.params.get("arguments", b""))
    seconds = time.monotonic() - request.begun
    entry = AuditEntry(
        time=datetime.fromtimestamp(time.time() - seconds, UTC),
        client=(request.principal or ANONYMOUS).name,
        address=request.address,
        session=None if request.session is None else request.session.mark,
        request=shown_text(request.id) if isinstance(request.id, str) else request.id,
        method=shown_text(request.method),
        server=target.server,
        target=None if target.name is None else shown_text(target.name),
        arguments=digest_of(arguments),
        arguments_bytes=len(arguments),
        outcome=outcome,
        delivery=delivery,
        seconds=seconds,
        waited=0.0 if admission is None else admission.waited,
        answer_bytes=size,
        trace=_trace_id(request),
    )
    audit.record(entry, then)
