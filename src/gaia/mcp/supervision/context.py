"""The settings and services that all parts of one server's supervision share: transport, policy, clock, observer."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from gaia.mcp.errors import MCPError
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.eras import ClientIdentity, ServerProfile
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.rpc.connection import Recorders
from gaia.mcp.supervision.events import Event
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.mcp.transports.base import ChannelTransport
from gaia.runtime.clock import Clock, require_seconds
from gaia.telemetry.spans import Executor

KnownServer = tuple[ServerProfile | None, list[Any]]
"""From an earlier start of the server: its profile, if known, and the definitions of its tools."""


class Listing(msgspec.Struct, frozen=True):
    number: int
    """Later listings have higher numbers. The result of a listing is ignored once a later one has ended."""
    deadline: float
    """A reading of the clock, by which all work on the listing must be done."""


RecyclingReason = Literal["max_lifetime", "max_calls", "max_memory", "requested", "reconfigured"]
"""Why a working server is replaced: it has reached a limit, or the application has asked for it."""

_MIN_MEMORY = 16 * 1024**2
"""Bytes. A smaller limit is a mistake in the unit."""


class RecyclingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits at which a new process replaces one of a server; None is no limit.

    Raises ValueError for invalid values.
    """

    max_lifetime: float | None = None
    """Seconds since the process became ready."""
    max_calls: int | None = None
    """Tool calls and other requests of the application."""
    max_memory: int | None = None
    """Bytes of main memory of the server and all its child processes."""

    def __post_init__(self) -> None:
        if self.max_lifetime is not None:
            require_seconds("max_lifetime", self.max_lifetime)
        for name in ("max_calls", "max_memory"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name}: must be a whole number from 1 upwards, got {value!r}")
        if self.max_memory is not None and self.max_memory < _MIN_MEMORY:
            raise ValueError(f"max_memory: must be at least 16M, got {self.max_memory}")


MAX_REPLICAS = 1024


def check_replicas(replicas: int, *, stateless: bool) -> None:
    """Raise ValueError for a number of replicas that a server cannot have."""
    if type(replicas) is not int or not 1 <= replicas <= MAX_REPLICAS:
        raise ValueError(f"replicas: must be a whole number from 1 to {MAX_REPLICAS}, got {replicas!r}")
    if replicas > 1 and not stateless:
        raise ValueError(
            'replicas: more than one needs "stateless": true, which says that the server remembers nothing from one '
            "call to the next"
        )


class SupervisionHooks(Protocol):
    """The supervisor's reports to its client, on the supervisor's thread. Implementations are quick and never raise."""

    def listing_begins(self) -> Listing:
        """The server is about to be asked for its tools."""

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:
        """The server has listed its tools. None: it is ready but could not list them, so it has none."""

    def tools_remembered(self, definitions: list[Any]) -> None:
        """Use the tools of `last_known` until the server is asked."""

    @property
    def subscriptions(self) -> Subscriptions:
        """The notifications and log messages that the client wants, on any connection."""

    def refusal_of(self, tool: str) -> MCPError | None:
        """The error that ends a waiting call of `tool` (the server's own name); None to send the call."""

    def safe_to_repeat(self, tool: str) -> bool:
        """Whether the server now says that a second call of the tool is harmless."""

    def happened(self, event: Event) -> None: ...

    def adopted(self, context: SupervisionContext) -> None:
        """`context`, from the client's call of `Supervisor.reconfigure_now`, is in effect."""

    def last_known(self) -> KnownServer | None:
        """Facts from an earlier start of the server; None if there are none or they must not be used."""


class SupervisionContext(msgspec.Struct, kw_only=True, eq=False):
    """Settings of one server, for each of its supervisors in turn, in seconds. Only `adopt` changes them."""

    name: str
    transport: ChannelTransport
    identity: ClientIdentity
    negotiation: Negotiation
    """Remembers the era of the server. Only the supervisor's thread uses it."""
    start_timeout: float = 60.0
    policy: RestartPolicy
    health_interval: float
    health_timeout: float
    max_pending: int
    recycling: RecyclingLimits = RecyclingLimits()
    drain_timeout: float = 30.0
    """How long a replaced process may take to finish its calls."""
    standby: bool = False
    """Whether a second process is started and greeted while the server is ready."""
    lazy: bool = False
    """Whether the server is started only when it is used, provided its tools are known (`hooks.last_known`)."""
    idle_stop: float | None = None
    """How long the server may be without a call before it is stopped until the next call; None: for ever."""
    replicas: int = 1
    """How many processes of the server share its calls."""
    next_id: Callable[[], int] = msgspec.field(default_factory=lambda: itertools.count(1).__next__)
    """Returns the id of the next request. Supervisors of which one takes over the calls of another share it."""
    hooks: SupervisionHooks
    server_requests: ServerRequests
    clock: Clock
    rng: random.Random
    """For jitter. Only the supervisor's thread uses it."""
    observer: Observer
    """Records all requests, and the server's starts, losses and stops."""
    recorders: Recorders = msgspec.field(default_factory=Recorders)
    """Recorders for the starts of the server, if recording is on."""
    executor: Executor = lambda task: task()
    """Runs the application's span processors, because neither the supervisor nor a reader may wait for them."""

    @property
    def timeout(self) -> float:
        """Seconds, for requests without a timeout of their own."""
        return self.transport.timeout

    def adopt(self, other: SupervisionContext) -> None:
        """Become equal to `other`, another configuration of the same server. For the supervisor's thread.

        A thread that reads several values meanwhile may get some of the old and some of the new configuration.
        """
        for field in self.__struct_fields__:
            if field not in ("observer", "next_id"):
                setattr(self, field, getattr(other, field))
        # The observer stays, because it has the figures of the past.
        self.observer.adopt(other.observer)
