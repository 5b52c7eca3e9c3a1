"""The SDK's server in front of an agent, with SERVER spans for requests by the OpenTelemetry conventions for MCP.

A span's parent is the context in the request's ``_meta``, so a trace continues from the calling agent. The ambient
context, for example of an HTTP server, is only linked. The span is current while the agent's code runs, also on its
worker thread. `gaia.telemetry` names the revision of the conventions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from pydantic import ValidationError

from gaia.agents.base.mcp_context import ServableAgent
from gaia.mcp.server.calls import Calls
from gaia.mcp.server.changes import ChangeNotifier
from gaia.mcp.server.handlers import Handlers
from gaia.serving.threads import WorkerThreads
from gaia.telemetry import attributes as names
from gaia.telemetry.spans import ServerSpan

_tracer = trace.get_tracer("gaia.mcp.server")

Attributes = dict[str, str | int]


class ServerSpans:
    def __init__(self, transport: str) -> None:
        self._transport: Attributes = {names.NETWORK_TRANSPORT: transport}
        if transport == "tcp":
            self._transport[names.NETWORK_PROTOCOL_NAME] = "http"

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "subscriptions/listen":
            # Such a request stays open for hours, so a span or a duration would be useless.
            return await call_next(ctx)
        attributes: Attributes = {names.METHOD_NAME: ctx.method, names.PROTOCOL_VERSION: ctx.protocol_version}
        attributes |= self._transport
        name, target = ctx.method, ctx.params.get("name") if ctx.params else None
        if isinstance(target, str) and ctx.method in ("tools/call", "prompts/get"):
            name = f"{name} {target}"
            if ctx.method == "tools/call":
                attributes |= {names.OPERATION_NAME: names.EXECUTE_TOOL, names.TOOL_NAME: target}
            else:
                attributes[names.PROMPT_NAME] = target
        span = ServerSpan(name, attributes, _details(ctx), ctx.meta, tracer=_tracer, ambient=True)
        code: int | None = None
        error_type: str | None = None
        with span.current():
            try:
                result = await call_next(ctx)
                if ctx.method == "tools/call" and isinstance(result, dict) and result.get("isError") is True:
                    error_type = names.TOOL_ERROR
                return result
            except BaseException as error:
                code, error_type = _failure(error)
                raise
            finally:
                span.answered(code, error_type)


def _failure(error: BaseException) -> tuple[int | None, str | None]:
    if isinstance(error, MCPError):
        return error.error.code, None
    if isinstance(error, ValidationError):
        return types.INVALID_PARAMS, None
    return None, "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__qualname__


def _details(ctx: ServerRequestContext[Any, Any]) -> Attributes:
    """Attributes with a value for each request, which would make a metric useless."""
    attributes: Attributes = {}
    if ctx.request_id is not None:
        attributes[names.REQUEST_ID] = str(ctx.request_id)
    uri = ctx.params.get("uri") if ctx.params else None
    if isinstance(uri, str) and ctx.method.startswith("resources/"):
        attributes[names.RESOURCE_URI] = uri
    if (headers := getattr(ctx.request, "headers", None)) is not None:
        session = headers.get("mcp-session-id")
        if session and ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            attributes[names.SESSION_ID] = session
        if (client := getattr(ctx.request, "client", None)) is not None:
            attributes |= {names.CLIENT_ADDRESS: client.host, names.CLIENT_PORT: client.port}
    return attributes


GRACE = 2.0
"""How long open calls may take to end when the server ends."""


class AgentServer(Server[None]):
    """The SDK's server. It also declares to clients before 2026-07-28 that lists may change."""

    def create_initialization_options(self, *args: Any, **kwargs: Any) -> InitializationOptions:
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(changes, *args[1:], **kwargs)


@dataclass(frozen=True)
class ServedAgent:
    agent: ServableAgent
    server: Server[None]
    calls: Calls
    threads: WorkerThreads
    changes: ChangeNotifier

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the agent's changes. On exit, cancel the open calls and end the threads."""
        with self.changes.following(self.agent):
            try:
                yield
            finally:
                for context in tuple(self.calls.in_flight):
                    context.scope.cancel()
                self.threads.close(GRACE)


def create_server(agent: ServableAgent, *, max_threads: int = 32, transport: str = "pipe") -> ServedAgent:
    """Make a server that does not run yet. `transport` is the transport's name in OpenTelemetry."""
    threads = WorkerThreads(max_threads)
    calls = Calls(threads)
    changes = ChangeNotifier()
    handlers = Handlers(agent, calls)
    info = agent.get_mcp_server_info()
    server = AgentServer(
        str(info.get("name") or "GAIA agent"),
        version=str(info.get("version") or ""),
        title=info.get("title"),
        description=info.get("description"),
        website_url=info.get("websiteUrl"),
        instructions=agent.get_mcp_instructions() or None,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_subscriptions_listen=changes.listen,
    )
    page, handle = types.PaginatedRequestParams, server.add_request_handler
    if agent.offers_mcp("prompts"):
        handle("prompts/list", page, handlers.list_prompts)
        handle("prompts/get", types.GetPromptRequestParams, handlers.get_prompt)
    if agent.offers_mcp("resources"):
        handle("resources/list", page, handlers.list_resources)
        handle("resources/templates/list", page, handlers.list_resource_templates)
        handle("resources/read", types.ReadResourceRequestParams, handlers.read_resource)
        handle("resources/subscribe", types.SubscribeRequestParams, changes.subscribe)
        handle("resources/unsubscribe", types.UnsubscribeRequestParams, changes.unsubscribe)
    if agent.offers_mcp("completions"):
        handle("completion/complete", types.CompleteRequestParams, handlers.complete)
    # The constructor's argument warns that the feature is deprecated; it is meant for clients that have it.
    handle("logging/setLevel", types.SetLevelRequestParams, handlers.set_log_level)
    server.add_notification_handler("notifications/initialized", types.NotificationParams, changes.opened)
    # The SDK's own spans do not follow the convention.
    server.middleware[:] = [
        ServerSpans(transport),
        RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name),
    ]
    return ServedAgent(agent, server, calls, threads, changes)
