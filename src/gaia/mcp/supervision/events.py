"""Events and their listeners. A listener gets immutable events in order, one at a time, on a callback thread."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from gaia.mcp.protocol.messages import value_size
from gaia.mcp.supervision.callbacks import Lane, require_runs_on_thread
from gaia.runtime.locks import reentrant_lock

__all__ = [
    "ElicitationCompleted",
    "Event",
    "EventsDropped",
    "GaveUp",
    "Lanes",
    "Listener",
    "Listeners",
    "PromptsChanged",
    "ReplicaChanged",
    "ResourceUpdated",
    "ResourcesChanged",
    "Restarted",
    "ServerLog",
    "ServerState",
    "StateChanged",
    "ToolDefinitionsChanged",
    "ToolsChanged",
]


class ServerState(enum.Enum):
    """The state of a supervised server. A single connection is only created, ready or closed."""

    CREATED = "created"
    """Never started."""

    STARTING = "starting"
    """It was not ready yet, and a start is under way. Calls wait."""

    READY = "ready"
    """It answers calls."""

    RESTARTING = "restarting"
    """It ended, and is being started again, now or after the backoff. Calls wait."""

    EXITED = "exited"
    """It does not run, and the next call starts it: it ended by itself, cleanly, while no call waited; or it was
    stopped because it was idle; or it is lazy and was not used yet."""

    AUTHORIZING = "authorizing"
    """It requires a login, and a person is being asked to log in. Calls wait."""

    NEEDS_AUTHORIZATION = "needs_authorization"
    """It requires a login. Calls are refused until there is one."""

    FAILED = "failed"
    """It is not started again for now, or not at all. Calls are refused with the reason."""

    CLOSED = "closed"
    """Disconnected by the application."""


class Event(msgspec.Struct, frozen=True):
    """A change or a message of one server. Immutable."""

    server: str
    """The server's name."""


class StateChanged(Event, frozen=True):
    """The state of the server has changed."""

    old: ServerState
    """The state before."""
    new: ServerState
    """The state now."""
    generation: int
    """How many times the server had been started."""
    reason: str | None = None
    """Why, in words; None for a start and other changes without a reason."""


class Restarted(Event, frozen=True):
    """The server is ready again, after it had ended or was replaced."""

    generation: int
    """How many times the server has been started."""
    downtime: float
    """Seconds from the moment when the client noticed its end; 0 if a new process replaced it while it was ready."""
    reason: str | None = None
    """How the server ended, or ``recycled: max_lifetime`` and the like if it was replaced."""


class GaveUp(Event, frozen=True):
    """Restarts are suspended; calls are refused."""

    reason: str
    """Why, in words."""
    retry_in: float | None
    """Seconds until the next attempt; None if only the application can start the server again."""


class ToolsChanged(Event, frozen=True):
    """The tools on offer (after filtering) have changed. Names are the server's own."""

    added: tuple[str, ...] = ()
    """Names of new tools."""
    removed: tuple[str, ...] = ()
    """Names of tools that are gone."""
    changed: tuple[str, ...] = ()
    """Names of tools with another definition."""


class ToolDefinitionsChanged(Event, frozen=True):
    """The server's tools or prompts differ from the approved ones (see the configuration's ``pinTools``).

    They are compared with the approved definitions, not with the last listing. The event comes again only when the
    difference changes. Names are the server's own.
    """

    added: tuple[str, ...] = ()
    """Names that did not exist when the definitions were approved."""
    removed: tuple[str, ...] = ()
    """Names that were approved and are gone."""
    changed: tuple[str, ...] = ()
    """Names whose definition differs from the approved one."""
    blocked: bool = False
    """Whether added and changed ones are withheld until they are approved."""
    kind: Literal["tools", "prompts", "instructions"] = "tools"
    """The kind of the names; the server's instructions have the name ``instructions``."""


class ReplicaChanged(Event, frozen=True):
    """One of several replicas of the server has another state; the state of the server may be unchanged."""

    replica: int
    """Its number, as in `ServerStatus.replicas`."""
    old: ServerState
    """The state before."""
    new: ServerState
    """The state now; closed if it was removed."""
    node: str | None = None
    """The host name of its present or last node."""
    reason: str | None = None
    """Why, in words."""


class ServerLog(Event, frozen=True):
    """A log message of the server (``notifications/message``); `MCPClient.set_logging_level` asks for them."""

    level: str
    """One of the words of RFC 5424 that MCP uses: debug, info, notice, warning, error, critical, alert, emergency."""
    logger: str | None
    """The part of the server that wrote it, if the server says so."""
    data: Any
    """The message: a text or another JSON value."""


class ElicitationCompleted(Event, frozen=True):
    """The server reports that a person has finished at a URL; see `ElicitationRequest.elicitation_id`."""

    elicitation_id: str
    """The id of the elicitation request."""


class ResourceUpdated(Event, frozen=True):
    """A subscribed resource, or a part of it, has changed."""

    uri: str
    """The URI of the resource."""


class ResourcesChanged(Event, frozen=True):
    """The server's list of resources has changed; `list_resources` returns it."""


class PromptsChanged(Event, frozen=True):
    """The server's list of prompts has changed; `list_prompts` returns it."""


class EventsDropped(Event, frozen=True):
    """The listener was too slow for this server: the oldest of its waiting events were dropped.

    Only the listener that has missed events gets this. It can read the present state, such as `MCPClient.status`.
    """

    count: int
    """How many events were dropped."""


Listener = Callable[[Event], None]


class Lanes(Protocol):
    """Where listeners run: on callback threads, or in the task that asks an event loop for the next event."""

    def lane(self, on_dropped: Callable[[str, int], object]) -> Lane:
        """A lane for one listener. The lane reports dropped tasks with ``on_dropped(server, count)``."""


class Listeners:
    """Gives each listener its events one at a time, the events of one server in order. Thread-safe.

    The events that wait for a listener are limited for each server separately.
    """

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        """For writing `_posts`, which is replaced as a whole. Reentrant, because a signal handler may subscribe too."""
        self._posts: tuple[Callable[[Event, int], None], ...] = ()
        self._ends: tuple[Callable[[], None], ...] = ()
        """For the listeners with `on_end`. Owned and replaced like `_posts`."""

    def subscribe(
        self, listener: Listener, lanes: Lanes, on_end: Callable[[], object] | None = None
    ) -> Callable[[], None]:
        """Give all events from now on to `listener`, on a lane of `lanes`; `on_end` runs there at each `end`.

        Returns a function that ends the subscription, even for events already posted. A listener may subscribe more
        than once. Raises ValueError for a coroutine function.
        """
        require_runs_on_thread("listener", listener)
        ended = False

        def deliver(event: Event) -> None:
            # Checked here, because events may wait in the lane for long.
            if not ended:
                listener(event)

        lane = lanes.lane(on_dropped=lambda server, count: deliver(EventsDropped(server, count)))

        def post(event: Event, size: int) -> None:
            if not ended:
                lane.post(lambda: deliver(event), event.server, size)

        def end() -> None:
            assert on_end is not None, "others are not told"
            lane.post(on_end)

        def unsubscribe() -> None:
            nonlocal ended
            ended = True
            with self._lock:
                self._posts = tuple(one for one in self._posts if one is not post)
                self._ends = tuple(one for one in self._ends if one is not end)

        with self._lock:
            self._posts = (*self._posts, post)
            if on_end is not None:
                self._ends = (*self._ends, end)
        return unsubscribe

    def end(self) -> None:
        """The owner was disconnected: no event follows, unless it is connected again."""
        for end in self._ends:
            end()

    def publish(self, event: Event) -> None:
        if posts := self._posts:
            size = value_size(event)
            for post in posts:
                post(event, size)
