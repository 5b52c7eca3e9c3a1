"""The client of one MCP server."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from typing import Any

from gaia import __version__
from gaia.log import enable_debug, get_logger
from gaia.mcp.client.authorization.config import OnAuthorization
from gaia.mcp.client.authorization.configured import ConfiguredAuthorization
from gaia.mcp.client.direct_session import DirectSession
from gaia.mcp.client.observation.request_spans import Observer
from gaia.mcp.client.output_validation import OutputValidation
from gaia.mcp.client.pinning.gate import ToolGate
from gaia.mcp.client.pinning.lock_file import ServerPins, default_pins
from gaia.mcp.client.protocol.elicitation import ElicitationMode
from gaia.mcp.client.protocol.era import ClientIdentity, ServerProfile
from gaia.mcp.client.protocol.handshake_era import HANDSHAKE_REVISIONS
from gaia.mcp.client.protocol.negotiation import Negotiation
from gaia.mcp.client.response_cache import ResponseCache
from gaia.mcp.client.round_trips import RoundTrips
from gaia.mcp.client.rpc.clock import Clock, SystemClock
from gaia.mcp.client.server_config import OutputMode, PinMode, ServerConfig
from gaia.mcp.client.server_transport import login_for, transport_for
from gaia.mcp.client.session import Session, SupervisedSession
from gaia.mcp.client.supervision.callbacks import CallbackPool
from gaia.mcp.client.supervision.client_features import (
    ClientFeatures,
    OnElicitation,
    OnSampling,
    Roots,
    RootsSource,
)
from gaia.mcp.client.supervision.context import SupervisionContext, SupervisionSettings
from gaia.mcp.client.supervision.events import Event, Listener, Listeners, ServerState
from gaia.mcp.client.supervision.policy import RestartPolicy
from gaia.mcp.client.supervision.server_requests import ServerRequests
from gaia.mcp.client.supervision.status import ServerStatus
from gaia.mcp.client.supervision.subscriptions import Subscriptions
from gaia.mcp.client.tool import MCPTool
from gaia.mcp.client.tool_calls import ToolCalls
from gaia.mcp.client.tool_catalog import ToolCatalog
from gaia.mcp.client.tool_filter import ALLOW_ALL, ToolFilter
from gaia.mcp.client.transports.base import ChannelTransport, MCPTransport
from gaia.mcp.client.transports.command import split_command
from gaia.mcp.client.transports.stdio import StdioTransport
from gaia.telemetry.content import ContentPolicy

__all__ = ["MCPClient", "MCPTool"]

logger = get_logger(__name__)


class MCPClient(ToolCalls):
    """Talks to one MCP server, and keeps it alive if its transport can be supervised (`StdioTransport` can).

    All methods may be called from any thread. As a context manager it connects on entering (RuntimeError if that
    fails) and disconnects on leaving.
    """

    def __init__(
        self,
        name: str,
        transport: MCPTransport,
        debug: bool = False,
        *,
        tool_filter: ToolFilter = ALLOW_ALL,
        pin_tools: PinMode | None = None,
        pins: ServerPins | None = None,
        restart_policy: RestartPolicy | None = None,
        health_interval: float = 30.0,
        health_timeout: float = 10.0,
        max_pending: int = 1024,
        protocol: str = "auto",
        probe_timeout: float = 5.0,
        output_validation: OutputMode | None = None,
        reset_timeout_on_progress: bool = False,
        max_timeout: float = 3600.0,
        capture_content: ContentPolicy | None = None,
        on_elicitation: OnElicitation | None = None,
        elicitation_modes: tuple[ElicitationMode, ...] = ("form",),
        on_sampling: OnSampling | None = None,
        sampling_tools: bool = False,
        roots: RootsSource | None = None,
        question_timeout: float = 600.0,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Nothing is started yet. Durations in seconds; `clock` and `rng` are for tests.

        An idle server is asked for a sign of life every `health_interval`, and counts as hung after two silences of
        `health_timeout`. `max_pending` bounds the calls that may wait at once. `debug` shows gaia's log on stderr.

        `protocol` is "auto" (ask the server), "handshake" or "stateless" (the era), or a revision
        such as "2025-11-25". With "auto" a server gets `probe_timeout` to show that it speaks the stateless era. A
        transport with the four methods alone is spoken to in the handshake era, unless `protocol` says otherwise.

        `pin_tools` says what to do about tools whose definitions are not those in `pins`; None means "off", or what
        the manager says. `pins` are by default in ``~/.gaia/mcp_tools.lock.json``, under the client's name.

        `output_validation` says what to do about results that do not fit the `outputSchema` of their tool: "off",
        "warn" (log it; the default) or "error" (the call fails). With `reset_timeout_on_progress` a call has its whole
        timeout again with each progress, up to `max_timeout`.

        `capture_content` says how much of arguments and results goes into traces; see `ContentPolicy`.

        What the server may ask of us is declared to it as it is given here: `on_elicitation` asks a person, by forms
        and, if `elicitation_modes` has "url", by a URL; `on_sampling` asks a model, which may call tools with
        `sampling_tools`; `roots` are folders, or a function of them. They run on threads of their own, and get
        `question_timeout` for each answer.
        """
        if debug:
            enable_debug()
        self.name = name
        self.transport = transport
        self.debug = debug
        self.tool_filter = tool_filter
        self._manager_filter = ALLOW_ALL
        self._pin_tools = pin_tools
        self._gate = self._new_gate(pin_tools, (lambda: default_pins(name)) if pins is None else (lambda: pins))
        self._restart_policy = restart_policy
        self._health_interval = health_interval
        self._health_timeout = health_timeout
        self._max_pending = max_pending
        self._protocol = protocol
        self._negotiation = Negotiation(protocol, probe_timeout)
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not cryptography
        self._features = ClientFeatures(
            on_elicitation=on_elicitation,
            elicitation_modes=elicitation_modes,
            on_sampling=on_sampling,
            sampling_tools=sampling_tools,
            roots=None if roots is None else Roots(roots),
        )
        self._question_timeout = question_timeout
        self._output_validation = output_validation
        self._reset_timeout_on_progress = reset_timeout_on_progress
        self._max_timeout = max_timeout
        self._observer = Observer(name, policy=capture_content)
        self._outputs = self._new_outputs(output_validation or "warn")
        self.subscriptions = Subscriptions()
        """What the server is to tell; see `subscribe_resource` and `set_logging_level`."""
        self._cache = ResponseCache(self._clock)
        self._callbacks = CallbackPool(name)
        self._server_request_threads = CallbackPool(name, "questions")
        self._owns_callbacks = True
        self._listeners = Listeners()
        self._on_event: Callable[[Event], None] = lambda _: None
        self._on_tools: Callable[[tuple[MCPTool, ...]], None] = lambda _: None
        self._catalog = ToolCatalog(name)

    # Making one.

    @classmethod
    def from_config(
        cls,
        name: str,
        config: Mapping[str, Any],
        timeout: float = 30,
        debug: bool = False,
        *,
        pins: ServerPins | None = None,
        on_authorization: OnAuthorization | None = None,
    ) -> MCPClient:
        """A client for one entry of ``mcpServers``; see `ServerConfig` for the keys. Not connected yet.

        `timeout`, in seconds, is used when the entry has none. ``${VAR}`` is expanded whenever the server is started.
        `pins` are where the constructor has them. `on_authorization` takes a person to where they log in, if a server
        that is reached over HTTP wants that; without it, it is done beforehand, with ``gaia mcp login``.
        Raises ValueError for an entry that cannot be used, saying which key is wrong.
        """
        server = ServerConfig.from_dict(name, config)
        authorization = login_for(server, on_authorization)
        transport = transport_for(server, server.timeout if "timeout" in config else timeout, debug, authorization)
        return cls(
            name,
            transport,
            debug,
            tool_filter=ToolFilter(allow=server.enabled_tools, deny=server.disabled_tools),
            pin_tools=server.pin_tools,
            pins=pins,
            restart_policy=server.restart if "restart" in config else None,
            health_interval=server.health_interval,
            health_timeout=server.health_timeout,
            max_pending=server.max_pending,
            protocol="handshake" if server.transport == "sse" and server.protocol == "auto" else server.protocol,
            probe_timeout=server.probe_timeout,
            output_validation=server.output_validation,
            reset_timeout_on_progress=server.reset_timeout_on_progress,
            max_timeout=server.max_timeout,
            capture_content=ContentPolicy(server.capture_content, server.capture_content_tools),
        )

    @classmethod
    def from_command(cls, name: str, command: str, timeout: float = 30, debug: bool = False) -> MCPClient:
        """A client for a command line, which is split as a shell would but never run by one. Prefer `from_config`."""
        program, *args = split_command(command)
        return cls(name, StdioTransport(program, args, timeout=timeout, debug=debug), debug)

    def bind(
        self,
        *,
        tool_filter: ToolFilter,
        pin_tools: PinMode,
        pins: Callable[[], ServerPins],
        restart_policy: RestartPolicy | None,
        output_validation: OutputMode,
        features: ClientFeatures,
        on_authorization: OnAuthorization | None,
        callbacks: CallbackPool,
        server_request_threads: CallbackPool,
        on_event: Callable[[Event], None],
        on_tools: Callable[[tuple[MCPTool, ...]], None],
    ) -> None:
        """For the manager, before `connect`: share its filter, pins, policy, features, threads and listeners.

        `on_tools` is given the tools on offer, usually on the supervisor's thread, whenever they may have changed.
        """
        self._manager_filter = tool_filter
        self._gate = self._new_gate(self._pin_tools or pin_tools, pins)
        self._restart_policy = self._restart_policy or restart_policy
        self._outputs = self._new_outputs(self._output_validation or output_validation)
        self._features = self._features.or_else(features)
        authorization = self.transport.authorization if isinstance(self.transport, ChannelTransport) else None
        if isinstance(authorization, ConfiguredAuthorization):
            authorization.on_authorization = authorization.on_authorization or on_authorization
        self._callbacks = callbacks
        self._server_request_threads = server_request_threads
        self._owns_callbacks = False
        self._on_event = on_event
        self._on_tools = on_tools

    # Life.

    def connect(self) -> bool:
        """Start the server and shake hands. True when it is ready; False if not, and `last_error` says why.

        Harmless when it is already connected. After `disconnect` it starts the server anew.
        """
        connected = self._session.connect()
        if not connected and self.last_error is not None:
            logger.error("connect_failed", server=self.name, error=self.last_error)
        if not connected and self._owns_callbacks:
            # Whoever could not connect does not think of disconnecting.
            self._callbacks.close()
        return connected

    def disconnect(self) -> None:
        """Stop the server and everything it started, and forget its tools. Waiting calls end as cancelled."""
        self._session.disconnect()
        self._server_requests.withdraw_all()
        self._cache.forget()
        self._on_tools(())
        self._announce(self._catalog.clear())
        if self._owns_callbacks:
            self._callbacks.close()
            self._server_request_threads.close()

    def request_disconnect(self) -> None:
        """Begin what `disconnect` does, without waiting for it. `disconnect` has to follow."""
        self._session.request_disconnect()

    def is_connected(self) -> bool:
        """True while the server is ready for calls."""
        return self._session.is_connected()

    def __enter__(self) -> MCPClient:
        if not self.connect():
            raise RuntimeError(f"Failed to connect to server {self.name!r}: {self.last_error}")
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def set_roots(self, roots: RootsSource) -> None:
        """Offer other folders from now on; a connected server of the handshake era is told that they changed.

        Raises ValueError for what is no root, and RuntimeError if the client was made without any `roots`, because
        then its server was told that there are none to ask for.
        """
        offered = self._features.roots
        if offered is None:
            raise RuntimeError(f"client {self.name!r} was made without roots; give it some then, be it an empty list")
        offered.replace(roots)
        self.announce_roots()

    def announce_roots(self) -> None:
        """Tell the server that the roots changed, if it wants to be told."""
        profile = self._profile
        # In the stateless era the notification is gone; each request asks anew (2026-07-28, "Roots").
        if profile is not None and profile.protocol_version in HANDSHAKE_REVISIONS:
            self._session.notify("notifications/roots/list_changed")

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every `Event` of this server, in order, on a callback thread; returns the way to end it.

        For a client of its own; clients of a manager report to the manager's listeners.
        """
        return self._listeners.subscribe(listener, self._callbacks.lane())

    # What is known about the server.

    @property
    def state(self) -> ServerState:
        return self._session.state

    @property
    def status(self) -> ServerStatus:
        return self._session.status(len(self._catalog))

    @property
    def last_error(self) -> str | None:
        """The last thing that went wrong with the server itself; None if nothing has."""
        return self._session.last_error

    @property
    def _profile(self) -> ServerProfile | None:
        return self._session.profile

    # Inside.

    @functools.cached_property
    def _session(self) -> Session:
        """Made when first needed, because the manager may still `bind` before that."""
        # Two threads may get here at once; both go away with the same one.
        session: Session = self.__dict__.setdefault("_session", self._new_session())
        return session

    @functools.cached_property
    def _server_requests(self) -> ServerRequests:
        """Made when first needed, as `_session` is."""
        server_requests = ServerRequests(
            self.name, self._features, self._server_request_threads, self._clock, self._question_timeout
        )
        made: ServerRequests = self.__dict__.setdefault("_questions", server_requests)
        return made

    @functools.cached_property
    def _trips(self) -> RoundTrips:
        """Every request goes this way."""
        return RoundTrips(self._session, self._server_requests, self._cache, self._clock)

    def _new_session(self) -> Session:
        identity = ClientIdentity("GAIA MCP Client", __version__, self._features.capabilities)
        if not isinstance(self.transport, ChannelTransport):
            negotiation = Negotiation("handshake") if self._protocol == "auto" else self._negotiation
            # Nothing is known of its secrets, if it has any.
            self._observer.redact = str
            return DirectSession(self.name, self.transport, identity, negotiation, self._observer, self._clock)
        self._observer.network = self.transport.network
        settings = SupervisionSettings(
            identity=identity,
            negotiation=self._negotiation,
            ready_timeout=self.transport.timeout,
            policy=self._restart_policy or RestartPolicy(),
            health_interval=self._health_interval,
            health_timeout=self._health_timeout,
            max_pending=self._max_pending,
        )
        return SupervisedSession(
            SupervisionContext(
                name=self.name,
                transport=self.transport,
                settings=settings,
                hooks=self,
                server_requests=self._server_requests,
                clock=self._clock,
                rng=self._rng,
                observer=self._observer,
                executor=self._callbacks.lane().post,
            )
        )

    def _new_outputs(self, mode: OutputMode) -> OutputValidation:
        return OutputValidation(self.name, mode, self._redacted)

    def _redacted(self, text: str) -> str:
        redact = self._observer.redact
        return text if redact is None else redact(text)

    def _new_gate(self, mode: PinMode | None, pins: Callable[[], ServerPins]) -> ToolGate:
        return ToolGate(self.name, mode or "off", pins, self.happened)

    def _forget(self, method: str) -> bool:
        return self._cache.forget(method)

    def _subscriptions_changed(self) -> None:
        self._session.subscriptions_changed()

    # What the supervisor calls, on its thread (`SupervisionHooks`).

    def happened(self, event: Event) -> None:
        self._cache.happened(event)
        self._on_event(event)
        self._listeners.publish(event)
