"""The public manager: starts several servers, calls their tools by namespaced names, and stops the servers."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gaia.engine_thread import EngineThread
from gaia.exception_text import exception_text
from gaia.locks import reentrant_lock
from gaia.log import enable_debug, get_logger
from gaia.mcp.client.authorization.config import OnAuthorization
from gaia.mcp.client.client_options import ClientOptions, SharedServices, threads_for
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.pinning.lock_file import pins_of
from gaia.mcp.client.protocol.elicitation import ElicitationMode
from gaia.mcp.client.rpc.clock import require_seconds
from gaia.mcp.client.server_config import OutputMode, PinMode
from gaia.mcp.client.server_registry import ServerRegistry
from gaia.mcp.client.supervision.client_features import (
    ClientFeatures,
    OnElicitation,
    OnSampling,
    Roots,
    RootsSource,
)
from gaia.mcp.client.supervision.client_request import CallOptions, OnProgress
from gaia.mcp.client.supervision.events import Event, Listener, Listeners, ToolsChanged
from gaia.mcp.client.supervision.policy import RestartPolicy
from gaia.mcp.client.supervision.status import ServerStatus
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.client.tool_calls import failure
from gaia.mcp.client.tool_filter import ALLOW_ALL, ToolFilter
from gaia.mcp.client.tool_result import ToolResult
from gaia.mcp.errors import NotConnected, ServerUnavailable
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics

__all__ = ["MCPClientManager"]

logger = get_logger(__name__)


class MCPClientManager:
    """Starts servers, lists the tools of all of them, and routes calls.

    All methods may be called from any thread. As a context manager it connects the servers of a configuration in memory
    on entering, and disconnects from everything on leaving.
    """

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
        on_elicitation: OnElicitation | None = None,
        elicitation_modes: tuple[ElicitationMode, ...] = ("form",),
        on_sampling: OnSampling | None = None,
        sampling_tools: bool = False,
        roots: RootsSource | None = None,
        on_authorization: OnAuthorization | None = None,
    ) -> None:
        """Nothing is started yet.

        `config` says which servers there are. A mapping, such as ``{"time": {"command": "uvx", …}}``, is a
        configuration in memory (`MCPConfig.in_memory`), for which no file is read or written. Without `config`, they
        are those of the user's and the project's configuration files (`MCPConfig`).

        `restart_policy`, `pin_tools` and `output_validation` are for servers whose entries say nothing of it.

        `pin_tools` says what to do about tools whose definitions are not the approved ones, which are kept in
        `tool_lock_file`, by default ``mcp_tools.lock.json`` beside the user's configuration file. `trust_local` is for
        the `MCPConfig` that is made if there is no `config`.

        `on_authorization` takes a person to where they log in at a server that wants that; connecting waits for it, at
        most five minutes. Without it, servers without a login fail to connect, and say what to run.

        The rest is what servers may ask of us; see `MCPClient`. Each request says which server makes it.
        """
        if debug:
            enable_debug()
        if config is None:
            config = MCPConfig(trust_local=trust_local)
        elif isinstance(config, Mapping):
            config = MCPConfig.in_memory(config)
        self.config = config
        self.debug = debug
        lock_file = None if tool_lock_file is None else Path(tool_lock_file).absolute()
        features = ClientFeatures(
            on_elicitation=on_elicitation,
            elicitation_modes=elicitation_modes,
            on_sampling=on_sampling,
            sampling_tools=sampling_tools,
            roots=None if roots is None else Roots(roots),
        )
        self._defaults = ClientOptions(
            restart_policy=restart_policy, pin_tools=pin_tools, output_validation=output_validation, features=features
        )
        """For what the entries of servers leave open."""
        self._services = SharedServices(
            **threads_for("manager"),
            tool_filter=tool_filter,
            pins=lambda name: pins_of(self.config, name, lock_file),
            on_authorization=on_authorization,
            on_event=self._publish,
        )
        self._listeners = Listeners()
        self._registry = ServerRegistry(self._joined)
        self._lock = reentrant_lock()
        """Owns `_starters`."""
        self._starters: list[threading.Thread] = []
        """Threads of `load_from_config`; some of them may have ended. Replaced as a whole."""

    @property
    def _clients(self) -> dict[str, MCPClient]:
        """The connected clients, under the name that the specification gives them."""
        return self._registry.connected

    def __enter__(self) -> MCPClientManager:
        if self.config.config_file is None:
            try:
                self.load_from_config()
            except BaseException:
                # An interrupt: what is started would not be stopped, because the context is not entered.
                self.disconnect_all()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect_all()

    # Servers.

    def add_server(self, name: str, config: Mapping[str, Any], *, save: bool | None = None) -> MCPClient:
        """Connect to a server, and note its configuration if that succeeds.

        With `save` true the configuration is saved to the file, with false it is kept in memory only; by default it is
        saved if `config` of this manager has a file. It is saved as it is given: ``${VAR}`` stays as it is.

        Raises ValueError if there is already a server of this name, the configuration is not usable, or there is no
        file to save it to, and RuntimeError with the reason if the connection fails.
        """
        if save and self.config.config_file is None:
            raise ValueError(f"server {name!r} cannot be saved: the configuration of this manager has no file")
        if not isinstance(config, Mapping):
            raise ValueError(  # noqa: TRY004 - the specification says ValueError
                f"server {name!r}: expected a config dict such as "
                f'{{"command": "uvx", "args": ["mcp-server-time"]}}, not {type(config).__name__}'
            )
        client = self._make_client(name, config)
        if not self._registry.connect(name, client):
            reason = client.last_error or "it was disconnected meanwhile"
            raise RuntimeError(f"Failed to connect to server {name!r}: {reason}")
        try:
            # A configuration class of the application may have the specification's two parameters alone.
            self.config.add_server(name, config, **({"save": False} if save is False else {}))
        except BaseException:
            self._registry.drop(name, client)
            client.disconnect()
            raise
        return client

    def remove_server(self, name: str) -> None:
        """Disconnect from a server and delete its configuration. An unknown name is logged, nothing more."""
        client = self._registry.client_of(name)
        exists = self.config.server_exists(name)
        if client is not None:
            client.request_disconnect()
        try:
            # As long as the name is taken: what is there later belongs to the next server of this name.
            if exists:
                self.config.remove_server(name)
        finally:
            self._registry.forget_failure(name)
            if client is not None:
                self._registry.drop(name, client)
                client.disconnect()
        if client is None and not exists:
            logger.warning("unknown_server", server=name)

    def stop_server(self, name: str) -> None:
        """Stop a server, or the attempts to start it; its configuration stays, and `restart_server` starts it again.

        Calls under way end as cancelled. Raises ValueError if no server of this name was started.
        """
        client = self._registry.client_of(name)
        if client is None:
            raise ValueError(f"server {name!r} is not running, so there is nothing to stop")
        client.disconnect()

    def restart_server(self, name: str) -> bool:
        """Stop a server if it runs, and start it; also one that failed, was stopped, or was never started.

        Calls under way end as cancelled. Returns True when the server is ready, and False if it failed, after its own
        `timeout` at the latest; `status` says why. Raises ValueError for a name that is not configured, for a server
        that is disabled or being started, and for a configuration that cannot be used.
        """
        if name in self._registry and name not in self._clients:
            raise ValueError(f"server {name!r} is being started already")
        client = self._registry.client_of(name)
        if client is not None:
            client.disconnect()
            connected = client.connect()
            if self._registry.client_of(name) is not client:
                # It was removed meanwhile, perhaps before it was started here.
                client.disconnect()
                return False
            return connected
        entry = self.config.get_servers().get(name)
        if entry is None:
            raise ValueError(f"no server {name!r} is configured; the names are {', '.join(self.config.get_servers())}")
        if entry.get("disabled"):
            raise ValueError(f'server {name!r} is disabled: remove "disabled" from its entry first')
        return self._registry.connect(name, self._make_client(name, entry))

    def get_client(self, name: str) -> MCPClient | None:
        return self._clients.get(name)

    def list_servers(self) -> list[str]:
        """The names of the servers that were connected and not removed, restarting ones included."""
        return list(self._clients)

    def load_from_config(self, timeout: float | None = None) -> None:
        """Connect to all configured servers at once, except disabled and already connected ones.

        Returns when each has succeeded or failed, after `timeout` seconds at the latest; servers that are slower go on
        in the background and join when they are ready. Never raises for a single server: failures are logged, and
        `status` shows them. With a `timeout` of 0 nothing is waited for. Raises ValueError for one that is negative,
        more than a year, or not a number.
        """
        if timeout not in (None, 0):
            require_seconds("timeout", timeout)
        # `disconnect_all` finds all of them from now on, whether their threads have come to run or not.
        entries = self.config.get_servers()
        self._registry.expect(entries)
        clients = {
            name: self._make_configured(name, config)
            for name, config in entries.items()
            if not config.get("disabled") and name not in self._registry
        }
        threads = []
        unstarted = []
        for name, client in clients.items():
            if client is None:
                continue
            # A log handler that never returns must not hold up `disconnect_all`, which waits for this thread.
            thread = EngineThread(functools.partial(self._load, name, client), f"mcp-{name}-start")
            try:
                thread.start()
            except RuntimeError:
                unstarted.append((name, client))
            else:
                threads.append(thread)
        with self._lock:
            self._starters = [*(thread for thread in self._starters if thread.is_alive()), *threads]
        for name, client in unstarted:
            # The system starts no more threads: this one connects the server, whose supervisor will most likely fail.
            self._load(name, client)
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def disconnect_all(self) -> None:
        """Disconnect from all servers, all at once, those still starting included. Errors are logged."""
        clients = self._registry.take_all()
        try:
            for client in clients.values():
                client.request_disconnect()
            for name, client in clients.items():
                _disconnect(name, client)
        except BaseException:
            # A signal handler has raised it. No other code has these clients any more.
            for client in clients.values():
                client.request_disconnect()
            raise
        self._registry.wait_for_starts()
        for starter in self._starters:
            # They have nothing left to do. A finalizer may call this on one of them.
            if starter is not threading.current_thread():
                starter.join()
        self._services.close()

    def set_roots(self, roots: RootsSource) -> None:
        """Offer other folders to all servers from now on; see `MCPClient.set_roots`."""
        offered = self._defaults.features.roots
        if offered is None:
            raise RuntimeError("the manager was made without roots; give it some then, be it an empty list")
        offered.replace(roots)
        for client in list(self._clients.values()):
            client.announce_roots()

    # Tools.

    def list_tools(self) -> list[MCPTool]:
        """The tools of all servers, filtered. ``namespaced_name`` is what `call_tool` takes."""
        return [route.tool for route in self._registry.routes.values()]

    def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        reset_timeout_on_progress: bool | None = None,
        max_timeout: float | None = None,
    ) -> ToolResult:
        """Call a tool by its namespaced name (``mcp_<server>_<tool>``); see `MCPClient.call_tool` for the rest.

        A name that no server offers gives an error whose ``error_type`` is ``unknown_tool``, ``denied`` or
        ``not_approved``; that of a server that is being removed gives ``server_unavailable``.
        """
        route = self._registry.routes.get(name)
        if route is None:
            error = self._registry.no_route(name)
            metrics.instruments.refused.add(1, {names.ERROR_TYPE: error.error_type})
            return failure(error, name, None, arguments)
        options = CallOptions(timeout, on_progress, reset_timeout_on_progress, max_timeout)
        try:
            return route.client.tool_calls.call(route.tool.name, arguments, options)
        except NotConnected as error:
            # The server was removed after the route had been found.
            return failure(ServerUnavailable(error.message), route.tool.name, None, arguments)

    # Condition.

    def status(self) -> list[ServerStatus]:
        """The condition of every server: connected, starting, and failed to connect."""
        return self._registry.status()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every `Event` of every server, one at a time, on a callback thread.

        The events of each server come in order. If the listener is so slow that more than 10,000 events or 4 MiB of one
        server wait, the oldest of that server are dropped, and the listener gets an `EventsDropped`. Returns a function
        that ends the subscription.
        """
        return self._listeners.subscribe(listener, self._services.callbacks)

    # Making clients, and what they report.

    def _make_client(self, name: str, config: Mapping[str, Any]) -> MCPClient:
        """Make the client and reserve its name. Raises ValueError."""
        client = MCPClient.from_config(name, config, debug=self.debug)
        services = msgspec.structs.replace(
            self._services, on_tools=lambda tools: self._registry.tools_listed(name, client, tools)
        )
        client.join(services, self._defaults)
        self._registry.reserve(name, client)
        return client

    def _make_configured(self, name: str, config: Mapping[str, Any]) -> MCPClient | None:
        """Like `_make_client`; None, and a status that says why, if that raises."""
        try:
            return self._make_client(name, config)
        except ValueError as error:
            logger.warning("server_config_unusable", server=name, error=str(error))
            self._registry.refused(name, str(error))
            return None

    def _load(self, name: str, client: MCPClient) -> None:
        if not self._registry.connect(name, client) and client.last_error is not None:
            logger.error("server_load_failed", server=name, error=client.last_error)

    def _joined(self, name: str, tools: tuple[MCPTool, ...]) -> None:
        self._publish(ToolsChanged(name, added=tuple(sorted(tool.name for tool in tools))))

    def _publish(self, event: Event) -> None:
        if isinstance(event, ToolsChanged) and self._registry.is_starting(event.server):
            # A listener would ask for tools that cannot be called yet. It is told when the server has joined.
            return
        self._listeners.publish(event)


def _disconnect(name: str, client: MCPClient) -> None:
    try:
        client.disconnect()
    except Exception as error:  # noqa: BLE001 - one server's trouble must not keep the others from being stopped
        logger.error("disconnect_failed", server=name, error=exception_text(error))
