"""SERVER spans for requests, after the OpenTelemetry conventions for MCP (see `gaia.telemetry` for the revision).

The parent is the context in the request's ``_meta``, so a trace goes on from the calling agent; the ambient one, of an
HTTP server for example, is only linked. The span is current while the agent's code runs, also on its worker thread.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from pydantic import ValidationError

from gaia.telemetry import attributes as names
from gaia.telemetry import metrics

__all__ = ["ServerSpans"]

_tracer = trace.get_tracer("gaia.mcp.server")

Attributes = dict[str, str | int]

_NAMES = (names.TOOL_NAME, names.PROMPT_NAME)


class ServerSpans:
    """The outermost middleware of the SDK's server."""

    def __init__(self, transport: str) -> None:
        self._transport: Attributes = {names.NETWORK_TRANSPORT: transport}
        if transport == "tcp":
            self._transport[names.NETWORK_PROTOCOL_NAME] = "http"

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "subscriptions/listen":
            # Stays open for hours; a span or a duration of that would tell nothing.
            return await call_next(ctx)
        target, attributes = self._attributes(ctx)
        ambient = trace.get_current_span().get_span_context()
        parent = propagate.extract(dict(ctx.meta)) if ctx.meta else None
        if parent is not None and not trace.get_current_span(parent).get_span_context().is_valid:
            parent = None
        began = time.perf_counter()
        with _tracer.start_as_current_span(
            f"{ctx.method} {target}" if target else ctx.method,
            context=parent,
            kind=SpanKind.SERVER,
            attributes={**attributes, **self._only_on_spans(ctx)},
            links=[Link(ambient)] if parent is not None and ambient.is_valid else None,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            outcome: Attributes = {}
            try:
                result = await call_next(ctx)
                outcome = _tool_error(ctx, result)
                return result
            except MCPError as error:
                outcome = _protocol_error(error.error.code)
                raise
            except ValidationError:
                outcome = _protocol_error(types.INVALID_PARAMS)
                raise
            except asyncio.CancelledError:
                outcome = {names.ERROR_TYPE: "cancelled"}
                raise
            except BaseException as error:
                outcome = {names.ERROR_TYPE: type(error).__qualname__}
                raise
            finally:
                _end(span, outcome)
                metrics.instruments.served_duration.record(time.perf_counter() - began, _countable(attributes, outcome))

    def _attributes(self, ctx: ServerRequestContext[Any, Any]) -> tuple[str | None, Attributes]:
        attributes: Attributes = {
            names.METHOD_NAME: ctx.method,
            names.PROTOCOL_VERSION: ctx.protocol_version,
            **self._transport,
        }
        name = ctx.params.get("name") if ctx.params else None
        if not isinstance(name, str) or ctx.method not in ("tools/call", "prompts/get"):
            return None, attributes
        if ctx.method == "tools/call":
            attributes |= {names.OPERATION_NAME: "execute_tool", names.TOOL_NAME: name}
        else:
            attributes[names.PROMPT_NAME] = name
        return name, attributes

    def _only_on_spans(self, ctx: ServerRequestContext[Any, Any]) -> Attributes:
        """What tells single requests apart, and so would make a metric useless."""
        attributes: Attributes = {}
        if ctx.request_id is not None:
            attributes[names.REQUEST_ID] = str(ctx.request_id)
        uri = ctx.params.get("uri") if ctx.params else None
        if isinstance(uri, str) and ctx.method.startswith("resources/"):
            attributes[names.RESOURCE_URI] = uri
        headers = getattr(ctx.request, "headers", None)
        if headers is not None:
            session = headers.get("mcp-session-id")
            if session and ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                attributes[names.SESSION_ID] = session
            client = getattr(ctx.request, "client", None)
            if client is not None:
                attributes |= {names.CLIENT_ADDRESS: client.host, names.CLIENT_PORT: client.port}
        return attributes


def _countable(attributes: Attributes, outcome: Attributes) -> Attributes:
    """For a metric: names that clients make up would each be a series of its own."""
    code = outcome.get(names.STATUS_CODE)
    if code == str(types.METHOD_NOT_FOUND):
        attributes = {**attributes, names.METHOD_NAME: "_OTHER"}
    elif code == str(types.INVALID_PARAMS):
        attributes = {key: value for key, value in attributes.items() if key not in _NAMES}
    return {**attributes, **outcome}


def _protocol_error(code: int) -> Attributes:
    outcome: Attributes = {names.STATUS_CODE: str(code)}
    if code not in names.CALLERS_FAULT:
        outcome[names.ERROR_TYPE] = str(code)
    return outcome


def _tool_error(ctx: ServerRequestContext[Any, Any], result: HandlerResult) -> Attributes:
    if ctx.method == "tools/call" and isinstance(result, dict) and result.get("isError") is True:
        return {names.ERROR_TYPE: names.TOOL_ERROR}
    return {}


def _end(span: Span, outcome: Attributes) -> None:
    span.set_attributes(outcome)
    if names.ERROR_TYPE in outcome:
        span.set_status(Status(StatusCode.ERROR))
