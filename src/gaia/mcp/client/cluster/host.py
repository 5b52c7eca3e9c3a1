"""On a node: starts one server and supervises it, for a driver elsewhere. Knows nothing of Ray.

Each method is one message of the driver. None of them raises, because Ray would write the exception to its logs: what
went wrong is part of the answer.
"""

from __future__ import annotations

import functools
import os
import random
import socket
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import orjson

from gaia import __version__
from gaia.exception_text import exception_text
from gaia.locks import reentrant_lock
from gaia.log import get_logger
from gaia.mcp.client.cluster.host_events import HostEvents
from gaia.mcp.client.cluster.host_features import HostFeatures, Questions
from gaia.mcp.client.cluster.host_hooks import HostHooks, NotApproved
from gaia.mcp.client.cluster.lease import Lease
from gaia.mcp.client.cluster.wire import (
    Answer,
    AskedCall,
    Greeting,
    HostSettings,
    Launch,
    Logged,
    Progressed,
    Reply,
    WireError,
    encode,
)
from gaia.mcp.client.observation.request_spans import Observer
from gaia.mcp.client.protocol.era import ClientIdentity
from gaia.mcp.client.protocol.negotiated_protocol import NOT_NEGOTIATED
from gaia.mcp.client.protocol.negotiation import Negotiation
from gaia.mcp.client.rpc.clock import Clock, SystemClock
from gaia.mcp.client.rpc.relayed_request import OnAnswer, RelayedRequest
from gaia.mcp.client.supervision.callbacks import CallbackPool
from gaia.mcp.client.supervision.context import SupervisionContext
from gaia.mcp.client.supervision.server_requests import ServerRequests
from gaia.mcp.client.supervision.supervisor import Supervisor
from gaia.mcp.client.transports.stdio import StdioTransport
from gaia.mcp.errors import CallCancelled, InvalidResponse, MCPError, ServerCrashed, SessionLost, UrlElicitationRequired

__all__ = ["ServerHost"]

logger = get_logger(__name__)

_RELAYED_SECONDS = 24 * 3600.0
"""For calls that the driver relays: it gives them up, because it knows how long a person was asked meanwhile."""
_POLLS_PER_LEASE = 3
_MAX_EARLY = 1024
"""Cancellations that came before their calls are remembered for so many."""


class _Owner:
    """The `RequestOwner` of one call: its client is the driver, or has sent the call through it."""

    client_key = None

    def __init__(self, events: HostEvents, asked: AskedCall, declared: Mapping[str, Any]) -> None:
        self.capabilities = declared if asked.capabilities is None else asked.capabilities
        self.log_level = asked.log_level
        self._events = events
        self._number = asked.number

    def logged(self, params: dict[str, Any]) -> None:
        self._events.add(Logged(self._number, params))

    def asked(self, method: str, params: Mapping[str, Any], answer: OnAnswer) -> Callable[[], object]:
        raise NotImplementedError("a host has the driver answer, which knows whose calls are under way")


class _BoundRequest(RelayedRequest, kw_only=True):
    """A call that is for one start of the server alone."""

    is_meant_for_this: Callable[[], bool]

    def begin_write(self) -> bool:
        if not self.is_meant_for_this():
            self.finish(error=SessionLost("the server was started again before the call could be written"))
            return False
        return super().begin_write()


class ServerHost:
    """Thread-safe. All arguments and answers are bytes of `wire`."""

    def __init__(
        self, node_id: str | None = None, clock: Clock | None = None, on_over: Callable[[], object] = lambda: None
    ) -> None:
        """`node_id` is what the engine calls the node.

        `on_over` is called, on a thread of its own, when the server was stopped because the driver is not heard of any
        more: it must see to it that another host takes the place of this one, which starts nothing again.
        """
        self._node_id = node_id
        self._on_over = on_over
        self._lease: Lease | None = None
        self._incarnation = uuid.uuid4().hex
        self._clock: Clock = clock or SystemClock()
        self._events = HostEvents()
        self._lock = reentrant_lock()
        """Owns everything below."""
        self._supervisor: Supervisor | None = None
        self._hooks: HostHooks | None = None
        self._server_requests: ServerRequests | None = None
        self._callbacks: CallbackPool | None = None
        self._questions = Questions(self._events.add)
        self._drain_timeout = 0.0
        self._declared: Mapping[str, Any] = {}
        """What the driver's application offers to the server."""
        self._calls: dict[int, RelayedRequest] = {}
        """By the driver's numbers."""
        self._early: OrderedDict[int, str] = OrderedDict()
        """Cancellations of calls that have not come yet, which overtake them now and then."""
        self._stopped = False

    def greet(self, data: bytes) -> bytes:
        """Begin to start the server. May come again: then nothing is started."""
        problem = None
        try:
            settings = msgspec.msgpack.decode(data, type=HostSettings)
            if settings.version == __version__:
                self._begin(settings)
            else:
                problem = (
                    f"gaia-mcp {__version__} is installed on this node, and {settings.version} where the client runs; "
                    "install the same version on both"
                )
        except MCPError as error:
            problem = error.message
        except Exception as error:  # noqa: BLE001 - see the module; settings are not repeated, they hold secrets
            problem = f"the server cannot be hosted: {type(error).__name__}"
        return encode(
            Greeting(
                incarnation=self._incarnation,
                node=socket.gethostname(),
                node_id=self._node_id,
                pid=os.getpid(),
                problem=problem,
                clock=self._clock.monotonic(),
                is_over=self._is_over,
            )
        )

    @property
    def _is_over(self) -> bool:
        return self._lease is not None and self._lease.is_over

    def _begin(self, settings: HostSettings) -> None:
        with self._lock:
            if self._lease is not None:
                self._lease.renew()
            if self._supervisor is not None or self._stopped:
                return
            name, launch = settings.name, settings.launch
            lease = Lease(settings.lease, self._clock)
            hooks = self._hooks = HostHooks(name, settings.timeout, lease, self._events, settings.known)
            self._declared = settings.capabilities
            self._subscribe(settings.resources, settings.log_level)
            self._callbacks = CallbackPool(name, "server-requests")
            features = HostFeatures(
                declared=settings.capabilities, timeout=settings.question_timeout, questions=self._questions
            )
            self._server_requests = ServerRequests(
                name, features, self._callbacks, self._clock, settings.question_timeout
            )
            self._drain_timeout = settings.drain_timeout
            supervisor = Supervisor(
                SupervisionContext(
                    name=name,
                    transport=_transport(launch, settings.timeout),
                    identity=ClientIdentity("GAIA MCP Client", __version__, settings.capabilities),
                    negotiation=Negotiation(settings.protocol, min(settings.probe_timeout, settings.timeout / 2)),
                    policy=settings.policy,
                    health_interval=settings.health_interval,
                    health_timeout=settings.health_timeout,
                    max_pending=launch.max_pending,
                    recycling=settings.recycling,
                    drain_timeout=settings.drain_timeout,
                    standby=settings.standby,
                    lazy=settings.lazy,
                    idle_stop=settings.idle_stop,
                    hooks=hooks,
                    server_requests=self._server_requests,
                    clock=self._clock,
                    rng=random.Random(),  # noqa: S311 - jitter, not cryptography
                    observer=Observer(name),
                )
            )
            hooks.supervisor = self._supervisor = supervisor
            self._lease = lease
            lease.watch(self._lease_is_over, f"mcp-{name}-lease")
        threading.Thread(
            target=supervisor.start, kwargs={"keep_trying": settings.keep_trying}, name=f"mcp-{name}-start", daemon=True
        ).start()

    def poll(self, incarnation: str, acknowledged: int) -> bytes:
        """The events after the one with the number `acknowledged`; waits for them for a while.

        Nothing if the poll is for another incarnation, or comes too late.
        """
        lease = self._lease
        if incarnation != self._incarnation or lease is None or not lease.renew():
            return b""
        events = self._events.fetch(acknowledged, lease.seconds / _POLLS_PER_LEASE)
        if lease.is_over:
            return b""
        return encode(msgspec.structs.replace(events, clock=self._clock.monotonic()))

    def _lease_is_over(self) -> None:
        """The driver may have the server somewhere else by now."""
        self.stop()
        self._on_over()

    # Calls.

    def call(self, data: bytes) -> bytes:
        """Make one call, and wait for its end."""
        asked = msgspec.msgpack.decode(data, type=AskedCall)
        supervisor = self._supervisor
        lease = self._lease
        if asked.incarnation != self._incarnation or supervisor is None or lease is None or lease.is_stale(asked.sent):
            return encode(Reply(is_late=True))
        try:
            return self._call(supervisor, asked)
        except Exception as error:  # noqa: BLE001 - see the module
            failure = InvalidResponse(f"internal error: {exception_text(error)}", delivery="unknown")
            return encode(Reply(error=WireError.of(failure)))

    def _call(self, supervisor: Supervisor, asked: AskedCall) -> bytes:
        message = orjson.loads(asked.frame)
        reported = 0

        def progressed(params: Mapping[str, Any]) -> None:
            nonlocal reported
            reported += self._events.add(Progressed(asked.number, dict(params)))

        connection = supervisor.call_queue.ready
        kind: Callable[..., RelayedRequest] = RelayedRequest
        if asked.start is not None:
            kind = functools.partial(
                _BoundRequest, is_meant_for_this=lambda: supervisor.condition.generation == asked.start
            )
        call = kind(
            supervisor.next_id(),
            message["method"],
            message.get("params"),
            self._clock.monotonic(),
            asked.timeout if asked.capabilities is None else _RELAYED_SECONDS,
            repeatable=asked.repeatable,
            on_progress=progressed if asked.progress else None,
            max_timeout=asked.max_timeout,
            tool=asked.tool,
            negotiated=NOT_NEGOTIATED if connection is None else connection.negotiated,
            owner=_Owner(self._events, asked, self._declared),
        )
        with self._lock:
            early = self._early.pop(asked.number, None)
            self._calls[asked.number] = call
        try:
            if early is not None:
                call.finish(error=CallCancelled(early))
            else:
                call.perform(supervisor.call_queue, self._clock)
        finally:
            with self._lock:
                del self._calls[asked.number]
        error = call.error
        if error is None:
            return encode(Reply(result=call.take(), progress=reported))
        if (isinstance(error, NotApproved) or self._is_over) and error.delivery == "not_sent":
            return encode(Reply(progress=reported, is_late=self._is_over))
        if self._is_over:
            error = ServerCrashed(f"{message['method']}: its host had not heard of this program for too long")
            error.delivery = "unknown"
        if isinstance(error, UrlElicitationRequired) and self._server_requests is not None:
            for elicitation in error.elicitations:
                self._server_requests.note_url(elicitation.get("elicitationId"))
        return encode(Reply(error=WireError.of(error), progress=reported))

    def cancel(self, incarnation: str, number: int, reason: str, expired: bool) -> None:
        """The driver gives a call up, perhaps because its deadline has passed."""
        supervisor = self._supervisor
        if incarnation != self._incarnation or supervisor is None:
            return
        with self._lock:
            call = self._calls.get(number)
            if call is None:
                self._early[number] = reason
                if len(self._early) > _MAX_EARLY:
                    self._early.popitem(last=False)
        if call is None:
            return
        if expired:
            # So the supervisor looks whether the server hangs.
            supervisor.call_queue.expire(call)
        else:
            supervisor.call_queue.cancel(call, CallCancelled(reason))

    # What else the driver says.

    def answer(self, incarnation: str, data: bytes) -> None:
        """The application's answer to a request of the server."""
        if incarnation == self._incarnation:
            self._questions.answered(msgspec.msgpack.decode(data, type=Answer))

    def checked(self, incarnation: str, number: int) -> None:
        """The driver has checked the tools of a listing."""
        if incarnation == self._incarnation and self._hooks is not None:
            self._hooks.checked(number)

    def notify(self, incarnation: str, method: str, data: bytes) -> None:
        supervisor = self._supervisor
        connection = None if supervisor is None else supervisor.call_queue.ready
        if incarnation == self._incarnation and connection is not None:
            connection.notify(method, orjson.loads(data))

    def subscribe(self, incarnation: str, resources: tuple[str, ...], log_level: str | None) -> None:
        """The driver wants to be told of these resources and log messages."""
        if incarnation == self._incarnation and self._supervisor is not None:
            self._subscribe(tuple(resources), log_level)
            self._supervisor.subscriptions_changed()

    def _subscribe(self, resources: tuple[str, ...], log_level: str | None) -> None:
        assert self._hooks is not None, "it was greeted"
        wanted = self._hooks.subscriptions
        for uri in wanted.resources:
            if uri not in resources:
                wanted.remove_resource(uri)
        for uri in resources:
            wanted.add_resource(uri)
        if log_level is not None:
            wanted.set_log_level(log_level)

    def replace(self, incarnation: str) -> bool | None:
        """Have a fresh process take the server's place."""
        supervisor = self._supervisor
        if incarnation != self._incarnation or supervisor is None or supervisor.call_queue.ready is None:
            return None
        return supervisor.replace_now(self._drain_timeout)

    def relist(self, incarnation: str) -> None:
        """Another replica has told that its tools changed."""
        if incarnation == self._incarnation and self._supervisor is not None:
            self._supervisor.list_again()

    def wake(self, incarnation: str) -> None:
        """Start a server that is at rest."""
        if incarnation == self._incarnation and self._supervisor is not None:
            self._supervisor.wake()

    def stop(self, drain: float = 0.0) -> None:
        """Stop the server, and return when nothing of it is left. It has `drain` seconds to finish its calls."""
        with self._lock:
            self._stopped = True
            supervisor, callbacks = self._supervisor, self._callbacks
        if supervisor is not None:
            supervisor.stop(drain)
        if callbacks is not None:
            callbacks.close()
        if self._lease is not None:
            self._lease.end()
        self._events.close()


def _transport(launch: Launch, timeout: float) -> StdioTransport:
    return StdioTransport(
        launch.command,
        launch.args,
        launch.env,
        timeout=timeout,
        cwd=launch.cwd,
        inherit_env=launch.inherit_env,
        max_message_bytes=launch.max_message_bytes,
        max_pending=launch.max_pending,
        sandbox=lambda: launch.sandbox,
        expand=lambda: (launch.args, launch.env, launch.secrets),
    )
