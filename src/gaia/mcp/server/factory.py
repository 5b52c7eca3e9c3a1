"""`create_server`: the SDK's server with handlers for everything that an agent offers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from gaia.mcp.server.calls import Calls
from gaia.mcp.server.changes import Changes
from gaia.mcp.server.handlers import Handlers
from gaia.mcp.server.offering import Offering
from gaia.mcp.server.server_spans import ServerSpans
from gaia.runtime.log import get_logger
from gaia.serving.threads import WorkerThreads

logger = get_logger(__name__)

GRACE = 2.0
"""Seconds that calls get to end when the server does."""


class AgentServer(Server[None]):
    """The SDK's server, saying also to clients before 2026-07-28 that lists may change."""

    def create_initialization_options(self, *args: Any, **kwargs: Any) -> InitializationOptions:
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(changes, *args[1:], **kwargs)


@dataclass(frozen=True)
class ServedAgent:
    """An agent and the server in front of it."""

    offering: Offering
    server: Server[None]
    calls: Calls
    threads: WorkerThreads
    changes: Changes

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Around the life of the server: changes are followed, and calls are ended at the end."""
        with self.changes.following(self.offering):
            try:
                yield
            finally:
                for context in tuple(self.calls.in_flight):
                    context.scope.cancel()
                self.threads.close(GRACE)


def create_server(offering: Offering, *, max_threads: int = 32, transport: str = "pipe") -> ServedAgent:
    """Not running yet: `stdio` and `http` bring the transport, whose OpenTelemetry name is `transport`."""
    threads = WorkerThreads(max_threads)
    calls = Calls(threads)
    changes = Changes()
    handlers = Handlers(offering, calls)
    info = offering.get_mcp_server_info()
    server = AgentServer(
        str(info.get("name") or "GAIA agent"),
        version=str(info.get("version") or ""),
        title=info.get("title"),
        description=info.get("description"),
        website_url=info.get("websiteUrl"),
        instructions=offering.get_mcp_instructions() or None,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_subscriptions_listen=changes.listen,
    )
    if offering.offers_mcp("prompts"):
        server.add_request_handler("prompts/list", types.PaginatedRequestParams, handlers.list_prompts)
        server.add_request_handler("prompts/get", types.GetPromptRequestParams, handlers.get_prompt)
    if offering.offers_mcp("resources"):
        server.add_request_handler("resources/list", types.PaginatedRequestParams, handlers.list_resources)
        server.add_request_handler(
            "resources/templates/list", types.PaginatedRequestParams, handlers.list_resource_templates
        )
        server.add_request_handler("resources/read", types.ReadResourceRequestParams, handlers.read_resource)
        server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, changes.subscribe)
        server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, changes.unsubscribe)
    if offering.offers_mcp("completions"):
        server.add_request_handler("completion/complete", types.CompleteRequestParams, handlers.complete)
    # Not by the constructor's argument, which warns that the feature is deprecated: it is for clients that have it.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, handlers.set_log_level)
    server.add_notification_handler("notifications/initialized", types.NotificationParams, changes.opened)
    # In place of the SDK's own spans, which are not the convention's.
    server.middleware[:] = [
        ServerSpans(transport),
        RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name),
    ]
    return ServedAgent(offering, server, calls, threads, changes)
