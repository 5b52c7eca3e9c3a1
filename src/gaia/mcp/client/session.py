"""How a client talks to its server: the interface, and the supervised implementation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from gaia.mcp.client.protocol.era import ServerProfile
from gaia.mcp.client.supervision import caller
from gaia.mcp.client.supervision.callbacks import Lane
from gaia.mcp.client.supervision.caller import CallFuture, GoesOn, OnDone, Outcome
from gaia.mcp.client.supervision.client_request import ClientRequest
from gaia.mcp.client.supervision.context import SupervisionContext
from gaia.mcp.client.supervision.events import ServerState
from gaia.mcp.client.supervision.input_requests import InputRequests
from gaia.mcp.client.supervision.status import CallStatistics, ServerStatus
from gaia.mcp.client.supervision.supervisor import Supervisor
from gaia.mcp.errors import NotConnected

__all__ = ["Session", "SupervisedSession"]

_ASK_AGAIN_SECONDS = 0.05

_CONNECTED = {ServerState.READY, ServerState.RESTARTING, ServerState.EXITED, ServerState.AUTHORIZING}
"""There is nothing that another `connect` could do."""


class Session(Protocol):
    """One client's way to its server. Thread-safe. A request without a `timeout` gets the transport's own."""

    @property
    def profile(self) -> ServerProfile | None: ...

    @property
    def state(self) -> ServerState: ...

    @property
    def last_error(self) -> str | None: ...

    def connect(self) -> bool: ...

    def disconnect(self) -> None: ...

    def request_disconnect(self) -> None: ...

    def is_connected(self) -> bool: ...

    def status(self, tool_count: int) -> ServerStatus: ...

    def request(self, wanted: ClientRequest) -> Outcome: ...

    def subscriptions_changed(self) -> None:
        """The client wants to hear other things of the server than before (`Subscriptions`)."""

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Tell the server something, if it is there to be told."""

    def submit(
        self, wanted: ClientRequest, lane: Lane, future: CallFuture, goes_on: GoesOn, on_done: OnDone | None = None
    ) -> None: ...

    def watch(self, input_requests: InputRequests) -> None:
        """See to it that a gathering does not outlive its deadline."""


class SupervisedSession:
    """A session over a supervisor. Each `connect` after a `disconnect` starts a new supervisor."""

    def __init__(self, context: SupervisionContext) -> None:
        self._name = context.name
        self._timeout = context.transport.timeout
        self._clock = context.clock
        self._statistics = CallStatistics()
        self._new_supervisor: Callable[[], Supervisor] = lambda: Supervisor(context)
        self._supervisor = self._new_supervisor()
        """Replaced under `_lifecycle`, read by anybody. One that was never started refuses calls and says why."""
        self._lifecycle = threading.Lock()
        """Makes connecting and disconnecting one at a time. Waits for the server, so it is never taken by a call."""

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
                self._supervisor = supervisor = self._new_supervisor()
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
        # A supervisor that nobody is about to start may still be wanted.
        if supervisor.state is not ServerState.CREATED or self._lifecycle.locked():
            supervisor.request_stop()

    def is_connected(self) -> bool:
        return self._supervisor.state is ServerState.READY

    def status(self, tool_count: int) -> ServerStatus:
        return self._supervisor.condition.status(self._statistics, tool_count)

    def subscriptions_changed(self) -> None:
        self._supervisor.subscriptions_changed()

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        connection = self._supervisor.call_queue.ready
        if connection is not None:
            connection.notify(method, params)

    def request(self, wanted: ClientRequest) -> Outcome:
        timeout = self._timeout if wanted.timeout is None else wanted.timeout
        return caller.request(self._supervisor, self._clock, self._statistics, wanted, timeout)

    def submit(
        self, wanted: ClientRequest, lane: Lane, future: CallFuture, goes_on: GoesOn, on_done: OnDone | None = None
    ) -> None:
        if self._supervisor.state in (ServerState.CREATED, ServerState.CLOSED):
            raise NotConnected(f"Not connected to server {self._name!r}: call connect() first")
        timeout = self._timeout if wanted.timeout is None else wanted.timeout
        supervisor, clock, statistics = self._supervisor, self._clock, self._statistics
        caller.submit(supervisor, clock, statistics, wanted, timeout, lane, future, goes_on, on_done)

    def watch(self, input_requests: InputRequests) -> None:
        self._supervisor.watch(input_requests)
