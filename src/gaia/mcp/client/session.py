"""How a client talks to its server: the interface, and the supervised implementation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from gaia import __version__
from gaia.mcp.client.client_options import ClientOptions, SharedServices
from gaia.mcp.client.direct_session import DirectSession
from gaia.mcp.client.observation.request_spans import Observer
from gaia.mcp.client.protocol.era import ClientIdentity, ServerProfile
from gaia.mcp.client.protocol.negotiation import Negotiation
from gaia.mcp.client.rpc.clock import require_seconds
from gaia.mcp.client.supervision.callbacks import CallbackGroup
from gaia.mcp.client.supervision.caller import Caller, CallFuture, GoesOn, Outcome
from gaia.mcp.client.supervision.client_request import ClientRequest
from gaia.mcp.client.supervision.context import SupervisionContext, SupervisionHooks
from gaia.mcp.client.supervision.events import ServerState
from gaia.mcp.client.supervision.input_requests import InputRequests
from gaia.mcp.client.supervision.policy import RestartPolicy
from gaia.mcp.client.supervision.server_requests import ServerRequests
from gaia.mcp.client.supervision.status import ServerStatus
from gaia.mcp.client.supervision.supervisor import Supervisor
from gaia.mcp.client.transports.base import ChannelTransport, MCPTransport
from gaia.mcp.errors import NotConnected

__all__ = ["Session", "SupervisedSession", "new_session"]

_ASK_AGAIN_SECONDS = 0.05

_CONNECTED = {ServerState.READY, ServerState.RESTARTING, ServerState.EXITED, ServerState.AUTHORIZING}
"""In these states `connect` has nothing to do."""


class Session(Protocol):
    """One client's way to its server. Thread-safe. A request without a `timeout` gets the transport's own."""

    @property
    def profile(self) -> ServerProfile | None: ...

    @property
    def timeout(self) -> float:
        """Seconds, for requests without a timeout of their own; infinite if only the transport knows."""

    @property
    def state(self) -> ServerState: ...

    @property
    def last_error(self) -> str | None: ...

    def connect(self) -> bool: ...

    def disconnect(self) -> None: ...

    def request_disconnect(self) -> None: ...

    def is_connected(self) -> bool: ...

    def status(self, tool_count: int) -> ServerStatus: ...

    @property
    def request(self) -> Callable[[ClientRequest], Outcome]:
        """Make a request and wait for its result object. Raises `MCPError`."""

    def subscriptions_changed(self) -> None:
        """The client wants other changes or log messages of the server than before (`Subscriptions`)."""

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification if the server is ready; otherwise do nothing."""

    def submit(self, request: ClientRequest, future: CallFuture, goes_on: GoesOn) -> None:
        """Make a request without waiting, for `future`; see `Caller.submit`."""

    def watch(self, input_requests: InputRequests) -> None:
        """End the requests for input at their deadline."""


class SupervisedSession:
    """A session over a supervisor. Each `connect` after a `disconnect` starts a new supervisor."""

    def __init__(self, context: SupervisionContext) -> None:
        self._name = context.name
        self.timeout = context.transport.timeout
        self._new_supervisor: Callable[[], Supervisor] = lambda: Supervisor(context)
        self._caller = Caller(self._new_supervisor(), context.clock, context.transport.timeout)
        """Its supervisor is replaced under `_lifecycle`. One that was never started refuses calls and says why."""
        self.request = self._caller.request
        """See `Session`. Every call comes along here, so there is nothing in between."""
        self._lifecycle = threading.Lock()
        """Makes connecting and disconnecting one at a time. Waits for the server, so it is never taken by a call."""

    @property
    def _supervisor(self) -> Supervisor:
        return self._caller.supervisor

    @property
    def profile(self) -> ServerProfile | None:
        return self._supervisor.condition.profile

    @property
    def state(self) -> ServerState:
        return self._supervisor.state

    @property
    def last_error(self) -> str | None:
        return self._supervisor.condition.last_error

    def connect(self) -> bool:
        if self._supervisor.is_forked:
            # In a forked child: the thread that held the lock may not exist here.
            self._lifecycle = threading.Lock()
        with self._lifecycle:
            supervisor = self._supervisor
            if supervisor.state in _CONNECTED:
                return True
            if supervisor.state is not ServerState.CREATED:
                # Failed or closed. A connection asked for by name does not wait for a cool-down.
                supervisor.stop()
                self._caller.supervisor = supervisor = self._new_supervisor()
            try:
                return supervisor.start()
            except BaseException:
                supervisor.request_stop()
                raise

    def disconnect(self) -> None:
        if self._supervisor.is_forked:
            return
        self.request_disconnect()
        # `connect` may hold the lock for as long as a server takes to get ready. It is asked again, because its
        # supervisor may not have been the current one yet.
        while not self._lifecycle.acquire(timeout=_ASK_AGAIN_SECONDS):
            self.request_disconnect()
        try:
            if self._supervisor.state is not ServerState.CREATED:
                self._supervisor.stop()
        finally:
            self._lifecycle.release()

    def request_disconnect(self) -> None:
        supervisor = self._supervisor
        # One that no thread is about to start may still be used by a later `connect`.
        if supervisor.state is not ServerState.CREATED or self._lifecycle.locked():
            supervisor.request_stop()

    def is_connected(self) -> bool:
        return self._supervisor.state is ServerState.READY

    def status(self, tool_count: int) -> ServerStatus:
        return self._supervisor.condition.status(self._caller.statistics, tool_count)

    def subscriptions_changed(self) -> None:
        self._supervisor.subscriptions_changed()

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        connection = self._supervisor.call_queue.ready
        if connection is not None:
            connection.notify(method, params)

    def submit(self, request: ClientRequest, future: CallFuture, goes_on: GoesOn) -> None:
        if self._supervisor.state in (ServerState.CREATED, ServerState.CLOSED):
            raise NotConnected(f"Not connected to server {self._name!r}: call connect() first")
        self._caller.submit(request, future, goes_on)

    def watch(self, input_requests: InputRequests) -> None:
        self._supervisor.watch(input_requests)


def new_session(
    name: str,
    transport: MCPTransport,
    options: ClientOptions,
    services: SharedServices,
    hooks: SupervisionHooks,
    server_requests: ServerRequests,
    observer: Observer,
    callbacks: CallbackGroup,
) -> Session:
    """A supervised session if the transport has channels, otherwise one in the threads of the callers.

    Raises ValueError for a `timeout` of the transport that is no duration (`require_seconds`).
    """
    identity = ClientIdentity("GAIA MCP Client", __version__, options.features.capabilities)
    clock = services.clock
    if not isinstance(transport, ChannelTransport):
        protocol = "handshake" if options.protocol == "auto" else options.protocol
        negotiation = Negotiation(protocol, options.probe_timeout)
        # Nothing is known of its secrets, if it has any.
        observer.redact = str
        return DirectSession(name, transport, identity, negotiation, observer, clock)
    require_seconds("timeout", transport.timeout)
    observer.network = transport.network
    return SupervisedSession(
        SupervisionContext(
            name=name,
            transport=transport,
            identity=identity,
            negotiation=Negotiation(options.protocol, options.probe_timeout),
            policy=options.restart_policy or RestartPolicy(),
            health_interval=options.health_interval,
            health_timeout=options.health_timeout,
            max_pending=options.max_pending,
            hooks=hooks,
            server_requests=server_requests,
            clock=clock,
            rng=services.rng,
            observer=observer,
            executor=callbacks.lane().post,
        )
    )
