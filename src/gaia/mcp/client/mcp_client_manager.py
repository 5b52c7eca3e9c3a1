"""The public manager: starts several servers, calls their tools by namespaced names, and stops the servers."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from gaia.engine_thread import EngineThread
from gaia.exception_text import exception_text
from gaia.locks import reentrant_lock
from gaia.log import enable_debug, get_logger
from gaia.mcp.client.authorization.config import OnAuthorization
from gaia.mcp.client.client_options import ClientOptions, SharedServices, threads_for
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.config_changes import AppliedConfig, Changes, Origin
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.naming import owner_of
from gaia.mcp.client.pinning.lock_file import pins_in
from gaia.mcp.client.presence import Presence, enabled_servers, is_disabled
from gaia.mcp.client.protocol.elicitation import ElicitationMode
from gaia.mcp.client.readiness import Goal, Readiness
from gaia.mcp.client.rpc.clock import require_seconds
from gaia.mcp.client.rpc.tap import Taps
from gaia.mcp.client.server_config import OutputMode, PinMode, require_servers, without_name
from gaia.mcp.client.server_memory import RememberedServer, ServerMemory
from gaia.mcp.client.server_registry import NameTaken, Route, ServerRegistry
from gaia.mcp.client.supervision.caller import CallFuture
from gaia.mcp.client.supervision.client_features import (
    RELAYED,
    ClientFeatures,
    OnElicitation,
    OnSampling,
    Roots,
    RootsSource,
)
from gaia.mcp.client.supervision.client_request import CallOptions, OnProgress
from gaia.mcp.client.supervision.events import Event, Listener, Listeners, ServerState, StateChanged, ToolsChanged
from gaia.mcp.client.supervision.policy import RestartPolicy
from gaia.mcp.client.supervision.status import ServerStatus
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.client.tool_calls import failure, require_tool_name
from gaia.mcp.client.tool_filter import ALLOW_ALL, ToolFilter
from gaia.mcp.client.tool_result import ToolResult
from gaia.mcp.client.transports.loop_reader import PipeLoop
from gaia.mcp.errors import ConfigError, MCPError, NotConnected, ServerUnavailable, UnknownTool
from gaia.telemetry import attributes as names
from gaia.telemetry import metrics

__all__ = ["MCPClientManager", "require_wait"]

logger = get_logger(__name__)

_TO_BEGIN_SECONDS = 5.0
"""For a thread that was started to begin its work."""


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
        self.config = MCPConfig(trust_local=trust_local) if config is None else _as_config(config)
        """The configuration of the servers."""
        self.debug = debug
        """Whether gaia's log is shown on stderr."""
        self._lock_file = None if tool_lock_file is None else Path(tool_lock_file).absolute()
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
        self.taps = Taps()
        """Where servers are recorded, if they are."""
        self._services = SharedServices(
            **threads_for("manager"),
            tool_filter=tool_filter,
            on_authorization=on_authorization,
            taps=self.taps,
        )
        self.listeners = Listeners()
        """Told of the events of all servers."""
        self._registry = ServerRegistry(self._joined)
        self.readiness = Readiness()
        """Changes with the conditions of the servers."""
        self._presence = Presence(lambda: self.config, self.status, lambda: self._clients)
        """Which of them are ready, and why others are not."""
        self._lock = reentrant_lock()
        """Owns `_starters`."""
        self._starters: list[threading.Thread] = []
        """Threads of `load_from_config` and `apply`; some of them may have ended. Replaced as a whole."""
        self._applying = reentrant_lock()
        """Has one `apply` at a time begin its changes, and owns `_replacing`. Not held while they are made."""
        self._replacing: dict[str, threading.Thread] = {}
        """The thread that gives a server another configuration, or was the last to do so."""
        self._stops = 0
        """How often `disconnect_all` was called, under `_lock`: what was applied before starts nothing any more."""
        self._origins: WeakKeyDictionary[MCPClient, Origin] = WeakKeyDictionary()
        """What each client was made of. Single entries are set and read, by any thread."""
        self._departing: set[MCPClient] = set()
        """Clients that are no servers of ours any more and finish their calls. The thread that removes one adds it, and
        takes it out; others copy the set."""

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

    def relay(self, pipe_loop: PipeLoop | None) -> None:
        """Be the manager of a gateway: its clients answer what servers ask, and its event loop reads what they write.

        To be called before the first server is connected. Connecting and disconnecting must not be waited for on that
        loop. With None, threads read.
        """
        self._defaults = msgspec.structs.replace(self._defaults, features=RELAYED)
        self._services = msgspec.structs.replace(self._services, pipe_loop=pipe_loop)

    # Servers.

    def add_server(self, name: str, config: Mapping[str, Any], *, save: bool | None = None) -> MCPClient:
        """Connect to a server, and note its configuration if that succeeds.

        With `save` true the configuration is saved to the file, with false it is kept in memory only; by default it is
        saved if `config` of this manager has a file. It is saved as it is given: ``${VAR}`` stays as it is.

        Raises ValueError if there is already a server of this name, the configuration is not usable, or there is no
        file to save it to, and RuntimeError with the reason if the connection fails. Such a server is not tried again:
        only `status` still shows it, until it is removed or added again. One that `load_from_config` could not connect
        is no obstacle: the new one takes its place.
        """
        if save and self.config.config_file is None:
            raise ValueError(f"server {name!r} cannot be saved: the configuration of this manager has no file")
        if not isinstance(config, Mapping):
            raise ValueError(  # noqa: TRY004 - the specification says ValueError
                f"server {name!r}: expected a config dict such as "
                f'{{"command": "uvx", "args": ["mcp-server-time"]}}, not {type(config).__name__}'
            )
        client = self._make_client(name, config, None if save is False else self.config.config_file)
        if not self._connect(name, client, keep_trying=False):
            reason = client.last_error or "it was disconnected meanwhile"
            raise ServerUnavailable(f"Failed to connect to server {name!r}: {reason}")
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
        self.readiness.changed()
        if client is None and not exists:
            logger.warning("unknown_server", server=name)

    def new_instance(self, name: str, on_event: Callable[[Event], None] = lambda _: None) -> MCPClient:
        """A further client of a server of this manager, with a process of its own, for code that needs several.

        It is made of the entry that the server has now, and has the same filters and pins. It is lazy: connecting
        returns at once, and the first call starts its process. It does not belong to this manager: the caller connects
        and disconnects it, `list_tools` and `status` do not show it, and the listeners of this manager are not told of
        it. `on_event` is, on the thread on which an event happens, so it must be quick and must not raise. Raises
        ValueError if no server of this name was started.
        """
        shared = self._registry.client_of(name)
        origin = None if shared is None else self._origins.get(shared)
        if shared is None or origin is None:
            raise ValueError(f"server {name!r} is not running, so there can be no instance of it")
        client = MCPClient.from_config(name, origin.entry, debug=self.debug)
        self._join_instance(client, shared, origin, on_event)
        return client

    def renew_instance(self, client: MCPClient, on_event: Callable[[Event], None] = lambda _: None) -> MCPError | None:
        """Have what `new_instance` has made go on with the entry that its server has now; see `apply`. May wait."""
        shared = self._registry.client_of(client.name)
        origin = None if shared is None else self._origins.get(shared)
        if shared is None or origin is None or client.entry == origin.server:
            return None
        successor = MCPClient.from_config(client.name, origin.entry, debug=self.debug)
        self._join_instance(successor, shared, origin, on_event)
        return client.reconfigure(successor)

    def _join_instance(
        self, client: MCPClient, shared: MCPClient, origin: Origin, on_event: Callable[[Event], None]
    ) -> None:
        tools = [tool.definition for tool in shared.tool_calls.catalog.tools if tool.definition]
        services = msgspec.structs.replace(
            self._services,
            pins=lambda name: pins_in(origin.source, name, self._lock_file),
            on_event=on_event,
            memory=ServerMemory(last=RememberedServer(shared.trips.session.profile, tools)),
        )
        client.join(services, msgspec.structs.replace(self._defaults, lazy=True))

    def stop_server(self, name: str) -> None:
        """Stop a server, or the attempts to start it; its configuration stays, and `restart` starts it again.

        Calls under way end as cancelled. Raises ValueError if no server of this name was started.
        """
        client = self._registry.client_of(name)
        if client is None:
            raise ValueError(f"server {name!r} is not running, so there is nothing to stop")
        client.disconnect()

    def restart(self, name: str) -> bool:
        """Give a server a fresh process, or start it; also one that failed, was stopped, or was never started.

        If it is ready there is no gap: new calls go to the fresh process once that is ready, while the old one finishes
        the calls that it has, for its `drainTimeout` at most; see `MCPClient.restart`. For a server of which no two
        processes can run side by side, because they would need the same port or lock, call `stop_server` first.

        Returns True when the fresh process is ready. False if it failed, after its own `timeout` at the latest;
        `status` says why. A server that was ready goes on in its old process then, and another is tried again as after
        `load_from_config`. Raises ValueError for a name that is not configured, for a server that is disabled or being
        started, and for a configuration that cannot be used.
        """
        if name in self._registry and name not in self._clients:
            raise ValueError(f"server {name!r} is being started already")
        client = self._registry.client_of(name)
        if client is not None:
            restarted = False
            try:
                restarted = client.restart(keep_trying=True)
            finally:
                # An exception of a signal handler does not undo it: the client stays one of the manager's.
                if self._registry.client_of(name) is not client:
                    # It was removed meanwhile, perhaps before it was started here.
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
        client = self._make_client(name, entry, self.config.source_of(name))
        return self._connect(name, client, keep_trying=True)

    def restart_server(self, name: str) -> bool:
        """The same as `restart`."""
        return self.restart(name)

    def get_client(self, name: str) -> MCPClient | None:
        """The client of a connected server, restarting ones included; None if there is no such server."""
        return self._clients.get(name)

    def client_of(self, name: str) -> MCPClient | None:
        """The client of a server that was started, whether it is connected yet or not; None if there is none."""
        return self._registry.client_of(name)

    def list_servers(self) -> list[str]:
        """The names of the servers that were connected and not removed, restarting ones included.

        They are in the order of the configuration; those that are not in it come last.
        """
        return self._registry.in_order(self._clients)

    def load_from_config(self, timeout: float | None = None, *, keep_trying: bool = True) -> None:
        """Connect to all configured servers at once, except disabled and already connected ones.

        Returns when each has succeeded or failed, after `timeout` seconds at the latest; servers that are slower go on
        in the background and join when they are ready. Never raises for a single server: failures are logged, and
        `status` shows them. With a `timeout` of 0 nothing is waited for. Raises ValueError for one that is negative,
        more than a year, or not a number.

        A server that failed is tried again in the background, by its restart policy, until it is removed or
        `disconnect_all` is called; it joins the others when it is ready. Until then its state is ``failed``, and
        ``starting`` during an attempt. Calling this again tries it at once. A server whose configuration cannot be
        used, or that requires a login, is not tried again, and with `keep_trying` False no server is.
        """
        require_wait(timeout)
        # `disconnect_all` finds all of them from now on, whether their threads have come to run or not.
        entries, problems = self.config.get_servers(), self.config.problems
        self._registry.expect(self.config.get_entries())
        for name, problem in problems.items():
            if not is_disabled(self.config, name):
                self._refuse(name, problem)
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
            connect = functools.partial(self._connect, name, client, keep_trying=keep_trying)
            thread = EngineThread(connect, f"mcp-{name}-start")
            try:
                thread.start()
            except RuntimeError:
                unstarted.append((name, client))
            else:
                threads.append(thread)
        self._note_starters(threads)
        for name, client in unstarted:
            # The system starts no more threads: this one connects the server, whose supervisor will most likely fail.
            self._connect(name, client, keep_trying=keep_trying)
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _note_starters(self, threads: Iterable[threading.Thread]) -> None:
        with self._lock:
            self._starters = [*(thread for thread in self._starters if thread.is_alive()), *threads]

    def apply(
        self, config: MCPConfig | Mapping[str, Mapping[str, Any]], *, timeout: float | None = None
    ) -> AppliedConfig:
        """Run with another configuration from now on; what is the same in both goes on untouched.

        A server is the same if its entry means the same, with the same names of variables. One that has changed is
        replaced without a gap: new calls go to the new process when that is ready, and calls under way finish in the
        old one, for its `drainTimeout` at most. Calls that wait for a server that is down go to the new process, too. A
        server that is not in `config` any more, or is disabled there, is no server of this manager from now on; calls
        under way in it have its `drainTimeout` to finish. New servers are started, as `load_from_config` does.

        Returns when all of this is done or has failed, after `timeout` seconds (None: no limit) at the latest; the rest
        goes on in the background then. Never raises for a single server: if a changed one cannot be started, the old
        process goes on, and ``failed`` says why. Applying the same configuration again tries it again.

        Raises ConfigError (a ValueError), and changes nothing, for a configuration with an entry that cannot be used,
        be it one that could not be used before either.
        """
        require_wait(timeout)
        config = _as_config(config)
        changes, stops = Changes(), self._stops
        with self._applying:
            unchanged = self._begin_changes(config, changes, stops)
        changes.wait(timeout)
        self.readiness.changed()
        result = changes.result(unchanged)
        shown = {name: value for name, value in msgspec.structs.asdict(result).items() if value}
        logger.info("config_applied", **shown)
        return result

    def _begin_changes(self, config: MCPConfig, changes: Changes, stops: int) -> list[str]:
        """Begin to make `changes`. Returns the servers that have none. Raises ConfigError and changes nothing.

        What an earlier `apply` began may still be under way.
        """
        disabled = [name for name in config.get_entries() if is_disabled(config, name)]
        if problems := [problem for name, problem in config.problems.items() if name not in disabled]:
            raise ConfigError("; ".join(problems))
        entries = {name: entry for name, entry in config.get_servers().items() if name not in disabled}
        origins = {name: Origin(name, entry, config.source_of(name)) for name, entry in entries.items()}
        clients = self._registry.clients()
        self._replacing = {name: thread for name, thread in self._replacing.items() if thread.is_alive()}
        unchanged = [
            name
            for name, client in clients.items()
            if name not in self._replacing and self._origins.get(client) == origins.get(name)
        ]
        # Any that cannot be made is found here.
        made = {
            name: MCPClient.from_config(name, entry, debug=self.debug)
            for name, entry in entries.items()
            if name not in unchanged
        }
        self.config = config
        self._registry.expect(config.get_entries())
        threads = []
        for name, successor in made.items():
            make = functools.partial(self._make_client, name, entries[name], origins[name].source)
            client = clients.get(name)
            if client is None:
                try:
                    # Here and now, so that `disconnect_all` finds it.
                    started = make()
                except NameTaken:
                    # The application has added it, or begun to start it, meanwhile.
                    continue
                start = functools.partial(self._start, name, started, stops)
                threads.append(changes.begin(name, "started", start))
                continue
            if successor.shares_clock_with(client):
                replace = functools.partial(self._reconfigure, name, client, successor, origins[name])
            else:
                replace = functools.partial(self._change_place, name, client, make, stops)
            thread = changes.begin(name, "replaced", replace, after=self._replacing.get(name))
            if thread is not None:
                self._replacing[name] = thread
            threads.append(thread)
        for name, client in clients.items():
            if name not in entries:
                # Here and now, so that the next `apply` finds it gone.
                self._take_away(name, client)
                threads.append(changes.begin(name, "removed", functools.partial(self._depart, client)))
        for name in self._registry.failed_names() - entries.keys():
            self._registry.forget_failure(name)
        self._note_starters(thread for thread in threads if thread is not None)
        return unchanged

    def _start(self, name: str, client: MCPClient, stops: int) -> str | None:
        """Start a server of a configuration that is applied. Returns why that has failed, if it has."""
        if stops != self._stops:
            # `disconnect_all` may have come before the name was reserved.
            self._registry.drop(name, client)
        if self._connect(name, client, keep_trying=True):
            return None
        return client.last_error or "it was disconnected meanwhile"

    def _reconfigure(self, name: str, client: MCPClient, successor: MCPClient, origin: Origin) -> str | None:
        earlier = self._origins.get(client)
        if earlier == origin:
            # An earlier change, which had not ended yet, has come to the same.
            return None
        if earlier is not None:
            origin.follow(earlier)
        successor.join(self._services_for(name, client, origin), self._defaults)
        error = client.reconfigure(successor)
        if client.transport is successor.transport:
            # It is so after an error, too, if the server was not ready before.
            self._origins[client] = origin
        self.readiness.changed()
        return None if error is None else error.message

    def _change_place(self, name: str, client: MCPClient, make: Callable[[], MCPClient], stops: int) -> str | None:
        """One of the two takes the time from another clock than the other, so they cannot be one client."""
        self._take_away(name, client)
        self._depart(client)
        return self._start(name, make(), stops)

    def _take_away(self, name: str, client: MCPClient) -> None:
        """A server is none of ours any more; `_depart` has to follow."""
        self._departing.add(client)
        self._registry.drop(name, client)
        self._registry.forget_failure(name)

    def _depart(self, client: MCPClient) -> None:
        """Stop a server that was taken away, which has its time to finish its calls."""
        origin = self._origins.get(client)
        try:
            client.disconnect(drain=0.0 if origin is None else origin.server.drain_timeout)
        finally:
            self._departing.discard(client)
            self.readiness.changed()

    def disconnect_all(self) -> None:
        """Disconnect from all servers, all at once, those still starting included. Errors are logged."""
        with self._lock:
            self._stops += 1
        clients = self._registry.take_all()
        for departing in list(self._departing):
            # They have had their time.
            departing.request_disconnect()
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
        self.readiness.changed()
        self.listeners.end()

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until all servers that were loaded or added are ready, at most `timeout` seconds (None: no limit).

        True when they are. False after `timeout`, and at once when a server cannot become ready by itself: its
        configuration is unusable, it requires a login, its restart policy is ``never``, or it was disconnected. A
        server that has exited by itself counts as ready, because the next call starts it. Does not start servers:
        call `load_from_config` first. Before that, and if no server was added either, it is False at once unless the
        configuration has no servers to start. Raises ValueError for a `timeout` that is no duration.
        """
        require_wait(timeout)
        goal = self.all_ready()
        self.readiness.wait(goal.is_over, timeout)
        return goal.outcome()

    def require(self, *names: str, timeout: float | None = 30.0) -> None:
        """Wait until the servers `names` are ready, by default all that are configured and not disabled.

        Returns when they are. Raises `ServerUnavailable` (a RuntimeError) that names each server that is not, with the
        cause: after `timeout` seconds (None: no limit), or as soon as each of them is ready or cannot become so by
        itself; see `wait_ready`. Does not start servers: call `load_from_config` first. Raises ValueError for a
        `timeout` that is no duration.
        """
        require_wait(timeout)
        goal = self.presence_of(names)
        self.readiness.wait(goal.is_over, timeout)
        goal.outcome()

    # What the two wait for; tasks wait for it in another way than threads.

    def all_ready(self) -> Goal[bool]:
        """For `wait_ready`."""
        return self._presence.all_ready()

    def presence_of(self, names: tuple[str, ...]) -> Goal[None]:
        """For `require`."""
        return self._presence.required(names)

    def absence_of(self, tool_name: str) -> ServerUnavailable | None:
        """What keeps the server of a tool (by its namespaced name) from being ready; None if it is, or is unknown."""
        server = self._registry.owner_of(tool_name)
        return None if server is None else self._presence.why_absent(server)

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
        """The tools of all servers, filtered. ``namespaced_name`` is what `call_tool` takes.

        They are in the order of `list_servers`, and those of one server in its own order. A server that fails keeps
        those that it listed last.
        """
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
        ``not_approved``. That of a server that is down, or is being removed, gives ``server_unavailable``, with the
        cause and the seconds until the server is tried again. A call waits for a server that is being started.
        """
        route = self._registry.routes.get(name) or self._route_to_absent(name)
        if route is None:
            return failure(self._no_route(name), name, None, arguments)
        options = CallOptions(timeout, on_progress, reset_timeout_on_progress, max_timeout)
        try:
            return route.client.tool_calls.call(route.tool.name, arguments, options)
        except NotConnected as error:
            # The server was removed after the route had been found.
            return failure(ServerUnavailable(error.message), route.tool.name, None, arguments)

    @property
    def routes(self) -> Mapping[str, Route]:
        """The way of a call to each tool that `list_tools` lists, by its namespaced name. Replaced as a whole."""
        return self._registry.routes

    def route_of(self, name: str) -> Route:
        """The way of a call to a tool, whether it is listed or not. Raises as `submit_tool` does; may wait seconds."""
        route = self._registry.routes.get(name) or self._route_to_absent(name)
        if route is None:
            raise self._no_route(name)
        return route

    def _route_to_absent(self, name: str) -> Route | None:
        """The way of a call to a server that is down or has not listed its tools; see `ServerRegistry`."""
        require_tool_name(name)
        if self._registry.is_about_to_start(name):
            # A thread of `load_from_config` is about to start it. The call waits for the server itself in its queue.
            self.readiness.wait(lambda: not self._registry.is_about_to_start(name), _TO_BEGIN_SECONDS)
        return self._registry.route_to_absent(name)

    def submit_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        reset_timeout_on_progress: bool | None = None,
        max_timeout: float | None = None,
    ) -> CallFuture:
        """Like `call_tool`, without waiting: a future of the result; see `MCPClient.submit_tool`.

        As there, a call that cannot be made raises at once: UnknownTool, ToolDenied or ToolNotApproved for a name that
        no server offers, and ServerUnavailable for the tool of a server that is down. Everything that goes wrong later
        is raised by the future.
        """
        route = self.route_of(name)
        options = CallOptions(timeout, on_progress, reset_timeout_on_progress, max_timeout)
        try:
            return route.client.tool_calls.submit(route.tool.name, arguments, options)
        except NotConnected as error:
            # The server was removed after the route had been found.
            raise ServerUnavailable(error.message) from error

    def _no_route(self, name: str) -> MCPError:
        """Why there is no route to a tool. Counts the call, which no client gets to count."""
        error: MCPError = self._registry.no_route(name)
        if isinstance(error, ServerUnavailable):
            error = self.absence_of(name) or error
        elif isinstance(error, UnknownTool):
            # Servers that were never loaded are unknown to the registry.
            owner = owner_of(name, self.config.get_entries())
            if owner is not None and owner not in [status.name for status in self.status()]:
                error = self._presence.why_absent(owner) or error
        metrics.instruments.refused.add(1, {names.ERROR_TYPE: error.error_type})
        return error

    # Condition.

    def __repr__(self) -> str:
        summaries = [one.summary for one in self.status()] or [
            f"{name!r} not started" for name in enabled_servers(self.config)
        ]
        return f"<{type(self).__name__} {'; '.join(summaries) or 'without servers'}>"

    def status(self) -> list[ServerStatus]:
        """The condition of every server, in the order of the configuration; those that are not in it come last."""
        return self._registry.status()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every `Event` of every server, one at a time, on a callback thread.

        The events of each server come in order. If the listener is so slow that more than 10,000 events or 4 MiB of one
        server wait, the oldest of that server are dropped, and the listener gets an `EventsDropped`. Returns a function
        that ends the subscription.
        """
        return self.listeners.subscribe(listener, self._services.callbacks)

    # Making clients, and what they report.

    def _make_client(self, name: str, config: Mapping[str, Any], source: Path | None) -> MCPClient:
        """Make the client and reserve its name. Its entry is in the file `source`, or in memory. Raises ValueError."""
        client = MCPClient.from_config(name, config, debug=self.debug)
        origin = Origin(name, config, source)
        client.join(self._services_for(name, client, origin), self._defaults)
        self._origins[client] = origin
        self._registry.reserve(name, client)
        return client

    def _services_for(self, name: str, client: MCPClient, origin: Origin) -> SharedServices:
        """What the client of a server shares with the others."""
        return msgspec.structs.replace(
            self._services,
            pins=lambda name: pins_in(origin.source, name, self._lock_file),
            memory=origin.memory,
            on_tools=lambda tools: self._registry.tools_listed(name, client, tools),
            on_event=lambda event: self._happened(name, client, event),
        )

    def _make_configured(self, name: str, config: Mapping[str, Any]) -> MCPClient | None:
        """Like `_make_client`; None if another thread starts it, and if it cannot be made, as its status says then."""
        try:
            return self._make_client(name, config, self.config.source_of(name))
        except NameTaken:
            # Another thread has just begun to start this server.
            return None
        except ValueError as error:
            self._refuse(name, str(error))
            return None

    def _refuse(self, name: str, problem: str) -> None:
        problem = without_name(problem, name)
        logger.warning("server_config_unusable", server=name, error=problem)
        self._registry.refused(name, problem)

    def _connect(self, name: str, client: MCPClient, *, keep_trying: bool) -> bool:
        try:
            return self._registry.connect(name, client, keep_trying=keep_trying)
        finally:
            self.readiness.changed()

    def _joined(self, name: str, tools: tuple[MCPTool, ...]) -> None:
        self.listeners.publish(ToolsChanged(name, added=tuple(sorted(tool.name for tool in tools))))

    def _happened(self, name: str, client: MCPClient, event: Event) -> None:
        """Something has happened to a server; called on its supervisor's thread, or on one that connects its client."""
        tools: tuple[MCPTool, ...] = ()
        if isinstance(event, StateChanged) and event.new is ServerState.READY:
            tools = self._registry.came_up(name, client)
        elif isinstance(event, ToolsChanged) and self._registry.is_starting(name):
            # A listener would ask for tools that cannot be called yet. It is told when the server has joined.
            return
        self.listeners.publish(event)
        if tools:
            self._joined(name, tools)
        if isinstance(event, StateChanged):
            self.readiness.changed()


def _as_config(config: MCPConfig | Mapping[str, Mapping[str, Any]]) -> MCPConfig:
    if isinstance(config, Mapping):
        return MCPConfig.in_memory(config)
    if not hasattr(config, "get_servers"):
        # A path, for example: this says what to give.
        require_servers(config)
    return config


def require_wait(timeout: float | None) -> None:
    """Raise ValueError unless a method can wait this long; None is without a limit, and 0 is not at all."""
    if timeout not in (None, 0):
        require_seconds("timeout", timeout)


def _disconnect(name: str, client: MCPClient) -> None:
    try:
        client.disconnect()
    except Exception as error:  # noqa: BLE001 - one server's trouble must not keep the others from being stopped
        logger.error("disconnect_failed", server=name, error=exception_text(error))
