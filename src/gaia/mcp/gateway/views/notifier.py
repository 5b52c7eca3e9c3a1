"""`Notifier`: tells clients of changes at servers, and watches resources for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from gaia.mcp.aio.calls import run
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.errors import CallTimeout, MCPError, Overloaded
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.views.upstream_servers import Kind, UpstreamServer, UpstreamServers
from gaia.mcp.supervision.events import ResourceUpdated, ServerLog
from gaia.runtime.log import get_logger
from gaia.runtime.loop_work import running_loop_work

logger = get_logger(__name__)

_TOGETHER_SECONDS = 0.02
"""How long changes of lists are collected before clients are told, because at the start every server has some."""

_DECISION_SECONDS = 4.0
"""How long a stateless server may take to accept a subscription: less than `subscriptions/listen` waits."""

MAX_WATCHED = 1_000

_MAX_WAITING = 256
"""Events of one server that wait until earlier events are told. Further events are dropped."""

Done = Callable[[MCPError | None], None]


class AudienceView(Protocol):
    """The part of a `View` that limits the changes a client hears of."""

    def sees(self, server: str) -> bool: ...

    def sees_resource(self, server: str, uri: str) -> bool: ...


class Audience(Protocol):
    """A client that hears of changes: a session, or one ``subscriptions/listen``."""

    @property
    def owner(self) -> Principal | None:
        """The client; None if clients have no names."""

    @property
    def view(self) -> AudienceView: ...

    def list_changed(self, kind: Kind) -> None: ...

    def resource_updated(self, uri: str) -> None:
        """A resource that is watched for this audience, or a part of such a resource, has changed."""

    def server_log(self, message: dict[str, Any]) -> None:
        """Send a log message that belongs to no request."""

    def dismiss(self) -> None:
        """End the client's streams, because the gateway stops soon or the client may no longer listen."""


class Notifier:
    """Belongs to the gateway's event loop."""

    def __init__(self, servers: UpstreamServers) -> None:
        self._servers = servers
        servers.on_changed = self._list_changed
        servers.on_event = self._happened
        self._audiences: dict[Audience, set[tuple[MCPClient, str]]] = {}
        self._watched: dict[tuple[MCPClient, str], _Watch] = {}
        self._changed_lists: dict[tuple[str, Kind], None] = {}
        self._fan_outs: dict[str, _FanOut] = {}
        """By server, so that an event with many audiences delays no other server's events. "" stands for lists."""

    def add(self, audience: Audience) -> None:
        self._audiences.setdefault(audience, set())

    def remove(self, audience: Audience) -> None:
        """Tell an audience nothing more. Resources without another audience are no longer watched."""
        for key in self._audiences.pop(audience, ()):
            self._watched[key].remove(audience)

    def watch(self, audience: Audience, client: MCPClient, uri: str, done: Done) -> None:
        """Tell an audience of changes of a resource in `client`'s process. `done` follows the server's decision."""
        key = (client, uri)
        keys = self._audiences[audience]
        if len(keys) >= MAX_WATCHED and key not in keys:
            done(Overloaded(f"no client can watch more than {MAX_WATCHED} resources"))
            return
        keys.add(key)
        watch = self._watched.get(key)
        if watch is None:
            watch = self._watched[key] = _Watch(client, uri, lambda: self._watched.pop(key, None))

        def agreed(error: MCPError | None) -> None:
            if error is not None:
                keys.discard(key)
            done(error)

        watch.add(audience, agreed)

    def unwatch(self, audience: Audience, uri: str) -> None:
        keys = self._audiences[audience]
        for key in [key for key in keys if key[1] == uri]:
            keys.discard(key)
            self._watched[key].remove(audience)

    def dismiss(self, which: Callable[[Audience], bool] = lambda _: True) -> None:
        for audience in list(self._audiences):
            if which(audience):
                audience.dismiss()

    def stop(self) -> None:
        for watch in list(self._watched.values()):
            watch.stop()
        self._watched.clear()
        self._audiences.clear()
        self._fan_outs.clear()

    # Events.

    def _list_changed(self, server: str, kind: Kind) -> None:
        if not self._changed_lists:
            asyncio.get_running_loop().call_later(
                _TOGETHER_SECONDS, lambda: self._tell("", "lists", self._tell_lists())
            )
        self._changed_lists[server, kind] = None

    def _tell_lists(self) -> Iterator[None]:
        changed, self._changed_lists = self._changed_lists, {}
        for audience in list(self._audiences):
            for kind in dict.fromkeys(kind for server, kind in changed if audience.view.sees(server)):
                audience.list_changed(kind)
            yield

    def _happened(self, event: ResourceUpdated | ServerLog, process: MCPClient | None) -> None:
        """Tell audiences of an event of a `process`; None stands for the shared process."""
        server = self._servers.get(event.server)
        if server is None:
            return
        if isinstance(event, ResourceUpdated):
            client = process or server.client
            self._tell(event.server, (client, event.uri), self._tell_update(client, event))
        elif not server.speaks_stateless:
            self._tell(event.server, object(), self._tell_log(server, event, process))

    def _tell_log(self, server: UpstreamServer, event: ServerLog, process: MCPClient | None) -> Iterator[None]:
        """Tell audiences that see the server a log message. An unshared process concerns only its own users."""
        message = {"level": event.level, "data": event.data, "logger": event.logger or event.server}
        for audience in list(self._audiences):
            identity = "" if audience.owner is None else audience.owner.name
            is_user = process is None or server.is_process_of(process, audience, identity)
            if is_user and audience.view.sees(server.name):
                audience.server_log(message)
            yield

    def _tell_update(self, client: MCPClient, event: ResourceUpdated) -> Iterator[None]:
        for (watched_by, uri), watch in list(self._watched.items()):
            # The event's resource may be a part of the watched one.
            if watched_by is client and event.uri.startswith(uri):
                for audience in list(watch.audiences):
                    if audience.view.sees_resource(event.server, event.uri):
                        audience.resource_updated(event.uri)
                    yield
            yield

    def _tell(self, server: str, key: Hashable, steps: Iterator[None]) -> None:
        fan_out = self._fan_outs.get(server)
        if fan_out is None:
            fan_out = self._fan_outs[server] = _FanOut(server)
        fan_out.add(key, steps)


class _FanOut:
    """Tells many audiences of one server's events, in slices of the loop. Events that arrive too fast are dropped."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._waiting: dict[Hashable, Iterator[None]] = {}
        """Events that are not begun, each as an iterator with one step per audience."""
        self._is_running = False
        self._has_dropped = False

    def add(self, key: Hashable, steps: Iterator[None]) -> None:
        """Queue `steps`, unless the queue has equal steps under the same key."""
        if len(self._waiting) >= _MAX_WAITING and key not in self._waiting:
            if not self._has_dropped:
                self._has_dropped = True
                logger.warning("gateway_events_dropped", server=self._server)
            return
        self._waiting.setdefault(key, steps)
        if not self._is_running:
            self._is_running = True
            running_loop_work().run_in_slices(self._steps())

    def _steps(self) -> Iterator[None]:
        try:
            while self._waiting:
                yield from self._waiting.pop(next(iter(self._waiting)))
            self._has_dropped = False
        finally:
            self._is_running = False


@dataclass(eq=False)
class _Watch:
    """One resource of one server, for all audiences that watch it."""

    client: MCPClient
    uri: str
    forget: Callable[[], object]
    audiences: dict[Audience, None] = field(default_factory=dict)
    _is_watched: bool = False
    """Whether the server has a subscription. The client renews it after each restart."""
    _waiting: list[Done] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    def add(self, audience: Audience, done: Done) -> None:
        self.audiences[audience] = None
        if self._is_watched and self._task is None:
            done(None)
        else:
            self._waiting.append(done)
            self._begin()

    def remove(self, audience: Audience) -> None:
        self.audiences.pop(audience, None)
        self._begin()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._is_watched != bool(self.audiences):
            wanted, error = bool(self.audiences), None
            try:
                await (self._subscribe() if wanted else self._unsubscribe())
            except MCPError as problem:
                error = problem
            if wanted and error is not None:
                self.audiences.clear()
            else:
                self._is_watched = wanted
            if wanted:
                self._answer(error)
            # Audiences that were added while the server was asked to unwatch have not been answered yet. The task is
            # cleared before the last answers, because an answer may bring in the client's next request (HTTP
            # pipelining).
        # Clear the task before the last answers: an answer may bring in the client's next request (HTTP pipelining).
        self._task = None
        self._answer(None)
        self._forget_if_unused()

    def _forget_if_unused(self) -> None:
        if self._task is None and not self.audiences:
            self.forget()

    async def _unsubscribe(self) -> None:
        await run(self.client._engine.requests, self.client._engine.features.unsubscribe_resource(self.uri))

    async def _subscribe(self) -> None:
        """Raises `MCPError` if the server refuses."""
        engine, loop = self.client._engine, asyncio.get_running_loop()
        decided: asyncio.Future[MCPError | None] = loop.create_future()

        def told(error: MCPError | None) -> None:
            # The loop is closed if the gateway has stopped in the meantime.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: None if decided.done() else decided.set_result(error))

        forget = engine.subscriptions.when_decided(self.uri, told)
        try:
            await run(engine.requests, engine.features.subscribe_resource(self.uri))
            if not engine.requests.is_stateless:
                return
            try:
                async with asyncio.timeout(_DECISION_SECONDS):
                    error = await decided
            except TimeoutError:
                text = f"the server has not agreed within {_DECISION_SECONDS:g} s to tell changes of the resource"
                error = CallTimeout(text)
            if error is not None:
                # Otherwise each later request would include this resource, and fail for the other resources too.
                await self._unsubscribe()
                raise error
        finally:
            forget()

    def _answer(self, error: MCPError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(error)
