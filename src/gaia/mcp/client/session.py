"""The sessions of a client: `SupervisedSession`, and `PinnedSession` for one process of its server."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from gaia.mcp.client.client_options import ClientSetup, common_fields
from gaia.mcp.client.direct_session import DirectSession
from gaia.mcp.errors import ConfigError, MCPError, NotConnected, NotOffered, SessionLost
from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.requests.caller import Caller
from gaia.mcp.requests.exchange import RequestSession
from gaia.mcp.supervision.call_queue import session_lost
from gaia.mcp.supervision.context import Listing, SupervisionContext, SupervisionHooks, check_replicas
from gaia.mcp.supervision.events import Event, ServerState
from gaia.mcp.supervision.pin import Pin
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.pool import Pool
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.mcp.supervision.supervisor import Supervisor
from gaia.mcp.transports.base import ChannelTransport, PlacementStatus
from gaia.runtime.clock import Clock, require_seconds
from gaia.runtime.locks import reentrant_lock

_CONNECTED = {ServerState.READY, ServerState.RESTARTING, ServerState.EXITED, ServerState.AUTHORIZING}


SupervisorKind: TypeAlias = type[Supervisor] | type[Pool]


class _SuccessorHooks:
    """The hooks of a supervisor that another one is to follow. `client` are the client's.

    Until it takes over, nothing that it reports is about the client's server.
    """

    def __init__(self, client: SupervisionHooks) -> None:
        self.client = client
        self._has_taken_over = False
        self._listed: list[Any] | None = None
        self.refusal_of, self.safe_to_repeat = client.refusal_of, client.safe_to_repeat
        self.listing_begins, self.last_known, self.adopted = client.listing_begins, client.last_known, client.adopted

    def take_over(self, context: SupervisionContext) -> None:
        self.client.adopted(context)
        if self._listed is not None:
            self.client.tools_listed(self._listed, self.client.listing_begins())
        self._has_taken_over = True

    @property
    def subscriptions(self) -> Subscriptions:
        return self.client.subscriptions

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:
        self._listed = definitions
        if self._has_taken_over:
            self.client.tools_listed(definitions, listing)

    def tools_remembered(self, definitions: list[Any]) -> None:
        if self._has_taken_over:
            self.client.tools_remembered(definitions)

    def happened(self, event: Event) -> None:
        if self._has_taken_over:
            self.client.happened(event)


class SupervisedSession(Caller[Supervisor | Pool]):
    """A session over a supervisor. Each `connect` after a `disconnect` starts a new supervisor."""

    waits_in_caller = False

    def __init__(self, context: SupervisionContext, clock: Clock, kind: SupervisorKind) -> None:
        # A supervisor that is not started refuses each call with the reason.
        super().__init__(kind(context), clock, context.timeout)
        self._name = context.name
        self._context = context
        self._kind = kind
        self._lifecycle = reentrant_lock()
        """Held while a thread connects or disconnects, never by calls.

        Guards the attributes below, and `supervisor`.
        """
        self._changing_in: int | None = None
        self._cut_short = False
        """Whether a signal handler or a finalizer called `disconnect` inside `connect`, in the same thread."""
        self._successor: Supervisor | Pool | None = None
        """A supervisor that is started to take over from `supervisor`."""
        self._disconnects: set[tuple[int, object]] = set()
        """The calls of `disconnect` under way, each with its process id. Each call adds and removes itself."""

    @property
    def profile(self) -> ServerProfile | None:
        return self.supervisor.condition.profile

    @property
    def state(self) -> ServerState:
        return self.supervisor.state

    @property
    def last_error(self) -> str | None:
        return self.supervisor.condition.last_error

    @property
    def keeps_trying(self) -> bool:
        supervisor = self.supervisor
        return supervisor.condition.keep_trying and supervisor.state is not ServerState.CLOSED

    def connect(self, *, keep_trying: bool = False) -> bool:
        """True when the server is ready. Raises RuntimeError if this thread is already connecting or disconnecting."""
        if self._changing_in == threading.get_ident():
            raise RuntimeError(
                f"connect() to server {self._name!r} was called by a signal handler or a finalizer that interrupted "
                "connect() or disconnect() of the same client"
            )
        with self._lifecycle, self._change():
            self._cut_short = False
            supervisor = self.supervisor
            if supervisor.state in _CONNECTED:
                # During a login the server may never have been ready: it is only tried in the background.
                return supervisor.state is not ServerState.AUTHORIZING or supervisor.condition.ever_ready
            # A server that was being tried again is still tried again if this attempt fails.
            keep_trying = keep_trying or self.keeps_trying
            if not supervisor.is_fresh:
                # Failed, closed, or interrupted in its start. An explicit `connect` does not wait for a cool-down.
                supervisor.stop()
                self.supervisor = supervisor = self._kind(self._context)
            # A thread that disconnects first adds itself to `_disconnects`, then stops the current supervisor. So
            # either it stops this supervisor, or this thread sees its entry here.
            if self._cut_short or any(process == os.getpid() for process, _ in list(self._disconnects)):
                # This supervisor may have been told to stop, so the next `connect` starts with a fresh one.
                self.supervisor = self._kind(self._context)
                return False
            try:
                return supervisor.start(keep_trying=keep_trying)
            except BaseException:
                supervisor.request_stop()
                raise

    def pin(self) -> PinnedSession:
        """A session with the present process of the server. Raises NotConnected and ServerUnavailable."""
        return PinnedSession(self, self.supervisor.pin(), self._clock)

    def pin_to(self, generation: int) -> PinnedSession:
        """A session with that process of the server. Raises SessionLost if it is not there any more."""
        supervisor = self.supervisor
        connection = supervisor.call_queue.ready
        if connection is not None and connection.generation == generation:
            pin = supervisor.pin()
            if pin.ready is connection:
                return PinnedSession(self, pin, self._clock)
        raise SessionLost(session_lost(self._name, "it had ended before the call"))

    def replace(self) -> bool | None:
        """Replace a ready server by a fresh process. Returns whether that succeeded; None if no server is ready."""
        supervisor = self.supervisor
        return supervisor.replace_now(self._context.drain_timeout) if supervisor.state is ServerState.READY else None

    def reconfigure(self, context: SupervisionContext, kind: SupervisorKind) -> MCPError | None:
        """Continue with another configuration, and wait for its process. Returns the error if it failed."""
        if kind is not self._kind:
            return self._change_kind(context, kind)
        while True:
            supervisor = self.supervisor
            if supervisor.is_running:
                # The old process's own settings decide how long it may drain.
                for outcome in supervisor.reconfigure_now(context, self._context.drain_timeout):
                    return outcome
            with self._lifecycle:
                # With the lock held, no thread connects or disconnects.
                if self.supervisor is supervisor and not supervisor.is_running:
                    self._context.adopt(context)
                    context.hooks.adopted(context)
                    return None

    def _change_kind(self, context: SupervisionContext, kind: SupervisorKind) -> MCPError | None:
        """Have another kind of supervisor take over from a ready one without a gap."""
        context.hooks = hooks = _SuccessorHooks(context.hooks)
        with self._lifecycle:
            old, drain, settings = self.supervisor, self._context.drain_timeout, context.observer
            # The observer has the figures of the past.
            context.observer, context.next_id = self._context.observer, self._context.next_id
            self._successor = fresh = kind(context)
            try:
                if old.is_running and not fresh.start():
                    error = MCPError(fresh.condition.last_error or "it was disconnected meanwhile")
                    fresh.stop()
                    return error
            finally:
                self._successor = None
            # From here on, what the old one reports of its own end says nothing about the server.
            self._context.hooks = _SuccessorHooks(hooks.client)
            context.observer.adopt(settings)
            hooks.take_over(context)
            self.supervisor, self._context, self._kind = fresh, context, kind
            self.timeout = context.timeout
            refusal_of = context.hooks.refusal_of
            withdrawn = old.call_queue.hand_over(fresh.call_queue, refusal_of)
        if old.state is not ServerState.CREATED:
            old.stop(drain)
        fresh.call_queue.take_over(withdrawn, refusal_of)
        return None

    def scale(self, number: int) -> None:
        """Have this many replicas, from now on or from the next `connect` on. Raises NotOffered and ValueError."""
        supervisor, context = self.supervisor, self._context
        if not isinstance(supervisor, Pool):
            raise NotOffered(
                f'server {self._name!r} has one process: only one that is "stateless": true can have replicas, because '
                "each call may go to another process then"
            )
        check_replicas(number, stateless=True)
        context.replicas = number
        supervisor.scale(number)

    def wake(self) -> None:
        self.supervisor.wake()

    def adopted(self) -> None:
        self.timeout = self._context.timeout

    def disconnect(self, then: Callable[[], object] = lambda: None, drain: float = 0.0) -> None:
        """Stop the server, which has `drain` seconds, then call `then`, before another thread may connect."""
        if self.supervisor.is_forked:
            then()
            return
        this_call = (os.getpid(), object())
        try:
            self._disconnects.add(this_call)
            if self._changing_in == threading.get_ident():
                # A signal handler or a finalizer has interrupted this thread. An interrupted `connect` returns False
                # when it continues, and an interrupted `disconnect` does the rest.
                self._cut_short = True
                self.request_disconnect()
                self._stop()
                then()
                return
            self.request_disconnect(drain)
            with self._lifecycle, self._change():
                self._stop(drain)
                then()
        finally:
            self._disconnects.discard(this_call)

    def _stop(self, drain: float = 0.0) -> None:
        if not self.supervisor.is_fresh:
            self.supervisor.stop(drain)

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        try:
            self._changing_in = threading.get_ident()
            yield
        finally:
            self._changing_in = None

    def request_disconnect(self, drain: float = 0.0) -> None:
        supervisor, successor = self.supervisor, self._successor
        if successor is not None:
            successor.request_stop()
        # A supervisor that no thread is about to start may still serve a later `connect`.
        if not supervisor.is_fresh or self._changing_in is not None:
            supervisor.request_stop(drain)

    def abandon(self, release: Callable[[], object]) -> bool:
        """Stop the server of a dropped client, then call `release`, on a thread of the supervisor.

        Takes no lock, because a finalizer may call it. False if the server was already stopped.
        """
        return self.supervisor.abandon(release)

    def is_connected(self) -> bool:
        return self.supervisor.state is ServerState.READY

    def status(self, tool_count: int) -> ServerStatus:
        return self.supervisor.condition.status(self.statistics, tool_count)

    def subscriptions_changed(self) -> None:
        self.supervisor.subscriptions_changed()

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.supervisor.notify(method, params)

    def require_connected(self) -> None:
        if self.supervisor.state in (ServerState.CREATED, ServerState.CLOSED):
            raise NotConnected(f"Not connected to server {self._name!r}: call connect() first")


class PinnedSession(Caller[Pin]):
    """The requests of a handle that stays with one process of a server."""

    waits_in_caller = False

    def __init__(self, session: RequestSession, calls: Pin, clock: Clock) -> None:
        super().__init__(calls, clock, session.timeout)
        self._session = session

    @property
    def profile(self) -> ServerProfile | None:
        return self._session.profile

    @property
    def placement(self) -> PlacementStatus | None:
        return self.supervisor.placement

    @property
    def is_lost(self) -> bool:
        return self.supervisor.is_lost

    def close(self) -> None:
        self.supervisor.close()

    def is_connected(self) -> bool:
        return not self.is_lost

    def require_connected(self) -> None:
        """Does nothing: a call of a handle whose replica is lost raises `SessionLost`."""

    def subscriptions_changed(self) -> None:
        self._session.subscriptions_changed()


Session: TypeAlias = SupervisedSession | DirectSession


def new_session(setup: ClientSetup) -> Session:
    """The session for the kind of transport. Raises ValueError for an invalid `timeout` of the transport."""
    transport, clock = setup.transport, setup.services.clock
    if not isinstance(transport, ChannelTransport):
        options = setup.options
        protocol = "handshake" if options.protocol == "auto" else options.protocol
        negotiation = Negotiation(protocol, options.probe_timeout)
        if options.replicas > 1:
            raise ConfigError(f"replicas: a server that is reached over {type(transport).__name__} cannot have several")
        # The secrets of such a transport are unknown, so nothing is masked.
        setup.observer.redact = str
        return DirectSession(setup.name, transport, setup.identity, negotiation, setup.observer, clock)
    setup.observer.network = transport.network
    context = supervision_context(setup, transport)
    return SupervisedSession(context, clock, supervisor_kind(setup))


def supervisor_kind(setup: ClientSetup) -> SupervisorKind:
    return Pool if setup.options.stateless else Supervisor


def supervision_context(setup: ClientSetup, transport: ChannelTransport) -> SupervisionContext:
    """The part of a client's settings that its supervisor reads. Raises ValueError as `new_session` does."""
    require_seconds("timeout", transport.timeout)
    options, services = setup.options.in_effect(transport.timeout), setup.services
    return SupervisionContext(
        name=setup.name,
        transport=transport,
        identity=setup.identity,
        negotiation=Negotiation(options.protocol, options.probe_timeout),
        policy=options.restart_policy or RestartPolicy(),
        hooks=setup.hooks,
        server_requests=setup.server_requests,
        clock=services.clock,
        rng=services.rng,
        observer=setup.observer,
        recorders=services.recorders,
        executor=setup.callbacks.lane().post,
        **common_fields(options, SupervisionContext),
    )
