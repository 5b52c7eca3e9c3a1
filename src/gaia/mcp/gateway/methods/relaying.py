"""Passes a request on to a server, and its result to the client."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from gaia.mcp.errors import (
    CallCancelled,
    CallTimeout,
    InvalidResponse,
    JsonRpcError,
    MCPError,
    Overloaded,
    ServerUnavailable,
    ToolDenied,
    UnknownTool,
)
from gaia.mcp.gateway.access.audit import AuditEntry, digest_of, shown_text
from gaia.mcp.gateway.access.checks import OverShare
from gaia.mcp.gateway.access.gate import CircuitOpen
from gaia.mcp.gateway.access.limits import Admission
from gaia.mcp.gateway.access.principal import ANONYMOUS, metric_name
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.instances.handles import Handle, with_handle
from gaia.mcp.gateway.messages import cacheable_result
from gaia.mcp.gateway.upstream.relayed_call import RelayedCall, relay_error
from gaia.mcp.gateway.upstream.rounds import OngoingCall, Relayed
from gaia.mcp.gateway.upstream.sealing import binding_of
from gaia.mcp.gateway.views.upstream_servers import UpstreamServer
from gaia.mcp.observation.request_spans import Observation
from gaia.mcp.protocol.eras import MISSING_CAPABILITY, UNSUPPORTED_VERSION
from gaia.mcp.protocol.gateway_answers import NOT_SENT, OUTCOME_UNKNOWN, details_of, failed_result, failure_of
from gaia.mcp.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from gaia.mcp.protocol.request_headers import HEADER_MISMATCH
from gaia.mcp.protocol.rounds import delivery_of
from gaia.runtime.log import get_logger
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics

logger = get_logger(__name__)

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-")

RESOURCE_NOT_FOUND = -32002
"""The error code up to revision 2025-11-25."""

_STATUS = {METHOD_NOT_FOUND: 404, MISSING_CAPABILITY: 400}
"""The HTTP statuses of error codes in the stateless era, where they are not 200."""

_OWN_AFFAIRS = frozenset({HEADER_MISMATCH, UNSUPPORTED_VERSION})
"""Errors about the messages between gateway and server, which the client's own message did not cause."""

_LARGE_RESULT = 64 * 1024
"""Bytes. Smaller results go even to a client with many unread bytes."""

_HOST_DETAILS = {
    "server_unavailable": "it is unavailable",
    "server_crashed": "it was lost",
    "not_connected": "it is not connected",
    "config": "its configuration cannot be used",
    "denied": "its tool is denied",
    "needs_authorization": "the gateway has to log in at it",
    "http": "the HTTP request to it failed",
}
"""Replacements for messages that name programs, folders or URLs, or quote a server. Named clients see them."""

_DELIVERY = {
    "not_sent": "the server has not received it",
    "unknown": "the server may have acted on it",
}

OnFailed = Callable[[MCPError], None]


def relay(
    request: PendingRequest,
    server: UpstreamServer,
    params: dict[str, Any],
    target: str,
    failed: OnFailed | None = None,
) -> None:
    """Pass a request on with other `params`, once the limits admit it.

    `failed` receives an error instead of the client.

    `target` is the server's name of the tool or prompt, or a URI. The audit writes its line before the client gets the
    answer.
    """
    owner, handle = request.owner_at(server)
    passed = _PassedRequest(request, server.name, target, handle, failed)
    request.on_cancelled = passed.cancelled

    def admitted(admission: Admission) -> None:
        passed.admission = admission
        if admission.waited:
            metrics.instruments.limit_wait_duration.record(admission.waited, passed.labels())
        with passed:
            if (call := _new_call(passed, server, owner, params)) is not None:
                call.start()

    def refused(error: MCPError) -> None:
        metrics.instruments.refused.add(1, {**passed.labels(), names.ERROR_TYPE: error.error_type})
        passed.ended(Relayed(error=error))

    if request.is_stateless and request.log_level is not None:
        server.want_log_level(request.log_level)
    checks, client = request.view.checks, request.principal or ANONYMOUS
    limits = checks.limits
    refusal = _late(request) or (None if checks.audit is None else checks.audit.refusal())
    if refusal is not None:
        refused(refusal)
    elif limits is None or not limits.concern(client):
        with passed:
            if (call := _new_call(passed, server, owner, params)) is not None:
                call.start()
    else:
        admission = limits.admit(client, server.name, passed.tool, admitted, refused)
        if not passed.is_over:
            passed.admission = admission


def _new_call(
    passed: _PassedRequest, server: UpstreamServer, owner: Hashable, params: dict[str, Any]
) -> RelayedCall | None:
    """The call to start; None if a parked call continues. Raises `MCPError`."""
    request = passed.request
    # Again, because the call may have waited.
    if (late := _late(request)) is not None:
        raise late
    process, rounds, method = server.process_of(owner), request.view.rounds, request.method
    binding = binding_of(server.name, request.identity, method, params) if "requestState" in params else None
    parked = None if binding is None else rounds.opened(params, binding)
    if parked is not None:
        passed.call = parked
        parked.go_on(params, request, passed.ended)
        return None
    passed.call = call = RelayedCall(process, rounds, method, params, request, passed.ended)
    passed.observation = call.exchange.observation
    return call


@dataclass(slots=True, eq=False)
class _PassedRequest:
    """A request on its way to a server, as the limits, the audit and the counts see it."""

    request: PendingRequest
    server: str | None
    target: str
    handle: Handle | None = None
    failed: OnFailed | None = None
    begun: float = field(default_factory=time.monotonic)
    admission: Admission | None = None
    call: OngoingCall | None = None
    observation: Observation | None = None
    is_over: bool = False
    """Whether the call is over. The audit may still hold back the answer."""

    def __enter__(self) -> None:
        """Begin to pass the request on. An error in the block ends the request, because no other code would."""

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self.ended(Relayed(error=relay_error(error)))
        return True

    def ended(self, relayed: Relayed) -> None:
        self.is_over = True
        if self.admission is not None:
            too_large = None if relayed.error is not None else self.admission.check_answer(len(relayed.result))
            self.admission.end(failed=_failed(relayed))
            if too_large is not None:
                relayed = Relayed(error=too_large)
        params, error = self.request.params, relayed.error
        if error is None or (isinstance(error, JsonRpcError) and error.delivery == "unknown"):
            delivery = "answered"
        else:
            delivery = delivery_of(params, error)
        size = len(relayed.result) if error is None else 0
        self.record(relayed.outcome, delivery, later(self.request, lambda: self._answer(relayed)), size)

    def cancelled(self, reason: str) -> None:
        if self.call is not None:
            self.call.cancel(reason)
        self._count("cancelled")
        if not self.is_over:
            if self.admission is not None:
                self.admission.end()
            self.record("cancelled", "not_sent" if self.call is None else "unknown", lambda: None)

    def _answer(self, relayed: Relayed) -> None:
        request = self.request
        if len(relayed.result) > _LARGE_RESULT:
            try:
                client = (request.principal or ANONYMOUS).name
                request.view.checks.shares.check_unread(client, request.reply.unread, request.address)
            except OverShare as over:
                text = f"the result has {len(relayed.result)} bytes and is not sent: {over}"
                relayed = Relayed(error=InvalidResponse(text))
        self._count(relayed.outcome)
        if relayed.error is None:
            result = relayed.result if self.handle is None else with_handle(relayed.result, self.handle)
            is_kept = request.is_stateless and request.method == "resources/read"
            request.succeed(cacheable_result(result) if is_kept else result, has_type=relayed.has_type)
        elif self.failed is not None:
            self.failed(relayed.error)
        else:
            fail(request, self.server or "", relayed.error)

    def _count(self, outcome: str) -> None:
        counts, seconds = self.request.view.checks.counts, time.monotonic() - self.begun
        counts.add(self.request.principal, self.server or "", outcome, seconds)

    @property
    def tool(self) -> str | None:
        return self.target if self.request.method == "tools/call" else None

    def labels(self) -> dict[str, str]:
        """Labels of metrics. All clients of an issuer count as one, so that the number of values stays small."""
        client = metric_name((self.request.principal or ANONYMOUS).name)
        return {names.SERVER_NAME: self.server or "", names.GATEWAY_CLIENT: client}

    def record(self, outcome: str, delivery: Any, then: Callable[[], None], size: int = 0) -> None:
        """Record the end in the audit, which then calls `then`. Without an audit, call `then` at once."""
        request = self.request
        audit = request.view.checks.audit
        if audit is None:
            then()
            return
        arguments = bytes(request.params.get("arguments", b""))
        seconds = time.monotonic() - self.begun
        entry = AuditEntry(
            time=datetime.fromtimestamp(time.time() - seconds, UTC),
            client=(request.principal or ANONYMOUS).name,
            address=request.address,
            session=None if request.session is None else request.session.mark,
            request=shown_text(request.id) if isinstance(request.id, str) else request.id,
            method=shown_text(request.method),
            server=self.server,
            target=shown_text(self.target),
            arguments=digest_of(arguments),
            arguments_bytes=len(arguments),
            outcome=outcome,
            delivery=delivery,
            seconds=seconds,
            waited=0.0 if self.admission is None else self.admission.waited,
            answer_bytes=size,
            trace=self._trace_id(),
        )
        audit.record(entry, then)

    def _trace_id(self) -> str:
        """The trace's id for the audit, from the client's trace or the gateway's. Without tracing it is random."""
        found = _TRACEPARENT.match(str(self.request.meta.get("traceparent", "")))
        if found is not None:
            return found[1]
        return (None if self.observation is None else self.observation.trace_id) or secrets.token_hex(16)


def _late(request: PendingRequest) -> MCPError | None:
    """The error of a call whose client does not wait any more. The gateway may have stood still meanwhile."""
    deadline = request.deadline
    if deadline is None or time.monotonic() < deadline:
        return None
    return CallTimeout(f"the gateway came to {request.method} after its deadline, and did not pass it on")


def refuse_unknown(request: PendingRequest, what: str, name: str) -> None:
    """Answer a request for a thing that does not exist or that the client may not see."""
    outcome = "unknown_tool" if what == "tool" else "not_found"
    request.view.checks.counts.add(request.principal, "", outcome, 0.0)
    text = f"Unknown {what}: {name}"
    error: MCPError = UnknownTool(text) if what == "tool" else JsonRpcError(INVALID_PARAMS, text)
    error.delivery = "not_sent"
    record_unknown(request, name, outcome, lambda: fail(request, "", error))


def record_unknown(request: PendingRequest, name: str, outcome: str, then: Callable[[], None]) -> None:
    _PassedRequest(request, None, name).record(outcome, "not_sent", then)


def fail(request: PendingRequest, server: str, error: MCPError) -> None:
    """Answer with the server's error, or with a relaying error that says whether the server may have acted."""
    delivery = delivery_of(request.params, error)
    details = details_of(server, error, delivery)
    if isinstance(error, UnknownTool):
        request.fail(INVALID_PARAMS, error.message, details)
        return
    if isinstance(error, JsonRpcError):
        # The stateless era has no code of its own for a missing resource.
        code = INVALID_PARAMS if request.is_stateless and error.code == RESOURCE_NOT_FOUND else error.code
        if code in _OWN_AFFAIRS:
            text = f"the gateway and server {server!r} do not understand one another: {error.message}"
            request.fail(INTERNAL_ERROR, text)
        else:
            # A server that is no gateway must not speak for this one.
            own = None if failure_of(code, "", error.data) is not None else error.data
            data = details if delivery == "not_sent" else own
            request.fail(code, error.message, data, status=_STATUS.get(code, 200))
        return
    # The gateway's own circuit breaker names no host, so its message is shown.
    message, short = error.message, None if isinstance(error, CircuitOpen) else _HOST_DETAILS.get(error.error_type)
    if request.principal is not None and short is not None:
        # A client with a name may be on another machine, so details of this host are withheld.
        client = request.principal.name
        suppressed = request.view.checks.withheld.passes((server, client, error.error_type))
        if suppressed is not None:
            logger.warning("server_error_withheld", server=server, client=client, error=message, suppressed=suppressed)
        hint = error.next_attempt if isinstance(error, ServerUnavailable) else ""
        message = f"server {server!r}: {short}{hint}; the log of the gateway has the reason"
    words = f" ({_DELIVERY[delivery]})"
    # If the server is a gateway, its message already has these words.
    text = message.removesuffix(words) + words
    if delivery == "not_sent":
        request.fail(NOT_SENT, text, details)
    elif request.method == "tools/call":
        request.succeed(orjson.dumps(failed_result(text, details)))
    else:
        request.fail(OUTCOME_UNKNOWN, text, details)


def _failed(relayed: Relayed) -> bool | None:
    """Whether the tool failed; None if the end of the call does not show that."""
    error = relayed.error
    if isinstance(error, JsonRpcError) and error.code in names.CALLERS_FAULT:
        return None
    if isinstance(error, (CallCancelled, Overloaded, ToolDenied)):
        return None
    return error is not None or relayed.is_error
