"""SERVER spans for requests, after the OpenTelemetry conventions for MCP (see `gaia.telemetry` for the revision).

The parent is the context in the request's ``_meta``, so a trace goes on from the calling agent; the ambient one, of an
HTTP server for example, is only linked. The span is current while the agent's code runs, also on its worker thread.
"""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from pydantic import ValidationError

from gaia.telemetry import attributes as names
from gaia.telemetry.spans import ServerSpan

_tracer = trace.get_tracer("gaia.mcp.server")

Attributes = dict[str, str | int]


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
        name = ctx.method if target is None else f"{ctx.method} {target}"
        span = ServerSpan(name, attributes, self._details(ctx), ctx.meta, tracer=_tracer, ambient=True)
        code, error_type = None, None
        with span.current():
            try:
                result = await call_next(ctx)
                if ctx.method == "tools/call" and isinstance(result, dict) and result.get("isError") is True:
                    error_type = names.TOOL_ERROR
                return result
            except MCPError as error:
                code = error.error.code
                raise
            except ValidationError:
                code = types.INVALID_PARAMS
                raise
            except asyncio.CancelledError:
                error_type = "cancelled"
                raise
            except BaseException as error:
                error_type = type(error).__qualname__
                raise
            finally:
                span.answered(code, error_type)

    def _attributes(self, ctx: ServerRequestContext[Any, Any]) -> tuple[str | None, Attributes]:
        common = {names.METHOD_NAME: ctx.method, names.PROTOCOL_VERSION: ctx.protocol_version}
        attributes: Attributes = {**common, **self._transport}
        name = ctx.params.get("name") if ctx.params else None
        if not isinstance(name, str) or ctx.method not in ("tools/call", "prompts/get"):
            return None, attributes
        if ctx.method == "tools/call":
            attributes |= {names.OPERATION_NAME: "execute_tool", names.TOOL_NAME: name}
        else:
            attributes[names.PROMPT_NAME] = name
        return name, attributes

    def _details(self, ctx: ServerRequestContext[Any, Any]) -> Attributes:
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
