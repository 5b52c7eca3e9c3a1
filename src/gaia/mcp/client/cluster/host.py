"""On a node: starts one server and supervises it, for a driver elsewhere. Knows nothing of Ray.

Each method is one message of the driver. None of them raises, because Ray would write the exception to its logs: what
went wrong is part of the answer.
"""

from __future__ import annotations

import itertools
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
from gaia.mcp.client.cluster.wire import (
    Answer,
    AskedCall,
    EventHappened,
    Greeting,
    HostSettings,
    KnownTools,
    Launch,
    Logged,
    Progressed,
    Reply,
    StateReached,
    ToolsListed,
    WireError,
    WireProfile,
    encode,
)
from gaia.mcp.client.observation.request_spans import Observer
from gaia.mcp.client.protocol.era import ClientIdentity
from gaia.mcp.client.protocol.negotiated_protocol import NOT_NEGOTIATED
from gaia.mcp.client.protocol.negotiation import Negotiation
from gaia.mcp.client.rpc.clock import SystemClock
from gaia.mcp.client.rpc.relayed_request import OnAnswer, RelayedRequest
from gaia.mcp.client.supervision.callbacks import CallbackPool
from gaia.mcp.client.supervision.context import KnownServer, Listing, SupervisionContext
from gaia.mcp.client.supervision.events import Event, Restarted, ServerState, StateChanged
from gaia.mcp.client.supervision.server_requests import ServerRequests
from gaia.mcp.client.supervision.subscriptions import Subscriptions
from gaia.mcp.client.supervision.supervisor import Supervisor
from gaia.mcp.client.transports.stdio import StdioTransport
from gaia.mcp.errors import CallCancelled, InvalidResponse, MCPError, UrlElicitationRequired

__all__ = ["ServerHost"]

logger = get_logger(__name__)

_POLL_SECONDS = 30.0
_RELAYED_SECONDS = 24 * 3600.0
"""For calls that the driver relays: it gives them up, because it knows how long a person was asked meanwhile."""
_MAX_EARLY = 1024
"""Cancellations that came before their calls are remembered for so many."""


class _NotApproved(MCPError):
    """The driver has to decide anew whether the call may be made."""


class _Hooks:
    """The `SupervisionHooks` of a host. Those of the driver's client follow, when it has fetched the events."""

    def __init__(
        self, name: str, timeout: float, clock: SystemClock, events: HostEvents, known: KnownTools | None
    ) -> None:
        self.subscriptions = Subscriptions()
        self._known = known
        self.supervisor: Supervisor | None = None
        self._name = name
        self._timeout = timeout
        self._clock = clock
        self._events = events
        self._numbers = itertools.count(1)
        self._lock = reentrant_lock()
        """Owns the rest."""
        self._listed: dict[int, dict[str, Any]] = {}
        """The definitions by tool, of listings that the driver has not taken over yet, by their numbers."""
        self._taken_over: dict[str, Any] | None = None
        """Those of the listing that the driver has checked last."""

    def listing_begins(self) -> Listing:
        number = next(self._numbers)
        self._events.add(ToolsListed(number))
        return Listing(number, self._clock.monotonic() + self._timeout)

    def tools_listed(self, definitions: list[Any], listing: Listing) -> None:
        named = {one["name"]: one for one in definitions if isinstance(one, dict) and isinstance(one.get("name"), str)}
        with self._lock:
            self._listed[listing.number] = named
        profile = None if self.supervisor is None else self.supervisor.condition.profile
        self._events.add(ToolsListed(listing.number, definitions, None if profile is None else WireProfile.of(profile)))

    def checked(self, number: int) -> None:
        """The driver has taken over a listing."""
        with self._lock:
            self._taken_over = self._listed.pop(number, self._taken_over)
            for older in [one for one in self._listed if one < number]:
                del self._listed[older]

    def refusal_of(self, tool: str) -> MCPError | None:
        """A call that waited here was permitted by the definition that the driver knew."""
        with self._lock:
            if not self._listed:
                return None
            known, now = self._taken_over, self._listed[max(self._listed)]
        if known is not None and known.get(tool) == now.get(tool):
            return None
        return _NotApproved(f"the definition of {tool} has changed")

    def last_known(self) -> KnownServer | None:
        known = self._known
        return None if known is None else (None if known.profile is None else known.profile.restored(), known.tools)

    def adopted(self, context: SupervisionContext) -> None:
        """Does nothing: a host keeps its settings."""

    def happened(self, event: Event) -> None:
        if isinstance(event, StateChanged):
            self._reached(event.new, event.reason, event.generation)
            return
        if isinstance(event, Restarted):
            # A fresh process may have taken the place of one that was ready.
            self._reached(ServerState.READY, None, event.generation)
        fields = {name: getattr(event, name) for name in event.__struct_fields__ if name != "server"}
        self._events.add(EventHappened(type(event).__name__, fields))

    def _reached(self, state: ServerState, reason: str | None, generation: int) -> None:
        if self.supervisor is None:
            return
        condition = self.supervisor.condition
        self._events.add(
            StateReached(
                state=state,
                reason=reason,
                generation=generation,
                pid=condition.pid,
                last_error=condition.last_error,
                retry_in=condition.retry_in,
                restarts=condition.restarts,
                recyclings=condition.recyclings,
                last_recycling=condition.last_recycling,
                profile=None if condition.profile is None else WireProfile.of(condition.profile),
            )
        )


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


class ServerHost:
    """Thread-safe. All arguments and answers are bytes of `wire`."""

    def __init__(self, node_id: str | None = None) -> None:
        """`node_id` is what the engine calls the node."""
        self._node_id = node_id
        self._incarnation = uuid.uuid4().hex
        self._clock = SystemClock()
        self._events = HostEvents()
        self._lock = reentrant_lock()
        """Owns everything below."""
        self._supervisor: Supervisor | None = None
        self._hooks: _Hooks | None = None
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
            )
        )

    def _begin(self, settings: HostSettings) -> None:
        with self._lock:
            if self._supervisor is not None or self._stopped:
                return
            name, launch = settings.name, settings.launch
            hooks = self._hooks = _Hooks(name, settings.timeout, self._clock, self._events, settings.known)
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
        threading.Thread(
            target=supervisor.start, kwargs={"keep_trying": settings.keep_trying}, name=f"mcp-{name}-start", daemon=True
        ).start()

    def poll(self, incarnation: str, acknowledged: int) -> bytes:
        """The events after the one with the number `acknowledged`; waits for them for a while."""
        if incarnation != self._incarnation:
            return b""
        return encode(self._events.fetch(acknowledged, _POLL_SECONDS))

    # Calls.

    def call(self, data: bytes) -> bytes:
        """Make one call, and wait for its end."""
        asked = msgspec.msgpack.decode(data, type=AskedCall)
        supervisor = self._supervisor
        if asked.incarnation != self._incarnation or supervisor is None:
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
        call = RelayedRequest(
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
        if isinstance(error, _NotApproved) and error.delivery == "not_sent":
            return encode(Reply(progress=reported))
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
