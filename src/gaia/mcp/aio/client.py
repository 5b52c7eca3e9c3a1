"""`AsyncMCPClient`: the client of one MCP server, for asyncio; `AsyncPinnedClient` for one process of it."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar, Unpack

from gaia.mcp.aio.calls import call_tool, request, run
from gaia.mcp.aio.event_stream import EventStream
from gaia.mcp.aio.threads import in_thread, stopping, until_done
from gaia.mcp.authorization.config import OnAuthorization
from gaia.mcp.client.client_options import ClientKeywords, ClientOptions
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.pinned_client import PinnedClient
from gaia.mcp.errors import ServerUnavailable
from gaia.mcp.protocol.exchange import Exchange
from gaia.mcp.requests.exchange import CallKeywords, CallOptions
from gaia.mcp.supervision.client_features import ClientFeatures, OnElicitation, RootsSource
from gaia.mcp.supervision.events import Listener, ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.tools.pins import ServerPins
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.mcp.tools.tool_result import ToolResult
from gaia.mcp.transports.base import MCPTransport, PlacementStatus
from gaia.runtime.clock import Clock
from gaia.runtime.signatures import spells_out

T = TypeVar("T")

_STOPPED = (ServerState.CREATED, ServerState.FAILED, ServerState.NEEDS_AUTHORIZATION, ServerState.CLOSED)
"""The states in which `connect` starts the server."""


class AsyncMCPClient:
    """`MCPClient` for asyncio: the same methods with the same parameters, results and errors, as coroutines.

    ``async with`` connects on entering and disconnects on leaving; if it is cancelled in the middle of connecting, the
    server is stopped. Tasks of several event loops may use one client at once, and so may threads, through `sync`.

    Cancelling a task cancels its call and notifies the server. The other deadlines are those of `MCPClient`.
    """

    sync: MCPClient
    """The synchronous client that does the work."""

    @spells_out(ClientKeywords, ClientFeatures(), ClientOptions())
    def __init__(
        self,
        name: str,
        transport: MCPTransport,
        debug: bool = False,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """See `MCPClient`. Async functions that answer the server run on the loop of the task whose call it is."""
        self.sync = MCPClient(name, transport, debug, clock=clock, rng=rng, **keywords)

    @classmethod
    def over(cls, client: MCPClient | AsyncMCPClient) -> AsyncMCPClient:
        """The asynchronous form of an existing client; its owner disconnects it."""
        if isinstance(client, AsyncMCPClient):
            return client
        self = cls.__new__(cls)
        self.sync = client
        return self

    @classmethod
    def from_config(
        cls,
        name: str,
        config: Mapping[str, Any],
        timeout: float = 30,
        debug: bool = False,
        *,
        pins: ServerPins | None = None,
        on_authorization: OnAuthorization | None = None,
        on_elicitation: OnElicitation | None = None,
    ) -> AsyncMCPClient:
        """A client for one entry of ``mcpServers``; see `MCPClient.from_config`. Not connected yet."""
        client = MCPClient.from_config(
            name, config, timeout, debug, pins=pins, on_authorization=on_authorization, on_elicitation=on_elicitation
        )
        return cls.over(client)

    @classmethod
    def from_command(cls, name: str, command: str, timeout: float = 30, debug: bool = False) -> AsyncMCPClient:
        """A client for a command line; see `MCPClient.from_command`."""
        return cls.over(MCPClient.from_command(name, command, timeout, debug))

    async def connect(self, *, keep_trying: bool = False) -> bool:
        """See `MCPClient.connect`. If the task is cancelled meanwhile, the server is stopped first."""
        starts = self.sync.state in _STOPPED
        try:
            return await until_done(
                functools.partial(self.sync.connect, keep_trying=keep_trying),
                self.sync._engine.request_disconnect if starts else lambda: None,
            )
        except asyncio.CancelledError:
            if starts:
                await self.disconnect()
            raise

    async def restart(self, *, keep_trying: bool = False) -> bool:
        """See `MCPClient.restart`. Goes on if the task is cancelled."""
        return await in_thread(self.sync.restart, keep_trying=keep_trying)

    async def scale(self, replicas: int) -> None:
        """See `MCPClient.scale`."""
        await in_thread(self.sync.scale, replicas)

    async def disconnect(self, *, drain: float = 0.0) -> None:
        """See `MCPClient.disconnect`. Always completed; a cancellation of the task takes effect after it."""
        await stopping(lambda: self.sync.disconnect(drain=drain))

    async def __aenter__(self) -> AsyncMCPClient:
        if not await self.connect():
            reason = self.last_error or "it was disconnected meanwhile"
            raise ServerUnavailable(f"Failed to connect to server {self.name!r}: {reason}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    def is_connected(self) -> bool:
        """True while the server is ready for calls."""
        return self.sync.is_connected()

    @property
    def keeps_trying(self) -> bool:
        """Whether the server is started again after a failure, if its restart policy permits."""
        return self.sync.keeps_trying

    def set_roots(self, roots: RootsSource) -> None:
        """Offer other folders from now on; see `MCPClient.set_roots`."""
        self.sync.set_roots(roots)

    def announce_roots(self) -> None:
        """Notify the server that the roots changed, if its protocol has a notification for that."""
        self.sync.announce_roots()

    def events(self) -> EventStream:
        """The events of this server from now on, for ``async for``, until it is disconnected. Needs a running loop."""
        return EventStream(self.sync._engine.listeners)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for every `Event`, on a callback thread; see `MCPClient.subscribe`. `events` needs none."""
        return self.sync.subscribe(listener)

    @property
    def name(self) -> str:
        """The name of the server in this program."""
        return self.sync.name

    @property
    def transport(self) -> MCPTransport:
        """The transport that the constructor was given, or `from_config` has made."""
        return self.sync.transport

    @property
    def debug(self) -> bool:
        """Whether gaia's log is shown on stderr."""
        return self.sync.debug

    @property
    def state(self) -> ServerState:
        """The present state of the server."""
        return self.sync.state

    @property
    def status(self) -> ServerStatus:
        """The state with the present figures: restarts, calls, latencies, the last error."""
        return self.sync.status

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status.summary}>"

    @property
    def last_error(self) -> str | None:
        """The last failure of the server itself; None if there was none."""
        return self.sync.last_error

    @property
    def server_info(self) -> dict[str, Any]:
        """Name and version that the server gave in its handshake; empty before the first one."""
        return self.sync.server_info

    @property
    def protocol_version(self) -> str | None:
        """The protocol revision of the last handshake, such as ``2025-11-25``; None before the first one."""
        return self.sync.protocol_version

    @property
    def capabilities(self) -> dict[str, Any]:
        """See `MCPClient.capabilities`."""
        return self.sync.capabilities

    @property
    def instructions(self) -> str | None:
        """The server's hints for a model; see `MCPClient.instructions`. With pinned tools, this reads a file."""
        return self.sync.instructions

    @property
    def tool_filter(self) -> ToolFilter:
        """Which tools may be listed and called: the server's filter together with the manager's."""
        return self.sync.tool_filter

    @property
    def denied_tools(self) -> frozenset[str]:
        """Names of tools that the server has and a filter hides."""
        return self.sync.denied_tools

    @property
    def blocked_tools(self) -> Mapping[str, MCPTool]:
        """Tools of the server that are withheld until their definitions are approved, by name."""
        return self.sync.blocked_tools

    async def list_tools(self, refresh: bool = False) -> list[MCPTool]:
        """The tools on offer, filtered; from the cache unless `refresh`. Empty if the server cannot list them."""
        if refresh or not self.sync._engine.tool_calls.catalog.listed:
            return await in_thread(self.sync.list_tools, refresh)
        return self.sync.list_tools()

    @spells_out(CallKeywords, CallOptions())
    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """See `MCPClient.call_tool`. `on_progress` may be a coroutine function.

        It runs in this task, one report after the other, and all have ended when this returns.
        """
        return await call_tool(self.sync._engine.tool_calls, tool_name, arguments, CallOptions(**options))

    def pinned(self) -> AsyncPinnedClient:
        """A handle that stays with one process of the server; see `MCPClient.pinned`."""
        return AsyncPinnedClient(self.sync.pinned())

    def create_tool_wrapper(self, tool: MCPTool) -> Callable[..., Coroutine[Any, Any, ToolResult]]:
        """A coroutine function that calls `tool` with its keyword arguments."""

        async def wrapper(**kwargs: Any) -> ToolResult:
            return await self.call_tool(tool.name, kwargs)

        wrapper.__name__ = tool.name
        wrapper.__doc__ = tool.description
        return wrapper

    # Resources, prompts and everything else. These methods raise the exceptions of `gaia.mcp.errors`.

    async def request(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send any request and return its result object. Raises `MCPError`; denied tools stay denied."""
        pinned_prompt = method == "prompts/get" and self.sync._engine.features.prompts_are_pinned
        if pinned_prompt or self.sync._engine.session.waits_in_caller:
            return await in_thread(self.sync.request, method, params, timeout=timeout)
        if method == "tools/call":
            tool_calls, params = self.sync._engine.tool_calls, params or {}
            called = tool_calls.new_request(params.get("name"), params.get("arguments"), CallOptions(timeout))
            return await request(tool_calls.requests, called)
        return await self._run(self.sync._engine.features.request(method, params, timeout))

    async def _run(self, exchange: Exchange[T]) -> T:
        return await run(self.sync._engine.requests, exchange)

    async def list_resources(self) -> list[dict[str, Any]]:
        """``{"uri": …, "name": …}`` each, with the server's title, description, mimeType and size, if it has them."""
        return await self._run(self.sync._engine.features.list_resources())

    async def list_resource_templates(self) -> list[dict[str, Any]]:
        """``{"uriTemplate": …, "name": …}`` each; see `MCPClient.list_resource_templates`."""
        return await self._run(self.sync._engine.features.list_resource_templates())

    async def read_resource(self, uri: str) -> dict[str, Any]:
        """``{"contents": [{"uri": …, "mimeType": …, "text": … or "blob": …}]}``; a blob is in Base64."""
        return await self._run(self.sync._engine.features.read_resource(uri))

    async def subscribe_resource(self, uri: str) -> None:
        """Receive a `ResourceUpdated` event for each change of a resource; see `MCPClient.subscribe_resource`."""
        await self._run(self.sync._engine.features.subscribe_resource(uri))

    async def unsubscribe_resource(self, uri: str) -> None:
        """End `subscribe_resource`; does nothing if the resource was not subscribed."""
        await self._run(self.sync._engine.features.unsubscribe_resource(uri))

    async def list_prompts(self) -> list[dict[str, Any]]:
        """``{"name": …, "title": …, "description": …, "arguments": [{"name": …, "required": …}]}`` each."""
        if self.sync._engine.features.prompts_are_pinned:
            return await in_thread(self.sync.list_prompts)
        return await self._run(self.sync._engine.features.list_prompts())

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
        """``{"description": …, "messages": [{"role": …, "content": …}]}``."""
        return await self.request("prompts/get", {"name": name, "arguments": arguments or {}})

    async def complete(
        self, ref: dict[str, Any], argument: dict[str, str], *, context: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """``{"completion": {"values": […], "total": …, "hasMore": …}}``; see `MCPClient.complete`."""
        return await self._run(self.sync._engine.features.complete(ref, argument, context))

    async def set_logging_level(self, level: str) -> None:
        """See `MCPClient.set_logging_level`."""
        await self._run(self.sync._engine.features.set_logging_level(level))


class AsyncPinnedClient:
    """`PinnedClient` for asyncio: the same methods, results and errors, as coroutines. ``async with`` closes it."""

    sync: PinnedClient
    """The synchronous handle that does the work."""

    def __init__(self, handle: PinnedClient) -> None:
        """Only for `AsyncMCPClient.pinned`."""
        self.sync = handle

    @property
    def placement(self) -> PlacementStatus | None:
        """Where the process runs, if the server is placed."""
        return self.sync.placement

    @property
    def is_lost(self) -> bool:
        """Whether the process has ended; a call would raise `SessionLost`."""
        return self.sync.is_lost

    def close(self) -> None:
        """Accept no more calls; those in flight go on. The process is not affected."""
        self.sync.close()

    async def __aenter__(self) -> AsyncPinnedClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @spells_out(CallKeywords, CallOptions())
    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """Call a tool of the process; see `AsyncMCPClient.call_tool` and `PinnedClient.call_tool`."""
        return await call_tool(self.sync._tool_calls, tool_name, arguments, CallOptions(**options))

    async def read_resource(self, uri: str) -> dict[str, Any]:
        """See `MCPClient.read_resource`. Raises SessionLost."""
        return await run(self.sync._tool_calls.requests, self.sync._features.read_resource(uri))

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
        """See `MCPClient.get_prompt`. Raises SessionLost."""
        if self.sync._features.prompts_are_pinned:
            return await in_thread(self.sync.get_prompt, name, arguments)
        return await run(self.sync._tool_calls.requests, self.sync._features.get_prompt(name, arguments))
