"""`ConfiguredServers`: starts the servers that a configuration names, and applies another configuration to them."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from gaia.mcp.client.client_factory import ClientFactory, Origin
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.readiness import Readiness, is_disabled
from gaia.mcp.client.server_registry import NameTaken, ServerRegistry
from gaia.mcp.config.server_config import without_name
from gaia.mcp.errors import ConfigError
from gaia.runtime.locks import reentrant_lock
from gaia.runtime.log import get_logger
from gaia.runtime.threads import EngineThread


class AppliedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `MCPClientManager.apply` has done. Each is names of servers, sorted; a server is in one of them."""

    unchanged: tuple[str, ...] = ()
    """Nothing was done about them."""
    started: tuple[str, ...] = ()
    """They run, and did not before."""
    replaced: tuple[str, ...] = ()
    """They have another configuration: a process that was started with it has taken over without a gap."""
    removed: tuple[str, ...] = ()
    """They are not in the configuration any more, or are disabled there. They have finished their calls and ended."""
    failed: Mapping[str, str] = {}
    """Servers that could not be started, with the reason. One that was to be replaced goes on as it was; a new one is
    tried again in the background."""
    pending: tuple[str, ...] = ()
    """Their change was still under way when the time was up, and goes on."""


class Changes:
    """Makes the changes of several servers at once, each on a thread of its own, and knows what has come of them."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        """Owns the outcomes."""
        self._outcomes: dict[str, tuple[str, str | None]] = {}
        """What was to be done with each server, and why it has failed, if it has."""
        self._begun: dict[str, threading.Thread | None] = {}

    def begin(
        self, name: str, what: str, change: Callable[[], str | None], *, after: threading.Thread | None = None
    ) -> threading.Thread | None:
        """Have `change` made, which returns why it has failed, or None. Returns its thread, unless it had to be ours.

        `what` is a field of `AppliedConfig`. It is made when the thread `after` has ended.
        """

        def run() -> None:
            failure: str | None = "it was interrupted"
            try:
                if after is not None:
                    after.join()
                failure = change()
            finally:
                with self._lock:
                    self._outcomes[name] = (what, failure)

        # A log handler that never returns must not hold up `disconnect_all`, which waits for this thread.
        thread = EngineThread(run, f"mcp-{name}-apply")
        self._begun[name] = None
        try:
            thread.start()
        except RuntimeError:
            # The system starts no more threads: this one makes the change.
            run()
            return None
        self._begun[name] = thread
        return thread

    def wait(self, timeout: float | None) -> None:
        """Return when all changes are made, after `timeout` seconds at the latest (None: no limit)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in self._begun.values():
            if thread is not None:
                thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def result(self, unchanged: list[str]) -> AppliedConfig:
        """What has been done until now, besides nothing about the `unchanged` ones."""
        with self._lock:
            outcomes = dict(self._outcomes)

        def done(what: str) -> tuple[str, ...]:
            return tuple(sorted(name for name, outcome in outcomes.items() if outcome == (what, None)))

        return AppliedConfig(
            unchanged=tuple(sorted(unchanged)),
            started=done("started"),
            replaced=done("replaced"),
            removed=done("removed"),
            failed={name: failure for name, (_, failure) in sorted(outcomes.items()) if failure is not None},
            pending=tuple(sorted(name for name in self._begun if name not in outcomes)),
        )


logger = get_logger(__name__)


class ConfiguredServers:
    """Starts what a configuration names, each server on a thread of its own, and applies another one. Thread-safe.

    1. `load` and `apply` begin.
    2. `stop`, with which the manager ends everything, keeps what they have not begun yet from starting.
    3. `join` waits for their threads.
    """

    def __init__(
        self,
        registry: ServerRegistry,
        readiness: Readiness,
        factory: ClientFactory,
        adopt: Callable[[MCPConfig], None],
    ) -> None:
        """`adopt` is given the configuration that holds from now on, before anything is done about it."""
        self._registry = registry
        self._readiness = readiness
        self._factory = factory
        self._adopt = adopt
        self._lock = reentrant_lock()
        """Owns `_starters`."""
        self._starters: list[threading.Thread] = []
        """Threads of `load` and `apply`; some of them may have ended. Replaced as a whole."""
        self._applying = reentrant_lock()
        """Has one `apply` at a time begin its changes, and owns `_replacing`. Not held while they are made."""
        self._replacing: dict[str, threading.Thread] = {}
        """The thread that gives a server another configuration, or was the last to do so."""
        self._stops = 0
        """How often `stop` was called, under `_lock`: what was applied before starts nothing any more."""
        self._departing: set[MCPClient] = set()
        """Clients that are no servers of ours any more and finish their calls. The thread that removes one adds it, and
        takes it out; others copy the set."""

    def load(self, config: MCPConfig, timeout: float | None, *, keep_trying: bool) -> None:
        """See `MCPClientManager.load_from_config`."""
        # `disconnect_all` finds all of them from now on, whether their threads have come to run or not.
        entries, problems = config.get_servers(), config.problems
        self._registry.expect(config.get_entries())
        for name, problem in problems.items():
            if not is_disabled(config, name):
                self._refuse(name, problem)
        clients = {
            name: self._make_configured(name, entry, config)
            for name, entry in entries.items()
            if not entry.get("disabled") and name not in self._registry
        }
        threads: dict[str, EngineThread] = {}
        unstarted = []
        for name, client in clients.items():
            if client is None:
                continue
            # A log handler that never returns must not hold up `disconnect_all`, which waits for this thread.
            connect = functools.partial(self._registry.connect, name, client, keep_trying=keep_trying)
            thread = EngineThread(connect, f"mcp-{name}-start")
            try:
                thread.start()
            except RuntimeError:
                unstarted.append((name, client))
            else:
                threads[name] = thread
        self._note_starters(threads.values())
        for name, client in unstarted:
            # The system starts no more threads: this one connects the server, whose supervisor will most likely fail.
            self._registry.connect(name, client, keep_trying=keep_trying)
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in threads.values():
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        slow = [name for name, thread in threads.items() if thread.is_alive()]
        if slow and timeout:
            logger.warning("servers_still_starting", servers=slow, waited=timeout)

    def _make_configured(self, name: str, entry: Mapping[str, Any], config: MCPConfig) -> MCPClient | None:
        """Make a client; None if another thread starts the server, or none can be made, as its status says then."""
        try:
            return self._factory.make(name, entry, config.source_of(name))
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

    def _note_starters(self, threads: Iterable[threading.Thread]) -> None:
        with self._lock:
            self._starters = [*(thread for thread in self._starters if thread.is_alive()), *threads]

    def apply(self, config: MCPConfig, timeout: float | None) -> AppliedConfig:
        """See `MCPClientManager.apply`."""
        changes, stops = Changes(), self._stops
        with self._applying:
            unchanged = self._begin_changes(config, changes, stops)
        changes.wait(timeout)
        self._readiness.changed()
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
            if name not in self._replacing and self._factory.origin_of(client) == origins.get(name)
        ]
        # Any that cannot be made is found here.
        made = {name: self._factory.new_client(name, entry) for name, entry in entries.items() if name not in unchanged}
        self._adopt(config)
        self._registry.expect(config.get_entries())
        threads = []
        for name, successor in made.items():
            make = functools.partial(self._factory.make, name, entries[name], origins[name].source)
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
            if successor._engine.can_follow(client._engine):
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
        if self._registry.connect(name, client, keep_trying=True):
            return None
        return client.last_error or "it was disconnected meanwhile"

    def _reconfigure(self, name: str, client: MCPClient, successor: MCPClient, origin: Origin) -> str | None:
        if self._factory.origin_of(client) == origin:
            # An earlier change, which had not ended yet, has come to the same.
            return None
        error = self._factory.reconfigure(name, client, successor, origin)
        self._readiness.changed()
        return None if error is None else error.message

    def _change_place(self, name: str, client: MCPClient, make: Callable[[], MCPClient], stops: int) -> str | None:
        """The two cannot be one client: they have different clocks, or one of them is placed on a cluster."""
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
        origin = self._factory.origin_of(client)
        try:
            client.disconnect(drain=0.0 if origin is None else origin.server.drain_timeout)
        finally:
            self._departing.discard(client)
            self._readiness.changed()

    def stop(self) -> None:
        """What was applied until now starts no server any more. To be called before all servers are taken away."""
        with self._lock:
            self._stops += 1

    def end_departing(self) -> None:
        """Ask the servers to end that were taken away and finish their calls."""
        for departing in list(self._departing):
            # They have had their time.
            departing._engine.request_disconnect()

    def join(self) -> None:
        """Wait for the threads, after their servers were taken away."""
        for starter in self._starters:
            # They have nothing left to do. A finalizer may call this on one of them.
            if starter is not threading.current_thread():
                starter.join()
