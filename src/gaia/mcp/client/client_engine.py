"""`ClientEngine`: the parts of one client, for `MCPClient` and for gaia's own modules.

The supervisor has only `WeakHooks`: a strong reference from its thread would keep every dropped client alive.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import msgspec

from gaia.mcp.authorization.configured import ConfiguredAuthorization
from gaia.mcp.client.client_options import ClientOptions, ClientSetup, SharedServices
from gaia.mcp.client.features import ServerFeatures
from gaia.mcp.client.session import PinnedSession, Session, new_session, supervision_context, supervisor_kind
from gaia.mcp.client.tool_calls import ToolCalls
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import CallCancelled, MCPError
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.requests.client_requests import ClientRequests
from gaia.mcp.requests.exchange import RequestSession
from gaia.mcp.requests.response_cache import ResponseCache
from gaia.mcp.supervision.callbacks import CallbackPool
from gaia.mcp.supervision.context import KnownServer, Listing, SupervisionContext
from gaia.mcp.supervision.events import Event, Listeners
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.mcp.tools.pins import PinGate, PinKind, pins_of_text
from gaia.mcp.transports.base import ChannelTransport, MCPTransport
from gaia.runtime.clock import Clock, require_seconds

_MAX_INSTRUCTIONS = 64 * 1024
"""Characters. Longer instructions would fill a model's context by themselves."""


class ClientEngine:
    """The parts of an `MCPClient`. Implements `SupervisionHooks`. Thread-safe."""

    def __init__(
        self, name: str, transport: MCPTransport, options: ClientOptions, services: SharedServices, clock: Clock | None
    ) -> None:
        """`clock` is the client's own, which takes precedence over the manager's."""
        self.name = name
        self.entry: ServerConfig | None = None
        self.listeners = Listeners()
        self._clock = clock
        self._assemble(transport, options, services)

    def _assemble(self, transport: MCPTransport, options: ClientOptions, services: SharedServices) -> None:
        name = self.name
        self._successor: tuple[SupervisionContext, ClientSetup, ServerConfig | None] | None = None
        """The settings of the last `reconfigure`, identified by the context. Set before the supervisor is told."""
        self.subscriptions = Subscriptions()
        self._server_requests = ServerRequests(
            name,
            options.features,
            services.server_request_threads,
            services.clock,
            options.question_timeout,
            options.max_pending,
        )
        self.setup = setup = ClientSetup(
            name=name,
            transport=transport,
            options=options,
            services=services,
            hooks=WeakHooks(self),
            server_requests=self._server_requests,
            observer=Observer(name, policy=options.capture_content),
            callbacks=services.callbacks.group(name),
        )
        self._cache = ResponseCache(services.clock)
        self.session = new_session(setup)
        _stop_when_dropped(self, self.session)
        self.requests = self._requests_over(self.session, self._cache)
        self.tool_calls = calls = ToolCalls(setup, self.requests, self._cache)
        # `SupervisionHooks` about tools.
        self.listing_begins, self.tools_remembered = calls.listing_begins, calls.remembered
        self.refusal_of, self.safe_to_repeat = calls.refusal_of, calls.safe_to_repeat
        self.features = ServerFeatures(self.requests, self.subscriptions, self._new_gate("prompts"))
        self._instructions_gate = self._new_gate("instructions")

    def _requests_over(self, session: RequestSession, cache: ResponseCache) -> ClientRequests:
        services = self.services
        return ClientRequests(
            session, self._server_requests, cache, self.setup.observer, services.clock, services.steps
        )

    def _new_gate(self, kind: PinKind) -> PinGate:
        return PinGate(self.name, self.options.pin_tools or "off", self.setup.pins, self.setup.hooks.happened, kind)

    @property
    def transport(self) -> MCPTransport:
        return self.setup.transport

    @property
    def options(self) -> ClientOptions:
        return self.setup.options

    @property
    def services(self) -> SharedServices:
        return self.setup.services

    def join(self, services: SharedServices, defaults: ClientOptions) -> None:
        """Use a manager's services, and its `defaults` for options left open. Called before the client connects."""
        transport = self.transport
        authorization = transport.authorization if isinstance(transport, ChannelTransport) else None
        if isinstance(authorization, ConfiguredAuthorization):
            authorization.on_authorization = authorization.on_authorization or services.on_authorization
        if self._clock is not None:
            services = msgspec.structs.replace(services, clock=self._clock)
        self._assemble(transport, self.options.or_else(defaults), services)

    def can_follow(self, other: ClientEngine) -> bool:
        """Whether `other.reconfigure` can take over these settings: the clock is the same, and no server is shared.

        Two processes of a shared server cannot run side by side.
        """
        placements = [one.entry.placement for one in (self, other) if one.entry is not None]
        is_shared = any(placement is not None and placement.is_shared for placement in placements)
        return self._clock is other._clock and not is_shared

    def reconfigure(self, successor: ClientEngine) -> MCPError | None:
        """Continue with the configuration of `successor`, which has joined the manager and has not connected.

        If the server is ready there is no gap, as for `MCPClient.restart`. If the new process cannot be started,
        nothing changes and the error is returned. A server that is not ready gets the settings at once and is started
        with them. None means that the server is ready, was stopped before, or is at rest. Backlog, subscriptions and
        listeners stay.
        """
        other = successor.setup
        if self._differs_in_replicas(successor):
            self.setup = msgspec.structs.replace(self.setup, options=other.options)
            self.entry = successor.entry
            self.session.scale(other.options.replicas)
            return None
        if not isinstance(other.transport, ChannelTransport):
            return MCPError(f"server {self.name!r} cannot be supervised with its new transport")
        observer = Observer(self.name, other.transport.network, other.options.capture_content)
        changed = msgspec.structs.replace(
            self.setup, transport=other.transport, options=other.options, services=other.services, observer=observer
        )
        context = supervision_context(changed, other.transport)
        self._successor = (context, changed, successor.entry)
        return self.session.reconfigure(context, supervisor_kind(changed))

    def _differs_in_replicas(self, successor: ClientEngine) -> bool:
        """Whether only the number of replicas changes, for which the present processes can stay."""
        entry, other = self.entry, successor.entry
        if entry is None or other is None or entry.replicas == other.replicas:
            return False
        both = (msgspec.structs.replace(one, replicas=1) for one in (entry, other))
        return entry.stateless is other.stateless and next(both) == next(both)

    def disconnect(self, drain: float) -> None:
        _require_drain(drain)
        self.session.disconnect(self.forget, drain)
        self.listeners.end()

    def request_disconnect(self, *, drain: float = 0.0) -> None:
        """Begin to disconnect without waiting. The caller must call `disconnect` later."""
        _require_drain(drain)
        self.session.request_disconnect(drain)

    def forget(self) -> None:
        self._server_requests.withdraw_all()
        self._cache.forget()
        self.tool_calls.forget()
        self.tool_calls.output_checks.end()
        self.close_services()

    def close_services(self) -> None:
        if self.services.owned:
            self.services.close()

    @property
    def instructions(self) -> str | None:
        profile = self.session.profile
        if profile is None or profile.instructions is None:
            return None
        instructions = profile.instructions[:_MAX_INSTRUCTIONS]
        if self._instructions_gate.mode == "off":
            return instructions
        pins = pins_of_text(instructions)
        return None if self._instructions_gate.review_pins(pins, pins) else instructions

    def pinned(self) -> tuple[PinnedSession, ToolCalls, ServerFeatures]:
        session = self.session.pin()
        requests = self._requests_over(session, ResponseCache(self.services.clock))
        features = ServerFeatures(requests, self.subscriptions, self._new_gate("prompts"))
        return session, self.tool_calls.over(requests), features

    def requests_of(self, generation: int) -> ClientRequests:
        """Requests to that process of the server alone. Raises SessionLost if it is not there any more."""
        return self._requests_over(self.session.pin_to(generation), ResponseCache(self.services.clock))

    # The other `SupervisionHooks`: the supervisor calls these methods on its thread.

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:
        self.tool_calls.listed(definitions or [], listing)
        profile = self.session.profile
        # Only a complete listing is remembered: after a failed one, a lazy server would have no tools and would never
        # be asked.
        if self.options.lazy and profile is not None and definitions is not None:
            self.services.memory.remember(profile, definitions)

    def last_known(self) -> KnownServer | None:
        return self.services.memory.recall()

    def adopted(self, context: SupervisionContext) -> None:
        if self._successor is None or self._successor[0] is not context:
            # Another `reconfigure` followed meanwhile; the supervisor will adopt its context next.
            return
        (_, changed, self.entry), self._successor = self._successor, None
        # Earlier observations belong to the present observer, so it stays; `reconfigure` gave the new settings to it.
        self.setup = msgspec.structs.replace(changed, observer=self.setup.observer)
        self._cache.forget()
        self.tool_calls.adopt(self.setup)
        self.features.adopt(self._new_gate("prompts"))
        self._instructions_gate = self._new_gate("instructions")
        self.session.adopted()

    def happened(self, event: Event) -> None:
        self._cache.happened(event)
        self.services.on_event(event)
        self.listeners.publish(event)


class WeakHooks:
    """The engine's `SupervisionHooks`, without a reference that keeps the engine alive.

    Once the engine is dropped, the server has no tools, its waiting calls are cancelled, and reports go nowhere.
    """

    def __init__(self, engine: ClientEngine) -> None:
        self.subscriptions = engine.subscriptions
        self._engine = weakref.ref(engine)

    def listing_begins(self) -> Listing:
        engine = self._engine()
        return Listing(0, 0.0) if engine is None else engine.listing_begins()

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:
        if (engine := self._engine()) is not None:
            engine.tools_listed(definitions, listing)

    def tools_remembered(self, definitions: list[Any]) -> None:
        if (engine := self._engine()) is not None:
            engine.tools_remembered(definitions)

    def refusal_of(self, tool: str) -> MCPError | None:
        engine = self._engine()
        return CallCancelled("its client was dropped") if engine is None else engine.refusal_of(tool)

    def safe_to_repeat(self, tool: str) -> bool:
        engine = self._engine()
        return engine is not None and engine.safe_to_repeat(tool)

    def last_known(self) -> KnownServer | None:
        engine = self._engine()
        return None if engine is None else engine.last_known()

    def adopted(self, context: SupervisionContext) -> None:
        if (engine := self._engine()) is not None:
            engine.adopted(context)

    def happened(self, event: Event) -> None:
        if (engine := self._engine()) is not None:
            engine.happened(event)


def _stop_when_dropped(engine: ClientEngine, session: Session) -> None:
    """Stop the server, with a ResourceWarning, if the engine is dropped without `disconnect` before the exit."""
    # The services themselves refer to the manager and to the client, so the finalizer must not hold them.
    pools = (engine.services.callbacks, engine.services.server_request_threads)
    weakref.finalize(engine, _dropped, engine.name, session, pools).atexit = False


def _dropped(name: str, session: Session, pools: tuple[CallbackPool, ...]) -> None:
    # The garbage collector calls this in any thread, and that thread may hold any lock. So nothing here takes a lock.
    def close_pools() -> None:
        # Other clients of the manager may still use the pools: a closed pool starts its threads again when it is used.
        for pool in pools:
            pool.close()

    if session.abandon(close_pools):
        warnings.warn(
            f"the MCP client {name!r} was dropped while it was connected; its server is stopped. "
            "Call disconnect(), or use the client or its manager in a 'with' statement",
            ResourceWarning,
            stacklevel=2,
        )


def _require_drain(drain: float) -> None:
    if drain != 0:
        require_seconds("drain", drain)
