"""What all parts of one server's supervision share: its settings, its client, its clock and its observer."""

from __future__ import annotations

import random
from typing import Any, Literal, Protocol

import msgspec

from gaia.mcp.errors import MCPError
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.eras import ClientIdentity, ServerProfile
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.rpc.recorder import Recorders
from gaia.mcp.supervision.events import Event
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.mcp.transports.base import ChannelTransport
from gaia.runtime.clock import Clock, require_seconds
from gaia.telemetry.spans import Executor

KnownServer = tuple[ServerProfile | None, list[Any]]
"""What a server said of itself at an earlier start: its profile, if that is known, and the definitions of its tools."""


class Listing(msgspec.Struct, frozen=True):
    """One request for the tools, all pages of it."""

    number: int
    """Later requests have higher numbers: what an older one found is not used any more once a later one has ended."""
    deadline: float
    """A reading of the clock: when whatever has to be done about it must be over."""


RecyclingReason = Literal["max_lifetime", "max_calls", "max_memory", "requested", "reconfigured"]
"""Why a server that works is replaced: it has reached a limit, or the application wants a fresh process, perhaps with
another configuration."""

_MIN_MEMORY = 16 * 1024**2
"""Less than this is a mistake in the unit."""


class RecyclingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of a server may use up before a fresh one takes its place; None is without a limit.

    Raises ValueError for unusable figures.
    """

    max_lifetime: float | None = None
    """Seconds since it became ready."""
    max_calls: int | None = None
    """Calls and other requests of the application."""
    max_memory: int | None = None
    """Bytes of main memory, of the server and of all processes that it has started."""

    def __post_init__(self) -> None:
        if self.max_lifetime is not None:
            require_seconds("max_lifetime", self.max_lifetime)
        for name in ("max_calls", "max_memory"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name}: must be a whole number from 1 upwards, got {value!r}")
        if self.max_memory is not None and self.max_memory < _MIN_MEMORY:
            raise ValueError(f"max_memory: must be at least 16M, got {self.max_memory}")


class SupervisionHooks(Protocol):
    """What the supervisor tells its client, on its own thread. Implementations are ours: quick, and never raise."""

    def listing_begins(self) -> Listing:
        """The server is about to be asked for its tools."""

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:
        """None: the server is ready and could not list its tools. It has none then."""

    def tools_remembered(self, definitions: list[Any]) -> None:
        """Until the server is asked, its tools are what `last_known` has said."""

    @property
    def subscriptions(self) -> Subscriptions:
        """The changes and log messages that the client wants from the server, whichever connection it has."""

    def refusal_of(self, tool: str) -> MCPError | None:
        """Asked for each tool call that waited, before it is sent: the error that ends it; None to send it.

        `tool` is the server's own name of the tool.
        """

    def safe_to_repeat(self, tool: str) -> bool:
        """Whether the server says now that a second call of the tool does no harm."""

    def happened(self, event: Event) -> None: ...

    def adopted(self, context: SupervisionContext) -> None:
        """What `Supervisor.reconfigure` was given is in effect from now on: `context`, which the client has made."""

    def last_known(self) -> KnownServer | None:
        """What the server said at an earlier start; None if that is not known, or must not be used."""


class SupervisionContext(msgspec.Struct, kw_only=True, eq=False):
    """Made by a client, for all supervisors that its server has one after the other. Durations in seconds.

    Never changed, but for `adopt`.
    """

    name: str
    """The server's name, for threads, log events and messages."""
    transport: ChannelTransport
    identity: ClientIdentity
    negotiation: Negotiation
    """Remembers what it found; used by the supervisor's thread alone."""
    start_timeout: float = 60.0
    """How long the server may take to get ready, each time that it is started."""
    policy: RestartPolicy
    health_interval: float
    health_timeout: float
    max_pending: int
    recycling: RecyclingLimits = RecyclingLimits()
    drain_timeout: float = 30.0
    """How long a process that was replaced may take to finish its calls."""
    standby: bool = False
    """Whether a second process waits, started and greeted, while the server is ready."""
    lazy: bool = False
    """Whether the server is started only when it is used, if it is known what it offers (`hooks.last_known`)."""
    idle_stop: float | None = None
    """How long the server may be without a call before it is stopped, until the next call; None for ever."""
    hooks: SupervisionHooks
    server_requests: ServerRequests
    clock: Clock
    rng: random.Random
    """For jitter; used by the supervisor's thread alone."""
    observer: Observer
    """Told of all requests, and of the server's starts, losses and stops."""
    recorders: Recorders = msgspec.field(default_factory=Recorders)
    """Where the server is recorded, if it is."""
    executor: Executor = lambda task: task()
    """Runs the application's span processors, for which neither the supervisor nor a reader may wait."""

    @property
    def timeout(self) -> float:
        """For requests without one of their own."""
        return self.transport.timeout

    def adopt(self, other: SupervisionContext) -> None:
        """Become equal to `other`, another configuration of the same server. For the supervisor's thread.

        Other threads read one value at a time, each of which may be of either configuration.
        """
        for field in self.__struct_fields__:
            if field != "observer":
                setattr(self, field, getattr(other, field))
        # All that has been observed so far belongs to this one.
        self.observer.adopt(other.observer)
