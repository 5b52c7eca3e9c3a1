"""`MCPClientMixin`: gives an agent the tools of MCP servers, and keeps its registry up to date.

How it works with any host class:

- One object holds its whole state, and is made on first need. So the methods also work in a host whose ``__init__``
  never calls ``super().__init__()``; such an agent connects no server by itself.
- ``__init__`` only notes its settings; those of the last call count. The servers are connected when the outermost
  ``__init__`` of the object returns, whatever the order of the bases. By then the host can rebuild its prompt and
  print, and servers that a constructor connects with `connect_mcp_server` come first.
- Its manager's configuration is the ``config_file``, or in memory. A configuration in memory is replaced by the stacked
  files when the construction ends, if they are to be loaded, or by a call that needs the files.
- It uses ``debug``, ``console``, ``rebuild_system_prompt()`` and ``_tools_registry`` of the host, where they exist. A
  host without a registry gets a `gaia.agents.base.registry.ToolRegistry`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gaia.agents.base.registry import ToolRegistry
from gaia.agents.base.tools import _TOOL_REGISTRY
from gaia.mcp.agent_tools import (
    AgentServers,
    Registry,
    check_entry,
    checked,
    connected_line,
    definitions_of,
    load_summary,
    put_over_files,
    server_order,
)
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.client.readiness import LOADING_SECONDS, require_wait
from gaia.mcp.errors import ConfigError, ServerUnavailable
from gaia.mcp.requests.exchange import BeforeCall
from gaia.mcp.supervision.client_features import OnElicitation, OnSampling, RootsSource
from gaia.mcp.supervision.events import Event, EventsDropped, ServerState, StateChanged, ToolsChanged
from gaia.mcp.tools.tool_filter import ALLOW_ALL, ToolFilter
from gaia.runtime.construction import ConstructionHook, check_no_arguments_left, takes_keyword_after
from gaia.runtime.log import get_logger

if TYPE_CHECKING:
    from gaia.mcp.client.mcp_client import MCPClient
    from gaia.mcp.supervision.policy import RestartPolicy

logger = get_logger(__name__)


class MCPClientMixin(ConstructionHook):
    """Adds MCP servers to an agent: their tools appear in its registry as ``mcp_<server>_<tool>``.

    Works before or after the agent's class in the bases::

        class MyAgent(Agent, MCPClientMixin):
            def __init__(self, **kwargs):
                super().__init__(mcp_servers={"time": {"command": "uvx", "args": ["mcp-server-time"]}}, **kwargs)

    The registry follows the servers: tools are added and removed with ``tools/list_changed``, removed when a server is
    disconnected, and kept while it is restarted. Thread-safe. Servers run until `disconnect_mcp_server`, `close_mcp` or
    the end of the process.
    """

    def __init__(
        self,
        *args: Any,
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
        auto_load_config: bool | None = None,
        config_file: str | os.PathLike[str] | None = None,
        tool_filter: ToolFilter | None = None,
        restart_policy: RestartPolicy | None = None,
        on_elicitation: OnElicitation | None = None,
        on_sampling: OnSampling | None = None,
        roots: RootsSource | None = None,
        before_call: BeforeCall | None = None,
        trust_local: bool = True,
        start_timeout: float | None = LOADING_SECONDS,
        debug: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Store the settings, and pass all other arguments on.

        The agent's servers are connected, all at once, when the object is constructed. By default they come from the
        stacked configuration files, ``~/.gaia/mcp_servers.json`` and the project's ``mcp_servers.json`` over it; see
        `MCPConfig`. A server that cannot be connected is reported, and the agent starts without its tools.

        - `config_file`: only this file counts, whatever `auto_load_config` says. If it does not exist, it has no
          servers, and `connect_mcp_server` makes it.
        - `mcp_servers`: only these count, by name, each with an entry as in a file. No file is read or written, unless
          there is a `config_file` too or `auto_load_config` is true; then an entry here overrides a file's.
        - `auto_load_config`: false skips the stacked files.

        `trust_local` is as in `MCPConfig`. `debug` defaults to the host's. `on_elicitation`, `on_sampling` and `roots`
        answer requests of servers; see `MCPClient`. `before_call` gives each call of a tool its data; see
        `MCPClientManager`.

        The constructor, and every loading of files, waits at most `start_timeout` seconds for slow servers (None: until
        each is ready or has failed). Their tools are registered when they are ready.

        Raises ValueError for an entry of `mcp_servers` that cannot be used, such as one without a ``command`` or a
        ``url``. A broken file raises ConfigError if `config_file` names it; otherwise it is reported, and the agent
        starts without it.
        """
        state = self._mcp_state
        servers = checked(mcp_servers)
        options: dict[str, Any] = {"tool_filter": tool_filter, "restart_policy": restart_policy, "roots": roots}
        options |= {"on_elicitation": on_elicitation, "on_sampling": on_sampling, "before_call": before_call}
        options = {name: value for name, value in options.items() if value is not None}
        if start_timeout != LOADING_SECONDS:
            require_wait(start_timeout, "start_timeout")
            options["start_timeout"] = start_timeout
        if state.manager is not None and (options or servers or config_file is not None):
            raise RuntimeError("MCPClientMixin.__init__ comes too late: the agent uses MCP servers already")
        state.servers = servers
        state.auto_load = mcp_servers is None if auto_load_config is None else auto_load_config
        state.config_file, state.trust_local = config_file, trust_local
        state.options = {"tool_filter": ALLOW_ALL, "restart_policy": None, **options}
        state.debug = debug
        state.pending = True

        if debug is not None and takes_keyword_after(type(self), MCPClientMixin, "debug"):
            kwargs["debug"] = debug
        next_init = super().__init__
        check_no_arguments_left(type(self), next_init, args, kwargs)
        next_init(*args, **kwargs)

    @property
    def _mcp_state(self) -> AgentServers:
        state: AgentServers | None = self.__dict__.get("_mcp_state")
        # setdefault on a dict is atomic, so two threads get the same object.
        return self.__dict__.setdefault("_mcp_state", AgentServers()) if state is None else state

    @property
    def _mcp_manager(self) -> Any:
        """The `MCPClientManager`, made on first need. The application may assign another one."""
        state = self._mcp_state
        with state.lock:
            if state.manager is None:
                debug = bool(getattr(self, "debug", False)) if state.debug is None else state.debug
                config = (
                    MCPConfig.in_memory(state.servers)
                    if state.config_file is None
                    else put_over_files(MCPConfig(state.config_file), state.servers, type(self).__name__)
                )
                self._mcp_manager = MCPClientManager(config=config, debug=debug, **state.options)
                state.memory_only = state.config_file is None
            return state.manager

    @_mcp_manager.setter
    def _mcp_manager(self, manager: Any) -> None:
        state = self._mcp_state
        with state.lock:
            if state.unsubscribe is not None:
                state.unsubscribe()
            state.manager, state.memory_only = manager, False
            state.unsubscribe = None if manager is None else manager.subscribe(self._on_mcp_event)

    def _construction_finished(self) -> None:
        state = self._mcp_state
        if not state.pending:
            return
        state.pending = False
        if state.config_file is not None:
            self.load_mcp_servers_from_config()
            return
        if not (state.auto_load or state.servers):
            # The specification requires a manager from here on.
            _ = self._mcp_manager
            return
        if state.auto_load:
            try:
                self._read_mcp_files()
            except Exception as error:  # noqa: BLE001 - files that the agent did not name do not keep it from working
                self._report_mcp_problem(f"MCP servers were not loaded: {error}", error)
        self._connect_configured_mcp_servers()

    def _construction_failed(self) -> None:
        self._stop_mcp_servers()

    def connect_mcp_server(self, name: str, config: Mapping[str, Any], *, save: bool | None = None) -> bool:
        """Start the server `name` and register its tools.

        An agent with a ``config_file`` saves the entry there as given, including a password that is not written as
        ``${VAR}``; a failed save is only logged. Any other agent keeps the entry in memory. `save` overrides this: true
        saves the entry to the ``config_file`` or the usual file (see `MCPConfig`), or the call fails; false keeps it in
        memory.

        A server that already runs with the same configuration is left as it is. A failed server is started again, and
        the call waits for a server that is being restarted, as long as a request's timeout. Returns True if the server
        is ready, and False on any failure; the reason is logged, and printed on the agent's console. Raises ValueError
        if `config` is not a mapping with a ``command`` or a ``url``.
        """
        check_entry(name, config)
        try:
            if save:
                self._read_mcp_files()
            client = self._ready_mcp_client(name, config, save)
            self._follow_mcp_tools(client)
            line = connected_line(client)
        except Exception as error:  # noqa: BLE001 - whatever a server makes go wrong, the agent goes on without it
            self._report_mcp_problem(f"MCP server {name} failed to connect: {error}", error)
            return False
        self._rebuild_mcp_prompt()
        self._print_mcp_info(line)
        return True

    def _ready_mcp_client(self, name: str, config: Mapping[str, Any], save: bool | None) -> MCPClient:
        manager = self._mcp_manager
        client: MCPClient | None = manager.get_client(name)
        is_new = manager.config.get_server(name) != config
        if client is None or is_new:
            # Only a configuration with files takes this argument.
            where = {} if self._mcp_state.memory_only else {"save": save is True}
            added: MCPClient = manager.add_server(name, config, **where)
            if save is None and is_new and self._mcp_state.config_file is not None:
                try:
                    manager.config.add_server(name, config)
                except ConfigError as error:
                    # The server is connected, even though the file cannot be written.
                    logger.warning("config_not_saved", server=name, error=error.message)
            return added
        if client.connect() and not client.is_connected():
            # A request waits for a restarting server, and starts a server that has exited by itself.
            client.list_tools(refresh=True)
        if not client.is_connected():
            raise ServerUnavailable(client.last_error or f"it is {client.state.value}")
        if save:
            manager.config.add_server(name, config)
        return client

    def _read_mcp_files(self) -> None:
        """Put the configuration in memory over the usual files. Raises ConfigError for a broken file."""
        state = self._mcp_state
        with state.lock:
            manager = self._mcp_manager
            # The application may have assigned another configuration to the manager.
            if state.memory_only and manager.config.config_file is None:
                manager.config = put_over_files(
                    MCPConfig(trust_local=state.trust_local), manager.config.get_servers(), type(self).__name__
                )
                state.memory_only = False

    def load_mcp_servers_from_config(self) -> int:
        """Connect the servers of the configuration files and of the agent's ``mcp_servers``; register their tools.

        The files are the ones that `MCPConfig` names, or only the agent's ``config_file``. Connected servers stay.

        Returns how many servers are connected now, and prints each server's result on the agent's console. A server
        that could not be connected is tried again in the background, and its tools are registered when it is ready.
        Raises ConfigError if a file is broken.
        """
        self._read_mcp_files()
        self._mcp_state.pending = False
        return self._connect_configured_mcp_servers()

    def _connect_configured_mcp_servers(self) -> int:
        manager = self._mcp_manager
        self._mcp_state.tools.expect(manager.config.get_servers())
        manager.load_from_config()
        registered = self._follow_connected_mcp_servers(manager)
        self._print_mcp_info(load_summary(manager))
        return registered

    def _follow_connected_mcp_servers(self, manager: Any) -> int:
        clients = [client for name in manager.list_servers() if (client := manager.get_client(name)) is not None]
        for client in clients:
            self._follow_mcp_tools(client)
        self._rebuild_mcp_prompt()
        return len(clients)

    def require_mcp_servers(self, *names: str, timeout: float | None = 30.0) -> None:
        """Wait until servers are ready and their tools are registered, by default all configured servers.

        For agents that cannot work without these servers. Raises `ServerUnavailable` (a RuntimeError) that names each
        missing server, with the cause; see `MCPClientManager.require`.
        """
        manager = self._mcp_manager
        manager.require(*names, timeout=timeout)
        self._follow_connected_mcp_servers(manager)

    def disconnect_mcp_server(self, name: str) -> None:
        """Unregister the server's tools, stop it, and remove it from the configuration.

        The entry is removed from this agent's memory, and from its configuration file if that has it. A server that
        could not be connected is not tried again. An unknown server is logged.
        """
        manager = self._mcp_manager
        client = manager.get_client(name)
        if client is None:
            if manager.config.server_exists(name) is True:
                manager.remove_server(name)
            else:
                logger.warning("mcp_server_unknown", server=name)
            return
        self._unregister_mcp_tools(client)
        try:
            manager.remove_server(name)
        finally:
            # A change of its tools may have been registered in between. `_on_mcp_event` reverts a later change.
            current = manager.get_client(name)
            if current is None or current is client:
                self._unregister_mcp_tools(client)
            else:
                # Another thread has added a server under this name in the meantime.
                self._follow_mcp_tools(current)
            self._rebuild_mcp_prompt()

    def close_mcp(self) -> None:
        """Stop all servers and unregister their tools; the configuration stays. Connecting again is possible."""
        self._stop_mcp_servers()
        self._rebuild_mcp_prompt()

    def _stop_mcp_servers(self) -> None:
        state = self._mcp_state
        with state.lock:
            manager = state.manager
            self._mcp_manager = None
        if manager is not None:
            manager.disconnect_all()
        registry = self._mcp_registry()
        state.tools.remove_all(registry)
        if isinstance(registry, ToolRegistry):
            # Entries from an override of `_register_mcp_tools`.
            registry.discard(lambda entry: "_mcp_server" in entry)

    def list_mcp_servers(self) -> list[str]:
        """The names of the connected servers, restarting ones included."""
        names: list[str] = self._mcp_manager.list_servers()
        return names

    def get_mcp_client(self, name: str) -> MCPClient | None:
        """The client of a connected server; None if there is no such server."""
        client: MCPClient | None = self._mcp_manager.get_client(name)
        return client

    def _register_mcp_tools(self, client: MCPClient) -> None:
        """Make the registered tools of `client` equal to its present tools. Other servers' tools stay.

        May be overridden. Entries that an override writes to `_TOOL_REGISTRY` become this agent's own.
        """
        ticket = self._mcp_state.tools.ticket()
        self._mcp_state.tools.replace(self._mcp_registry(), client.name, ticket, definitions_of(client))

    def _unregister_mcp_tools(self, client: MCPClient) -> None:
        self._mcp_state.tools.remove(self._mcp_registry(), client.name)

    def _follow_mcp_tools(self, client: MCPClient) -> None:
        self._register_mcp_tools(client)
        registry = self._mcp_registry()
        if isinstance(registry, ToolRegistry):
            registry.adopt(lambda entry: entry.get("_mcp_server") == client.name)
            manager = self._mcp_state.manager
            if manager is not None:
                registry.server_order = server_order(manager)

    def _explain_missing_mcp_tool(self, tool_name: str) -> str | None:
        """For the model: why an unregistered tool of a server cannot be called now; None for other tools."""
        manager = self._mcp_state.manager
        error = None if manager is None else manager.absence_of(tool_name)
        return error.message if isinstance(error, ServerUnavailable) else None

    def _mcp_registry(self) -> Registry:
        registry: Registry | None = getattr(self, "_tools_registry", None)
        if registry is not None:
            return registry
        state = self._mcp_state
        with state.lock:
            if state.registry is None:
                state.registry = ToolRegistry(_TOOL_REGISTRY)
            return state.registry

    def _on_mcp_event(self, event: Event) -> None:
        """Update the registry after an event. Runs on a callback thread of the manager."""
        closed = isinstance(event, StateChanged) and event.new is ServerState.CLOSED
        # The application may have reconnected a closed client, whose tools are gone; no ToolsChanged may follow.
        connected = (
            isinstance(event, StateChanged) and event.old is ServerState.STARTING and event.new is ServerState.READY
        )
        if not closed and not connected and not isinstance(event, ToolsChanged | EventsDropped):
            return
        ticket = self._mcp_state.tools.ticket()
        manager = self._mcp_state.manager
        client = None if manager is None else manager.get_client(event.server)
        if client is None:
            self._mcp_state.tools.replace(self._mcp_registry(), event.server, ticket, [])
        elif client.state is ServerState.CLOSED:
            self._unregister_mcp_tools(client)
        elif not closed:
            # Otherwise the event concerns an earlier server of this name, or the client was connected again.
            self._follow_mcp_tools(client)
            if self._mcp_state.manager is not manager or manager.get_client(event.server) is not client:
                self._unregister_mcp_tools(client)
        self._rebuild_mcp_prompt()

    def _rebuild_mcp_prompt(self) -> None:
        rebuild = getattr(self, "rebuild_system_prompt", None)
        if rebuild is not None:
            rebuild()

    def _report_mcp_problem(self, message: str, error: Exception) -> None:
        if not isinstance(error, ServerUnavailable):
            # A failed connection was logged when it failed.
            logger.error("mcp_problem", message=message, error_type=type(error).__name__)
        console = getattr(self, "console", None)
        if console is not None:
            console.print_error(message)

    def _print_mcp_info(self, text: str) -> None:
        console = getattr(self, "console", None)
        if console is not None and text:
            console.print_info(text)
