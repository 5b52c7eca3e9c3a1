"""What each call of a client passes on its way to a server and back: the limits and the audit."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from gaia.mcp.errors import CallCancelled, InvalidResponse, JsonRpcError, MCPError, Overloaded, ToolDenied
from gaia.mcp.gateway.access.audit import AuditEntry, digest_of, shown_text
from gaia.mcp.gateway.access.checks import Checks
from gaia.mcp.gateway.access.limits import Admission
from gaia.mcp.gateway.access.principal import ANONYMOUS, metric_name
from gaia.mcp.gateway.clients.pending_request import PendingRequest
from gaia.mcp.gateway.upstream.rounds import OnEnd, OngoingCall, Relayed
from gaia.mcp.protocol.rounds import delivery_of
from gaia.runtime.log import exception_text, get_logger
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics

logger = get_logger(__name__)

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-")

Send = Callable[[OnEnd], "OngoingCall | None"]
"""Passes the call on to the server, which ends it."""


class Target:
    """What a call is about."""

    __slots__ = ("name", "server", "tool")

    def __init__(self, server: str | None, name: str | None, *, is_tool: bool = False) -> None:
        """`server` is None if there is no such thing; `name` is that of a tool or prompt, or a URI."""
        self.server = server
        self.name = name
        self.tool = name if is_tool else None


def pass_on(request: PendingRequest, target: Target, send: Send, on_end: OnEnd) -> None:
    """Have `send` called when the limits admit the call. `on_end` is called once the audit has its line.

    Without limits and audit, the call passes as it is.
    """
    checks = request.view.checks
    limits = checks.limits
    is_limited = limits is not None and limits.concern(request.principal or ANONYMOUS)
    if not is_limited and checks.audit is None:
        call = send(on_end)
        if not request.is_answered:
            request.call = call
        return
    controlled = _ControlledCall(checks, request, target, send, on_end)
    if checks.audit is not None and (refusal := checks.audit.refusal()) is not None:
        metrics.instruments.refused.add(1, {**controlled.labels, names.ERROR_TYPE: refusal.error_type})
        on_end(Relayed(error=refusal))
        return
    request.call = controlled
    controlled.begin()


def record_unknown(request: PendingRequest, target: Target, outcome: str, then: Callable[[], None]) -> None:
    """Record a request for something that does not exist, and then answer it."""
    audit = request.view.checks.audit
    if audit is None:
        then()
    else:
        audit.record(_entry(request, target, time.monotonic(), outcome=outcome, delivery="not_sent"), then)


class _ControlledCall:
    """One call, see `UnderWay`."""

    def __init__(self, checks: Checks, request: PendingRequest, target: Target, send: Send, on_end: OnEnd) -> None:
        self.client = request
        self._checks = checks
        self._target = target
        self._send = send
        self._on_end = on_end
        self._begun = time.monotonic()
        self._admission: Admission | None = None
        self._call: OngoingCall | None = None
        """What the server does; None before the call is admitted."""
        self._is_over = False

    def begin(self) -> None:
        limits, request = self._checks.limits, self.client
        if limits is None:
            self._go(None)
            return
        principal = request.principal or ANONYMOUS
        server = self._target.server or ""
        admission = limits.admit(principal, server, self._target.tool, None, self._go, self._refused)
        if not self._is_over:
            self._admission = admission

    def _go(self, admission: Admission | None) -> None:
        self._admission = admission
        if admission is not None and admission.waited:
            metrics.instruments.limit_wait_duration.record(admission.waited, self.labels)
        try:
            self._call = self._send(self._ended)
        except Exception as error:  # noqa: BLE001 - the limits have to be told the end in any case
            logger.error("gateway_request_failed", method=self.client.method, error=exception_text(error))
            self._ended(Relayed(error=InvalidResponse("internal error of the gateway")))

    @property
    def labels(self) -> dict[str, str]:
        """Of metrics: with few values, so clients of an issuer are one."""
        client = metric_name((self.client.principal or ANONYMOUS).name)
        return {names.SERVER_NAME: self._target.server or "", names.GATEWAY_CLIENT: client}

    def _refused(self, error: MCPError) -> None:
        metrics.instruments.refused.add(1, {**self.labels, names.ERROR_TYPE: error.error_type})
        self._finish(Relayed(error=error))

    def _ended(self, relayed: Relayed) -> None:
        if self._is_over:
            return
        if self._admission is not None:
            too_large = None if relayed.error is not None else self._admission.check_answer(len(relayed.result))
            self._admission.end(failed=_failed(relayed))
            if too_large is not None:
                relayed = Relayed(error=too_large)
        self._finish(relayed)

    def _finish(self, relayed: Relayed) -> None:
        self._is_over = True
        on_end, error = self._on_end, relayed.error
        if self._checks.audit is None:
            on_end(relayed)
            return
        size = len(relayed.result) if error is None else 0
        self._record(relayed.outcome, _delivery(self.client.params, error), size, lambda: on_end(relayed))

    def cancel(self, reason: str) -> None:
        """The client does not want the answer any more."""
        if self._is_over:
            return
        self._is_over = True
        was_sent = self._call is not None
        if self._call is not None:
            self._call.cancel(reason)
        if self._admission is not None:
            self._admission.end()
        if self._checks.audit is not None:
            self._record("cancelled", "unknown" if was_sent else "not_sent", 0, lambda: None)

    def _record(self, outcome: str, delivery: str, size: int, then: Callable[[], None]) -> None:
        assert self._checks.audit is not None
        entry = _entry(self.client, self._target, self._begun, outcome=outcome, delivery=delivery)
        entry.waited = 0.0 if self._admission is None else self._admission.waited
        entry.answer_bytes = size
        self._checks.audit.record(entry, then)


def _failed(relayed: Relayed) -> bool | None:
    """Whether the tool failed to do what it was asked to; None if the call says nothing about it."""
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
    """That of the client's trace, which the gateway's spans continue (W3C Trace Context), or of the gateway's own.

    Without tracing it is a random one, by which the line can be named.
    """
    found = _TRACEPARENT.match(str(request.meta.get("traceparent", "")))
    if found is not None:
        return found[1]
    observation = request.observation
    return (None if observation is None else observation.trace_id) or secrets.token_hex(16)


def _entry(request: PendingRequest, target: Target, begun: float, *, outcome: str, delivery: Any) -> AuditEntry:
    arguments = bytes(request.params.get("arguments", b""))
    seconds = time.monotonic() - begun
    return AuditEntry(
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
        trace=_trace_id(request),
    )
