"""`MCPClientManager`: starts several servers, calls their tools by namespaced names, and stops the servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Unpack

from gaia.mcp.authorization.config import OnAuthorization
from gaia.mcp.client.client_options import ClientOptions, SharedServices
from gaia.mcp.client.config import MCPConfig, as_config
from gaia.mcp.client.configured_servers import AppliedConfig
from gaia.mcp.client.manager_engine import ManagerEngine
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.readiness import LOADING_SECONDS, enabled_servers, require_wait
from gaia.mcp.client.tool_calls import failure
from gaia.mcp.config.server_config import OutputMode, PinMode
from gaia.mcp.errors import MCPError, NotConnected, ServerUnavailable
from gaia.mcp.requests.exchange import BeforeCall, CallKeywords, CallOptions
from gaia.mcp.requests.submitted_request import CallFuture
from gaia.mcp.supervision.client_features import ClientFeatures, FeatureKeywords, RootsSource
from gaia.mcp.supervision.events import Listener
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_filter import ALLOW_ALL, ToolFilter
from gaia.mcp.tools.tool_result import ToolResult
from gaia.runtime.log import enable_debug, exception_text, get_logger
from gaia.runtime.signatures import spells_out

logger = get_logger(__name__)


class MCPClientManager:
    """Starts servers, lists the tools of all of them, and routes calls. All methods may be called from any thread.

    As a context manager it connects the servers of a configuration in memory on entering, waiting for them at most
    `start_timeout` seconds, and disconnects from everything on leaving.
    """

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
        """Make a manager without starting anything.

        `config` names the servers. A mapping, such as ``{"time": {"command": "uvx", …}}``, is a configuration in memory
        (`MCPConfig.in_memory`). Without `config`, the user's and the project's configuration files count (`MCPConfig`);
        `trust_local` is for that `MCPConfig`.

        `restart_policy`, `pin_tools` and `output_validation` apply to servers whose entries do not set them.
        `pin_tools` says what to do about tools whose definitions differ from the approved ones. The approved ones are
        in `tool_lock_file`, by default ``mcp_tools.lock.json`` beside the user's configuration file.

        `on_authorization` takes a person to the login page of a server that requires a login; `add_server` waits for
        the person, five minutes at most. Without it, servers without a login fail to connect, and the error says what
        to run.

        `start_timeout` is how many seconds `load_from_config`, and so entering the context, waits for slow servers;
        None sets no limit. Raises ValueError if it is not a duration.

        `before_call` is called before each tool call with a `CurrentCall`, in the caller's context. It returns keywords
        of `call_tool` to change or add, such as ``{"headers": {"Authorization": …}}``, or None. `features` answer
        requests of servers; see `MCPClient`.
        """
        require_wait(start_timeout, "start_timeout")
        offered = ClientFeatures.of(features)
        if debug:
            enable_debug()
        self.start_timeout = start_timeout
        """How many seconds `load_from_config` waits by default."""
        self.debug = debug
        """Whether gaia's log is shown on stderr."""
        self._engine = ManagerEngine(
            MCPConfig(trust_local=trust_local) if config is None else as_config(config),
            SharedServices.of("manager", tool_filter=tool_filter, on_authorization=on_authorization),
            ClientOptions(
                restart_policy=restart_policy,
                pin_tools=pin_tools,
                output_validation=output_validation,
                before_call=before_call,
                features=offered,
            ),
            None if tool_lock_file is None else Path(tool_lock_file).absolute(),
            lambda name, entry: MCPClient.from_config(name, entry, debug=debug),
        )

    @property
    def config(self) -> MCPConfig:
        """The configuration of the servers."""
        return self._engine.config

    @config.setter
    def config(self, config: MCPConfig) -> None:
        self._engine.config = config

    @property
    def _clients(self) -> dict[str, MCPClient]:
        """The connected clients; the specification gives the name."""
        return self._engine.registry.connected

    def __enter__(self) -> MCPClientManager:
        if self.config.config_file is None:
            try:
                self.load_from_config()
            except BaseException:
                # The context is not entered after an exception here, so `__exit__` would not stop the started servers.
                self.disconnect_all()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect_all()

    # Servers.

    def add_server(self, name: str, config: Mapping[str, Any], *, save: bool | None = None) -> MCPClient:
        """Connect to a server, and add it to the configuration if that succeeds.

        With `save` true the configuration is saved to the file, with false it is kept in memory only. By default it is
        saved if the manager's `config` has a file. ``${VAR}`` stays as it is. The new server takes the place of one
        that `load_from_config` could not connect.

        Raises ValueError if there is already a server of this name, the configuration is not usable, or there is no
        file for it. Raises RuntimeError with the reason if the connection fails; then the server is not tried again,
        and only `status` shows it.
        """
        if save and self.config.config_file is None:
            raise ValueError(f"server {name!r} cannot be saved: the configuration of this manager has no file")
        if not isinstance(config, Mapping):
            raise ValueError(  # noqa: TRY004 - the specification says ValueError
                f"server {name!r}: expected a config dict such as "
                f'{{"command": "uvx", "args": ["mcp-server-time"]}}, not {type(config).__name__}'
            )
        client = self._engine.factory.make(name, config, None if save is False else self.config.config_file)
        if not self._engine.registry.connect(name, client, keep_trying=False):
            reason = client.last_error or "it was disconnected meanwhile"
            raise ServerUnavailable(f"Failed to connect to server {name!r}: {reason}")
        try:
            # An application's configuration class may have only the specification's two parameters.
            self.config.add_server(name, config, **({"save": False} if save is False else {}))
        except BaseException:
            self._engine.configured.remove(name, client)
            raise
        return client

    def remove_server(self, name: str) -> None:
        """Disconnect from a server and delete its configuration. An unknown name is only logged."""
        client = self._engine.registry.client_of(name)
        exists = self.config.server_exists(name)
        if client is not None:
            client._engine.request_disconnect()
        try:
            # Before the name becomes free: a later entry belongs to the next server of this name.
            if exists:
                self.config.remove_server(name)
        finally:
            self._engine.registry.forget_failure(name)
            if client is not None:
                self._engine.configured.remove(name, client)
        self._engine.readiness.changed()
        if client is None and not exists:
            logger.warning("unknown_server", server=name)

    def stop_server(self, name: str) -> None:
        """Stop a server, or the attempts to start it; its configuration stays, and `restart` starts it again.

        Calls under way end as cancelled. Raises ValueError if no server of this name was started.
        """
        client = self._engine.registry.client_of(name)
        if client is None:
            raise ValueError(f"server {name!r} is not running, so there is nothing to stop")
        client.disconnect()

    def restart(self, name: str) -> bool:
        """Give a server a fresh process, or start a server that failed, was stopped, or was never started.

        If it is ready there is no gap; see `MCPClient.restart`. If two processes of the server cannot run side by side,
        because both need the same port or lock, call `stop_server` first. Returns True when the fresh process is ready,
        and False if it failed; `status` says why. A server that was ready then goes on in its old process; any other is
        tried again as after `load_from_config`.

        Raises ValueError for a name that is not configured, for a server that is disabled or being started, and for a
        configuration that cannot be used.
        """
        if name in self._engine.registry and name not in self._clients:
            raise ValueError(f"server {name!r} is being started already")
        client = self._engine.registry.client_of(name)
        if client is not None:
            restarted = False
            try:
                restarted = client.restart(keep_trying=True)
            finally:
                # An exception of a signal handler does not undo the restart: the client still belongs to the manager.
                if self._engine.registry.client_of(name) is not client:
                    # Another thread removed the server meanwhile, perhaps before it was started here.
                    client.disconnect()
                    restarted = False
            return restarted
        if (problem := self.config.problems.get(name)) is not None:
            raise ValueError(problem)
        entry = self.config.get_servers().get(name)
        if entry is None:
            raise ValueError(f"no server {name!r} is configured; the names are {', '.join(self.config.get_entries())}")
        if entry.get("disabled"):
            raise ValueError(f'server {name!r} is disabled: remove "disabled" from its entry first')
        client = self._engine.factory.make(name, entry, self.config.source_of(name))
        return self._engine.registry.connect(name, client, keep_trying=True)

    def restart_server(self, name: str) -> bool:
        """The same as `restart`."""
        return self.restart(name)

    def get_client(self, name: str) -> MCPClient | None:
        """The client of a connected server, restarting ones included; None if there is no such server."""
        return self._clients.get(name)

    def list_servers(self) -> list[str]:
        """The names of the servers that were connected and not removed, restarting ones included.

        They are in the order of the configuration; servers that it does not name come last.
        """
        return self._engine.registry.in_order(self._clients)

    def load_from_config(self, timeout: float | None = None, *, keep_trying: bool = True) -> None:
        """Connect to all configured servers at once, except disabled and already connected ones.

        Returns when each has succeeded or failed, or after `timeout` seconds, by default the `start_timeout` of the
        manager; with 0 it does not wait. Slower servers go on in the background and join when they are ready; the log
        names them (``servers_still_starting``). Never raises for a single server: failures are logged, and `status`
        shows them. Raises ValueError for a `timeout` that is negative, more than a year, or not a number.

        A server that failed is tried again in the background, by its restart policy, until it is removed or
        `disconnect_all` is called. Calling this again tries it at once. A server whose configuration cannot be used, or
        that requires a login, is not tried again. With `keep_trying` False no server is tried again.
        """
        require_wait(timeout)
        seconds = self.start_timeout if timeout is None else timeout
        self._engine.configured.load(self.config, seconds, keep_trying=keep_trying)

    def apply(
        self, config: MCPConfig | Mapping[str, Mapping[str, Any]], *, timeout: float | None = None
    ) -> AppliedConfig:
        """Run with another configuration from now on; servers that are the same in both go on untouched.

        A server is the same if its entry means the same, with the same names of variables. A changed server is replaced
        without a gap: new calls, and calls that wait, go to the new process when it is ready, and calls under way
        finish in the old one, for its `drainTimeout` at most. A shared server is replaced with a gap. A server
        that is missing or disabled in `config` leaves this manager; its calls have its `drainTimeout` to finish. New
        servers are started, as `load_from_config` does.

        Returns when all of this is done or has failed, or after `timeout` seconds (None: no limit); the rest then goes
        on in the background. Never raises for a single server: if a changed one cannot be started, the old process goes
        on, and ``failed`` says why. Applying the same configuration again tries it again. Raises ConfigError (a
        ValueError), and changes nothing, for a configuration with an entry that cannot be used.
        """
        require_wait(timeout)
        return self._engine.configured.apply(as_config(config), timeout)

    def disconnect_all(self) -> None:
        """Disconnect from all servers, all at once; also from those that start, or that another thread removes.

        Errors are logged.
        """
        self._engine.configured.stop()
        registry = self._engine.registry
        clients = [*registry.take_all().values(), *registry.departing.copy()]
        try:
            for client in clients:
                client._engine.request_disconnect()
            for client in clients:
                _disconnect(client)
        except BaseException:
            # A signal handler raised this exception. No other code refers to these clients any more.
            for client in clients:
                client._engine.request_disconnect()
            raise
        registry.departing.difference_update(clients)
        registry.wait_for_starts()
        self._engine.configured.join()
        self._engine.factory.services.close()
        self._engine.readiness.changed()
        self._engine.listeners.end()

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until all servers that were loaded or added are ready, at most `timeout` seconds (None: no limit).

        True when all are. False after `timeout`, and at once when a server cannot become ready by itself: its
        configuration is unusable, it requires a login, its restart policy is ``never``, or it was disconnected. A
        server that has exited by itself counts as ready, because the next call starts it. Does not start servers: call
        `load_from_config` first; before that this is False at once, unless there are no servers to start. Raises
        ValueError for a `timeout` that is not a duration.
        """
        require_wait(timeout)
        goal = self._engine.all_ready()
        self._engine.readiness.wait(goal.is_over, timeout)
        return goal.outcome()

    def require(self, *names: str, timeout: float | None = 30.0) -> None:
        """Wait until the servers `names` are ready, by default all that are configured and not disabled.

        Raises `ServerUnavailable` (a RuntimeError) after `timeout` seconds (None: no limit), or as soon as no missing
        server can become ready by itself. The error names each missing server, with the cause; see `wait_ready`. Does
        not start servers: call `load_from_config` first. Raises ValueError for a `timeout` that is not a duration.
        """
        require_wait(timeout)
        goal = self._engine.presence_of(names)
        self._engine.readiness.wait(goal.is_over, timeout)
        goal.outcome()

    def absence_of(self, tool_name: str) -> ServerUnavailable | None:
        """Why the server of a tool (by its namespaced name) is not ready; None if it is ready or unknown."""
        return self._engine.absence_of(tool_name)

    def set_roots(self, roots: RootsSource) -> None:
        """Replace the folders offered to all servers; see `MCPClient.set_roots`."""
        offered = self._engine.factory.defaults.features.roots
        if offered is None:
            raise RuntimeError("the manager was made without roots; give it some then, be it an empty list")
        offered.replace(roots)
        for client in list(self._clients.values()):
            client.announce_roots()

    # Tools.

    def list_tools(self) -> list[MCPTool]:
        """The tools of all servers, filtered, in the order of `list_servers`. Each has its ``namespaced_name``.

        A server that fails keeps its last listed tools.
        """
        return [route.tool for route in self._engine.registry.routes.values()]

    @spells_out(CallKeywords, CallOptions())
    def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """Call a tool by its namespaced name (``mcp_<server>_<tool>``); see `MCPClient.call_tool` for the rest.

        If no server offers the name, the ``error_type`` is ``unknown_tool``, ``denied`` or ``not_approved``. If the
        tool's server is down or is being removed, it is ``server_unavailable``, with the cause and the seconds until
        the server is tried again. A call waits for a server that is being started.
        """
        wanted = CallOptions(**options)
        try:
            route = self._engine.registry.routes.get(name) or self._engine.route_of(name, wanted.timeout)
        except MCPError as error:
            return failure(error, name, None, arguments)
        try:
            return route.client._engine.tool_calls.call(route.tool.name, arguments, wanted)
        except NotConnected as error:
            # The server was removed after the route had been found.
            return failure(ServerUnavailable(error.message), route.tool.name, None, arguments)

    @spells_out(CallKeywords, CallOptions())
    def submit_tool(
        self, name: str, arguments: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> CallFuture:
        """Like `call_tool`, without waiting: a future of the result; see `MCPClient.submit_tool`.

        A call that cannot be made raises at once: UnknownTool, ToolDenied or ToolNotApproved for a name that no server
        offers, and ServerUnavailable for the tool of a server that is down.
        """
        wanted = CallOptions(**options)
        route = self._engine.route_of(name, wanted.timeout)
        try:
            return route.client._engine.tool_calls.submit(route.tool.name, arguments, wanted)
        except NotConnected as error:
            # The server was removed after the route had been found.
            raise ServerUnavailable(error.message) from error

    # Condition.

    def __repr__(self) -> str:
        summaries = [one.summary for one in self.status()] or [
            f"{name!r} not started" for name in enabled_servers(self.config)
        ]
        return f"<{type(self).__name__} {'; '.join(summaries) or 'without servers'}>"

    def status(self) -> list[ServerStatus]:
        """The condition of every server, in the order of the configuration; servers that it does not name come last."""
        return self._engine.registry.status()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Pass every `Event` of every server to `listener`, those of one server in order; see `MCPClient.subscribe`."""
        return self._engine.listeners.subscribe(listener, self._engine.factory.services.callbacks)


def _disconnect(client: MCPClient) -> None:
    try:
        client.disconnect()
    except Exception as error:  # noqa: BLE001 - one server's trouble must not keep the others from being stopped
        logger.error("disconnect_failed", server=client.name, error=exception_text(error))
