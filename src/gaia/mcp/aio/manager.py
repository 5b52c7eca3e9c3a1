"""`AsyncMCPClientManager`: several MCP servers, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack

from gaia.mcp.aio.calls import call_tool
from gaia.mcp.aio.client import AsyncMCPClient
from gaia.mcp.aio.event_stream import EventStream
from gaia.mcp.aio.threads import in_thread, stop_soon, stopping, until_done
from gaia.mcp.authorization.config import OnAuthorization
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.configured_servers import AppliedConfig
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.client.readiness import LOADING_SECONDS, Goal, require_wait
from gaia.mcp.client.tool_calls import failure
from gaia.mcp.config.server_config import OutputMode, PinMode
from gaia.mcp.errors import MCPError, NotConnected, ServerUnavailable
from gaia.mcp.requests.exchange import BeforeCall, CallKeywords, CallOptions
from gaia.mcp.supervision.client_features import ClientFeatures, FeatureKeywords, RootsSource
from gaia.mcp.supervision.events import Listener
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_filter import ALLOW_ALL, ToolFilter
from gaia.mcp.tools.tool_result import ToolResult
from gaia.runtime.cancellation import current_scope
from gaia.runtime.loop_work import WakeUp, running_loop_work
from gaia.runtime.signatures import spells_out

T = TypeVar("T")


class AsyncMCPClientManager:
    """`MCPClientManager` for asyncio: the same methods with the same parameters, results and errors, as coroutines.

    Methods that never wait are no coroutines: `get_client`, `list_servers`, `status`, `absence_of`, `set_roots`,
    `subscribe`. Tasks of several event loops may use one manager at once, and so may threads, through `sync`.

    ``async with`` connects the servers of a configuration in memory on entering, and disconnects from all servers on
    leaving; if it is cancelled in the middle of connecting, all servers are stopped.

    Cancelling a task cancels its call and notifies the server. The other deadlines are those of `MCPClientManager`.
    """

    sync: MCPClientManager
    """The synchronous manager that does the work."""

    @spells_out(FeatureKeywords, ClientFeatures())
    def __init__(
        self,
        config: MCPConfig | Mapping[str, Mapping[str, Any]] | None = None,
        debug: bool = False,
        *,
        tool_filter: ToolFilter = ALLOW_ALL,
        restart_policy: RestartPolicy | None = None,
        pin_tools: PinMode = "off",
        tool_lock_file: str | os.PathLike[str] | None = None,
        trust_local: bool = True,
        output_validation: OutputMode = "warn",
        on_authorization: OnAuthorization | None = None,
        start_timeout: float | None = LOADING_SECONDS,
        before_call: BeforeCall | None = None,
        **features: Unpack[FeatureKeywords],
    ) -> None:
        """See `MCPClientManager`. Async functions that answer servers run on the loop of the task whose call it is."""
        self.sync = MCPClientManager(
            config,
            debug,
            tool_filter=tool_filter,
            restart_policy=restart_policy,
            pin_tools=pin_tools,
            tool_lock_file=tool_lock_file,
            trust_local=trust_local,
            output_validation=output_validation,
            on_authorization=on_authorization,
            start_timeout=start_timeout,
            before_call=before_call,
            **features,
        )

    @classmethod
    def over(cls, manager: MCPClientManager | AsyncMCPClientManager) -> AsyncMCPClientManager:
        """The asynchronous form of an existing manager; its owner disconnects it."""
        if isinstance(manager, AsyncMCPClientManager):
            return manager
        self = cls.__new__(cls)
        self.sync = manager
        return self

    async def __aenter__(self) -> AsyncMCPClientManager:
        ends: list[asyncio.Task[None]] = []

        def end() -> None:
            ends.append(asyncio.create_task(self.disconnect_all()))

        try:
            await until_done(self.sync.__enter__, end)
        except BaseException:
            # Ends servers that were begun later. The tasks in `ends` end those that the first call has taken.
            await self.disconnect_all()
            await asyncio.gather(*ends)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect_all()

    @property
    def config(self) -> MCPConfig:
        """The configuration of the servers."""
        return self.sync.config

    @property
    def debug(self) -> bool:
        """Whether gaia's log is shown on stderr."""
        return self.sync.debug

    async def add_server(self, name: str, config: Mapping[str, Any], *, save: bool | None = None) -> AsyncMCPClient:
        """See `MCPClientManager.add_server`. If the task is cancelled meanwhile, the server is removed again."""

        def add() -> AsyncMCPClient:
            client = self.sync.add_server(name, config, save=save)
            if (scope := current_scope()) is not None:
                # The task may be cancelled after this function has returned, until it continues.
                scope.on_cancel(lambda: stop_soon(lambda: self.sync.remove_server(name)))
            return AsyncMCPClient.over(client)

        return await in_thread(add)

    async def remove_server(self, name: str) -> None:
        """See `MCPClientManager.remove_server`."""
        await stopping(lambda: self.sync.remove_server(name))

    async def stop_server(self, name: str) -> None:
        """See `MCPClientManager.stop_server`."""
        await stopping(lambda: self.sync.stop_server(name))

    async def restart(self, name: str) -> bool:
        """See `MCPClientManager.restart`. Goes on if the task is cancelled."""
        return await in_thread(self.sync.restart, name)

    async def restart_server(self, name: str) -> bool:
        """The same as `restart`."""
        return await self.restart(name)

    def get_client(self, name: str) -> AsyncMCPClient | None:
        """The client of a connected server, restarting ones included; None if there is no such server."""
        client = self.sync.get_client(name)
        return None if client is None else AsyncMCPClient.over(client)

    def list_servers(self) -> list[str]:
        """The names of the servers that were connected and not removed, restarting ones included."""
        return self.sync.list_servers()

    async def load_from_config(self, timeout: float | None = None, *, keep_trying: bool = True) -> None:
        """See `MCPClientManager.load_from_config`. Goes on in the background if the task is cancelled."""
        await in_thread(self.sync.load_from_config, timeout, keep_trying=keep_trying)

    async def apply(
        self, config: MCPConfig | Mapping[str, Mapping[str, Any]], *, timeout: float | None = None
    ) -> AppliedConfig:
        """See `MCPClientManager.apply`. Goes on in the background if the task is cancelled."""
        return await in_thread(self.sync.apply, config, timeout=timeout)

    async def disconnect_all(self) -> None:
        """See `MCPClientManager.disconnect_all`. Always completed; a cancellation of the task takes effect after it."""
        await stopping(self.sync.disconnect_all)

    async def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until all servers that were loaded or added are ready; see `MCPClientManager.wait_ready`."""
        require_wait(timeout)
        return await self._reach(self.sync._engine.all_ready(), timeout)

    async def require(self, *names: str, timeout: float | None = 30.0) -> None:
        """Wait until the servers `names` are ready, by default all; see `MCPClientManager.require`."""
        require_wait(timeout)
        await self._reach(self.sync._engine.presence_of(names), timeout)

    async def _reach(self, goal: Goal[T], timeout: float | None) -> T:
        changed = WakeUp(running_loop_work())
        with self.sync._engine.readiness.watched(changed.send), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not goal.is_over():
                    await changed.wait()
        return goal.outcome()

    def absence_of(self, tool_name: str) -> ServerUnavailable | None:
        """Why the server of a tool (by its namespaced name) is not ready; None if it is ready, or unknown."""
        return self.sync.absence_of(tool_name)

    def set_roots(self, roots: RootsSource) -> None:
        """Offer other folders to all servers from now on; see `MCPClient.set_roots`."""
        self.sync.set_roots(roots)

    async def list_tools(self) -> list[MCPTool]:
        """The tools of all servers, filtered; `call_tool` takes their ``namespaced_name``. Sends no request."""
        return self.sync.list_tools()

    @spells_out(CallKeywords, CallOptions())
    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """See `MCPClientManager.call_tool`. `on_progress` may be a coroutine function.

        It runs in this task, one report after the other, and all have ended when this returns.
        """
        wanted = CallOptions(**options)
        try:
            route = self.sync._engine.registry.routes.get(name)
            if route is None:
                # Finding a server that is about to start may wait.
                route = await in_thread(self.sync._engine.route_of, name, wanted.timeout)
        except MCPError as error:
            return failure(error, name, None, arguments)
        try:
            return await call_tool(route.client._engine.tool_calls, route.tool.name, arguments, wanted)
        except NotConnected as error:
            # The server was removed after the route had been found.
            return failure(ServerUnavailable(error.message), route.tool.name, None, arguments)

    def __repr__(self) -> str:
        return repr(self.sync).replace(type(self.sync).__name__, type(self).__name__, 1)

    def status(self) -> list[ServerStatus]:
        """The status of every server, in the order of the configuration; servers that are not in it come last."""
        return self.sync.status()

    def events(self) -> EventStream:
        """The events of all servers from now on, for ``async for``, until `disconnect_all`. Needs a running loop."""
        return EventStream(self.sync._engine.listeners)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """See `MCPClientManager.subscribe`: `listener` runs on a callback thread. `events` needs no thread."""
        return self.sync.subscribe(listener)
