"""`Account`: what one request of a client may use, and what is recorded of it; `Guard`: what all accounts share.

Only requests that go to servers have accounts: calls of tools, prompts, reading of resources, completion. Lists are
answered from what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from gaia.mcp.errors import CallCancelled, JsonRpcError, MCPError, Overloaded, ToolDenied
from gaia.mcp.gateway.access.access import Access
from gaia.mcp.gateway.access.audit import Audit, AuditEntry, digest_of, shown_text, shown_uri
from gaia.mcp.gateway.access.limits import Admission
from gaia.mcp.gateway.access.principal import Principal
from gaia.telemetry.attributes import CALLERS_FAULT

__all__ = ["Account", "Guard"]

_TARGETS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri", "completion/complete": "ref"}
"""The methods of requests with accounts, and the member of their params that says what is wanted."""

_Delivery = Literal["answered", "not_sent", "unknown"]


class Guard:
    """The clients of a gateway, their limits and the audit, for its requests. For the gateway's event loop."""

    def __init__(self, access: Access, audit: Audit | None, clock: Callable[[], float]) -> None:
        """`clock` is that of the event loop."""
        self.access = access
        self.audit = audit
        self.clock = clock

    def account(
        self, principal: Principal, address: str | None, method: str, params: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> Account | None:
        """The account of a request; None for one that needs none.

        `address` is the IP address of the client; the values of `params` are JSON that was not decoded.
        """
        if method not in _TARGETS or (self.audit is None and not self.access.limits.concern(principal)):
            return None
        return Account(self, principal, address, method, params, meta)


class Account:
    """One request, from its arrival to its answer. Belongs to the gateway's event loop."""

    __slots__ = (
        "_address",
        "_admission",
        "_begun",
        "_error",
        "_guard",
        "_is_tool_error",
        "_meta",
        "_method",
        "_params",
        "_principal",
        "_server",
        "_target",
        "_time",
        "_waited",
        "_was_answered",
        "_was_passed_on",
    )

    def __init__(
        self,
        guard: Guard,
        principal: Principal,
        address: str | None,
        method: str,
        params: Mapping[str, Any],
        meta: Mapping[str, Any],
    ) -> None:
        self._guard = guard
        self._principal = principal
        self._address = address
        self._method = method
        self._params = params
        self._meta = meta
        self._begun = guard.clock()
        self._time = None if guard.audit is None else datetime.now(UTC)
        self._admission: Admission | None = None
        self._server: str | None = None
        self._target: str | None = None
        self._waited = 0.0
        self._error: MCPError | None = None
        """How the server's answer, or the way to it, failed."""
        self._is_tool_error = False
        self._was_answered = False
        self._was_passed_on = False

    def admit(
        self, server: str, target: str | None, go: Callable[[], None], refuse: Callable[[MCPError], None]
    ) -> None:
        """Have `go` called when the request may go to `server`, or `refuse` if it may not; now or later.

        `target` is the server's own name of the tool or the prompt. For a request that asks one server after the other,
        once for each, after `answered`.
        """
        self._server, self._target = server, target
        audit = self._guard.audit
        if audit is not None and (error := audit.refusal()) is not None:
            self._error = error
            refuse(error)
            return

        def admitted(admission: Admission) -> None:
            self._admission = admission
            self._waited += admission.waited
            self._was_passed_on = True
            go()

        def refused(error: MCPError) -> None:
            self._error = error
            refuse(error)

        tool = target if self._method == "tools/call" else None
        admission = self._guard.access.limits.admit(self._principal, server, tool, None, admitted, refused)
        if not self._was_passed_on:
            self._admission = admission

    def answered(self, size: int, error: MCPError | None, *, is_tool_error: bool) -> MCPError | None:
        """The server's answer is there: a result of `size` bytes, or `error`. Returns the error that the client gets.

        It is another one if the result is larger than limits allow.
        """
        admission = self._admission
        if admission is not None:
            if error is None:
                error = admission.check_answer(size)
            admission.end(failed=_has_failed(error, is_tool_error=is_tool_error))
        self._error, self._is_tool_error = error, is_tool_error
        self._was_answered = error is None or isinstance(error, JsonRpcError)
        self._was_passed_on = False
        return error

    def cancelled(self) -> None:
        """The client does not wait for the answer any more."""
        self._error = CallCancelled(
            "cancelled by its client", delivery="unknown" if self._was_passed_on else "not_sent"
        )
        self._was_answered = False
        self.close(0, lambda: None)

    def close(self, size: int, then: Callable[[], None]) -> None:
        """The answer, of `size` bytes, is to leave, which `then` does: after the line of the audit is written."""
        if self._admission is not None:
            self._admission.end()
        audit = self._guard.audit
        if audit is None:
            then()
        else:
            audit.record(self._entry(size), then)

    def _entry(self, size: int) -> AuditEntry:
        assert self._time is not None, "there is an audit"
        error = self._error
        delivery: _Delivery = "not_sent"
        if self._was_answered:
            delivery = "answered"
        elif error is not None:
            delivery = error.delivery
        outcome = "ok" if self._was_answered else "refused"
        if error is not None:
            outcome = error.error_type
        elif self._is_tool_error:
            outcome = "tool_error"
        arguments = bytes(self._params.get("arguments", b""))
        return AuditEntry(
            time=self._time,
            client=self._principal.name,
            address=self._address,
            method=self._method,
            server=self._server,
            target=self._shown_target(),
            arguments=digest_of(arguments),
            arguments_bytes=len(arguments),
            outcome=outcome,
            delivery=delivery,
            waited=round(self._waited, 6),
            seconds=round(self._guard.clock() - self._begun, 6),
            answer_bytes=size,
            trace=_trace_of(self._meta),
        )

    def _shown_target(self) -> str | None:
        if self._target is not None:
            return shown_text(self._target)
        try:
            wanted = msgspec.json.decode(self._params.get(_TARGETS[self._method], b"null"))
        except msgspec.DecodeError:
            return None
        is_uri = self._method == "resources/read"
        if isinstance(wanted, dict):
            is_uri = "uri" in wanted
            wanted = wanted.get("uri" if is_uri else "name")
        if not isinstance(wanted, str):
            return None
        return shown_uri(wanted) if is_uri else shown_text(wanted)


def _has_failed(error: MCPError | None, *, is_tool_error: bool) -> bool | None:
    """Whether a call speaks against its tool; None if it says nothing about it."""
    if error is None:
        return is_tool_error
    if isinstance(error, JsonRpcError):
        return error.code not in CALLERS_FAULT
    return None if isinstance(error, (CallCancelled, Overloaded, ToolDenied)) else True


def _trace_of(meta: Mapping[str, Any]) -> str | None:
    """The id of the client's trace, which the gateway's spans continue (W3C Trace Context)."""
    parts = str(meta.get("traceparent", "")).split("-")
    is_valid = len(parts) >= 4 and len(parts[1]) == 32 and set(parts[1]) <= set("0123456789abcdef")
    return parts[1] if is_valid else None
