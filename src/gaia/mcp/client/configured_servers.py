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

logger = get_logger(__name__)


class AppliedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `MCPClientManager.apply`: sorted server names, each in one field."""

    unchanged: tuple[str, ...] = ()
    """Their entries mean the same as before."""
    started: tuple[str, ...] = ()
    """They run now and did not before."""
    replaced: tuple[str, ...] = ()
    """Their configuration changed, and a process that was started with it has taken over without a gap."""
    removed: tuple[str, ...] = ()
    """They are missing or disabled in the configuration. They have finished their calls and ended."""
    failed: Mapping[str, str] = {}
    """Servers that could not be started, with the reason. A replaced one goes on; a new one is tried again."""
    pending: tuple[str, ...] = ()
    """Their change was not finished when the time was up, and goes on."""


class ServerChanges:
    """Starts and changes several servers at once, each on its own thread, and collects the outcomes."""

    def __init__(self) -> None:
        self._outcomes: dict[str, tuple[str, str | None]] = {}
        """By server: the field of `AppliedConfig`, and the reason of a failure. Each thread sets its own item."""
        self._begun: dict[str, threading.Thread | None] = {}
        self._without_thread: list[Callable[[], None]] = []

    @property
    def threads(self) -> list[threading.Thread]:
        return [thread for thread in self._begun.values() if thread is not None]

    def begin(
        self, name: str, what: str, change: Callable[[], str | None], *, after: threading.Thread | None = None
    ) -> threading.Thread | None:
        """Run `change`, which returns a failure reason or None, on a new thread, after the thread `after`.

        `what` is a field of `AppliedConfig`. Returns the thread, or None if the system cannot start one: then `wait`
        makes the change.
        """

        def run() -> None:
            failure: str | None = "it was interrupted"
            try:
                if after is not None:
                    after.join()
                failure = change()
            finally:
                self._outcomes[name] = (what, failure)

        # `disconnect_all` waits for this thread, so a log handler that never returns must not block it.
        thread = EngineThread(run, f"mcp-{name}-apply")
        self._begun[name] = None
        try:
            thread.start()
        except RuntimeError:
            self._without_thread.append(run)
            return None
        self._begun[name] = thread
        return thread

    def wait(self, timeout: float | None) -> None:
        while self._without_thread:
            self._without_thread.pop(0)()
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in self.threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def result(self, unchanged: Iterable[str] = ()) -> AppliedConfig:
        outcomes = self._outcomes.copy()

        def done(what: str) -> tuple[str, ...]:
            return tuple(sorted(name for name, outcome in outcomes.items() if outcome == (what, None)))

        return AppliedConfig(
            unchanged=tuple(sorted(unchanged)),
            started=done("started"),
            replaced=done("replaced"),
            removed=done("removed"),
            failed={name: failure for name, (_, failure) in sorted(outcomes.items()) if failure is not None},
            pending=tuple(sorted(self._begun.keys() - outcomes.keys())),
        )


class ConfiguredServers:
    """Starts the servers of a configuration, each on its own thread, and applies another configuration. Thread-safe."""

    def __init__(
        self, registry: ServerRegistry, readiness: Readiness, factory: ClientFactory, adopt: Callable[[MCPConfig], None]
    ) -> None:
        self._registry = registry
        self._readiness = readiness
        self._factory = factory
        self._adopt = adopt
        self._lock = reentrant_lock()
        self._starters: list[threading.Thread] = []
        """Threads of `load` and `apply`; some may have ended. Replaced as a whole."""
        self._applying = reentrant_lock()
        """Held while an `apply` begins its changes, but not until they are finished. Guards `_replacing`."""
        self._replacing: dict[str, threading.Thread] = {}
        self._stops = 0
        """How often `stop` was called. An `apply` that began before the last `stop` starts no more servers."""

    def load(self, config: MCPConfig, timeout: float | None, *, keep_trying: bool) -> None:
        # From here on, `disconnect_all` finds all of these servers, even before their threads run.
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
        starts = ServerChanges()
        for name, client in clients.items():
            if client is not None:
                start = functools.partial(self._start, name, client, keep_trying=keep_trying)
                starts.begin(name, "started", start)
        self._note_starters(starts.threads)
        starts.wait(timeout)
        pending = starts.result().pending
        slow = [name for name in clients if name in pending]
        if slow and timeout:
            logger.warning("servers_still_starting", servers=slow, waited=timeout)

    def _make_configured(self, name: str, entry: Mapping[str, Any], config: MCPConfig) -> MCPClient | None:
        """Make a client; None if another thread starts the server, or if the entry is refused."""
        try:
            return self._factory.make(name, entry, config.source_of(name))
        except NameTaken:
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
        changes, stops = ServerChanges(), self._stops
        with self._applying:
            unchanged = self._begin_changes(config, changes, stops)
        changes.wait(timeout)
        self._readiness.changed()
        result = changes.result(unchanged)
        shown = {name: value for name, value in msgspec.structs.asdict(result).items() if value}
        logger.info("config_applied", **shown)
        return result

    def _begin_changes(self, config: MCPConfig, changes: ServerChanges, stops: int) -> list[str]:
        """Begin to make `changes`; returns the unchanged servers. Raises ConfigError before anything is changed."""
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
        # A client that cannot be made raises here, before anything is changed.
        made = {name: self._factory.new_client(name, entry) for name, entry in entries.items() if name not in unchanged}
        self._adopt(config)
        self._registry.expect(config.get_entries())
        for name, successor in made.items():
            make = functools.partial(self._factory.make, name, entries[name], origins[name].source)
            client = clients.get(name)
            if client is None:
                try:
                    # On this thread, so that `disconnect_all` finds it.
                    started = make()
                except NameTaken:
                    # The application added the server, or began to start it, meanwhile.
                    continue
                start = functools.partial(self._start, name, started, stops)
                changes.begin(name, "started", start)
                continue
            if successor._engine.can_follow(client._engine):
                replace = functools.partial(self._reconfigure, client, successor, origins[name])
            else:
                replace = functools.partial(self._change_place, name, client, make, stops)
            thread = changes.begin(name, "replaced", replace, after=self._replacing.get(name))
            if thread is not None:
                self._replacing[name] = thread
        for name, client in clients.items():
            if name not in entries:
                # On this thread, so that the next `apply` does not find it.
                self._take_away(name, client)
                changes.begin(name, "removed", functools.partial(self._drain, client))
        for name in self._registry.failed_names() - entries.keys():
            self._registry.forget_failure(name)
        self._note_starters(changes.threads)
        return unchanged

    def _start(self, name: str, client: MCPClient, stops: int | None = None, *, keep_trying: bool = True) -> str | None:
        if stops not in (None, self._stops):
            # `disconnect_all` may have come before the name was reserved.
            self._registry.drop(name, client)
        if self._registry.connect(name, client, keep_trying=keep_trying):
            return None
        return client.last_error or "it was disconnected meanwhile"

    def _reconfigure(self, client: MCPClient, successor: MCPClient, origin: Origin) -> str | None:
        if self._factory.origin_of(client) == origin:
            # An earlier change, which had not ended before, led to the same configuration.
            return None
        error = self._factory.reconfigure(client, successor, origin)
        self._readiness.changed()
        return None if error is None else error.message

    def _change_place(self, name: str, client: MCPClient, make: Callable[[], MCPClient], stops: int) -> str | None:
        """Replace the client with a gap, because the two have different clocks or one is shared."""
        self._take_away(name, client)
        self._drain(client)
        return self._start(name, make(), stops)

    def remove(self, name: str, client: MCPClient) -> None:
        """Remove a server from the manager, and stop it."""
        self._take_away(name, client)
        self._depart(client, client.disconnect)

    def _take_away(self, name: str, client: MCPClient) -> None:
        """Remove a server from the manager. The caller must call `_drain` or `_depart` next."""
        self._registry.departing.add(client)
        self._registry.drop(name, client)
        self._registry.forget_failure(name)

    def _drain(self, client: MCPClient) -> None:
        origin = self._factory.origin_of(client)
        drain = 0.0 if origin is None else origin.server.drain_timeout
        self._depart(client, lambda: client.disconnect(drain=drain))

    def _depart(self, client: MCPClient, disconnect: Callable[[], None]) -> None:
        try:
            disconnect()
        finally:
            self._registry.departing.discard(client)
            self._readiness.changed()

    def stop(self) -> None:
        """Prevent starts by earlier calls of `apply`. Called before all servers are taken away."""
        with self._lock:
            self._stops += 1

    def join(self) -> None:
        for starter in self._starters:
            # These threads have nothing left to do. A finalizer may call this method on one of them.
            if starter is not threading.current_thread():
                starter.join()
