"""The client of one MCP server."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack

import msgspec

from gaia.mcp.authorization.config import OnAuthorization
from gaia.mcp.authorization.configured import ConfiguredAuthorization
from gaia.mcp.client.abandonment import WeakHooks, stop_when_dropped
from gaia.mcp.client.client_options import ClientOptions, ClientSettings, SharedServices, settings_of
from gaia.mcp.client.features import ServerFeatures
from gaia.mcp.client.pinned_client import PinnedClient
from gaia.mcp.client.server_transport import transport_for
from gaia.mcp.client.session import new_session, supervision_context
from gaia.mcp.client.tool_calls import ToolCalls
from gaia.mcp.cluster.transport import PlacedTransport
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import MCPError, ServerUnavailable, ToolDenied
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS, ServerProfile
from gaia.mcp.protocol.server_questions import ElicitationMode
from gaia.mcp.requests.client_requests import ClientRequests
from gaia.mcp.requests.exchange import CallOptions, OnProgress
from gaia.mcp.requests.response_cache import ResponseCache
from gaia.mcp.requests.submitted_request import CallFuture
from gaia.mcp.supervision.client_features import ClientFeatures, OnElicitation, OnSampling, Roots, RootsSource
from gaia.mcp.supervision.context import Listing, SupervisionContext
from gaia.mcp.supervision.events import Event, Listener, Listeners, ServerState
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.mcp.tools.pins import PinGate, PinKind, ServerPins, pins_of_text
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.mcp.tools.tool_result import ToolResult
from gaia.mcp.transports.base import ChannelTransport, MCPTransport
from gaia.mcp.transports.command import split_command
from gaia.mcp.transports.stdio import StdioTransport
from gaia.runtime.clock import Clock, require_seconds
from gaia.runtime.log import enable_debug

_MAX_INSTRUCTIONS = 64 * 1024
"""Characters: more would fill a model's context by itself."""


class MCPClient:
    """Talks to one MCP server, and keeps it alive if its transport can be supervised (`StdioTransport` can).

    All methods may be called from any thread. As a context manager it connects on entering (`ServerUnavailable`, a
    RuntimeError, if that fails) and disconnects on leaving.
    """

    def __init__(
        self,
        name: str,
        transport: MCPTransport,
        debug: bool = False,
        *,
        on_elicitation: OnElicitation | None = None,
        elicitation_modes: tuple[ElicitationMode, ...] = ("form",),
        on_sampling: OnSampling | None = None,
        sampling_tools: bool = False,
        roots: RootsSource | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        """Nothing is started yet. `debug` shows gaia's log on stderr.

        What the server may ask of the application is declared to it as it is given here: `on_elicitation` asks a
        person, by forms and, if `elicitation_modes` has "url", by a URL; `on_sampling` asks a model, which may call
        tools with `sampling_tools`; `roots` are folders, or a function of them. They run on threads of their own.

        `settings` are the fields of `ClientOptions`, which says what they mean; `clock` and `rng` are for tests. Raises
        ValueError for a setting that cannot be used.
        """
        if debug:
            enable_debug()
        self.name = name
        """What this program calls the server."""
        self.transport = transport
        """What the constructor was given, or `from_config` has made."""
        self.debug = debug
        """Whether gaia's log is shown on stderr."""
        self.entry: ServerConfig | None = None
        """The entry of a configuration that it was made of, if it was."""
        self.listeners = Listeners()
        """Told of the events of this server."""
        features = ClientFeatures(
            on_elicitation=on_elicitation,
            elicitation_modes=elicitation_modes,
            on_sampling=on_sampling,
            sampling_tools=sampling_tools,
            roots=None if roots is None else Roots(roots),
        )
        self._clock = clock
        self._assemble(ClientOptions(features=features, **settings), SharedServices.of_one_client(name, clock, rng))

    def _assemble(self, options: ClientOptions, services: SharedServices) -> None:
        self._options = options
        self._services = services
        self._successor: tuple[SupervisionContext, MCPClient] | None = None
        """What `reconfigure` was given last, and what its supervisor knows it by. Set before that is told."""
        self.subscriptions = Subscriptions()
        """What the server is to tell; see `subscribe_resource` and `set_logging_level`."""
        self._observer = Observer(self.name, policy=options.capture_content)
        self._cache = ResponseCache(services.clock)
        self._server_requests = ServerRequests(
            self.name, options.features, services.server_request_threads, services.clock, options.question_timeout
        )
        self._callbacks = callbacks = services.callbacks.group(self.name)
        self._hooks = hooks = WeakHooks(self)
        self._session = new_session(
            self.name, self.transport, options, services, hooks, self._server_requests, self._observer, callbacks
        )
        stop_when_dropped(self, self.name, self._session, services)
        trips = ClientRequests(
            self._session, self._server_requests, self._cache, self._observer, services.clock, services.steps
        )
        self.trips = trips
        """Makes the requests."""
        self.tool_calls = ToolCalls(
            self.name, options, services, trips, self._observer, self._cache, callbacks, hooks.happened
        )
        """The part that calls tools; the manager calls it directly."""
        self.features = ServerFeatures(self.trips, self.subscriptions, self._new_gate("prompts"))
        """The part that has resources, prompts and log messages, as exchanges."""
        self._instructions_gate = self._new_gate("instructions")

    def _new_gate(self, kind: PinKind) -> PinGate:
        name, pins = self.name, self._options.pins
        store = self._services.pins if pins is None else lambda _: pins
        return PinGate(name, self._options.pin_tools or "off", lambda: store(name), self._hooks.happened, kind)

    # Other constructors.

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
        on_elicitation: OnElicitation | None = None,
    ) -> MCPClient:
        """A client for one entry of ``mcpServers``; docs/configuration.md describes the keys. Not connected yet.

        `timeout`, in seconds, is used when the entry has none. ``${VAR}`` is expanded whenever the server is started.
        `pins` are where the constructor has them. `on_authorization` takes a person to where they log in, if a server
        that is reached over HTTP wants that; without it, it is done beforehand, with ``gaia mcp login``.
        `on_elicitation` is the constructor's.
        Raises ValueError for an entry that cannot be used, saying which key is wrong.
        """
        server = ServerConfig.from_dict(name, config)
        timeout = server.timeout if "timeout" in config else timeout
        settings = settings_of(server, pins, own_restart="restart" in config)
        transport = transport_for(server, timeout, debug, on_authorization)
        clock = None if server.in_process is None else server.in_process.clock
        client = cls(name, transport, debug, on_elicitation=on_elicitation, clock=clock, **settings)
        client.entry = server
        return client

    @classmethod
    def from_command(cls, name: str, command: str, timeout: float = 30, debug: bool = False) -> MCPClient:
        """A client for a command line, which is split as a shell would but never run by one. Prefer `from_config`."""
        program, *args = split_command(command)
        return cls(name, StdioTransport(program, args, timeout=timeout, debug=debug), debug)

    def join(self, services: SharedServices, defaults: ClientOptions) -> None:
        """For the manager, before `connect`: use its services, and `defaults` for what the client's options leave open.

        The parts are made anew with them.
        """
        authorization = self.transport.authorization if isinstance(self.transport, ChannelTransport) else None
        if isinstance(authorization, ConfiguredAuthorization):
            authorization.on_authorization = authorization.on_authorization or services.on_authorization
        if self._clock is not None:
            # It counts in a manager as well.
            services = msgspec.structs.replace(services, clock=self._clock)
        self._assemble(self._options.or_else(defaults), services)

    # Connecting and disconnecting.

    def connect(self, *, keep_trying: bool = False) -> bool:
        """Start the server and shake hands. True when it is ready; False if not, and `last_error` says why.

        Harmless when it is already connected. After `disconnect` it starts the server anew.

        A `connect` that returns False leaves nothing behind, and the server is not tried again. With `keep_trying` it
        is, by its restart policy, in the background and until `disconnect`: then False says only that it is not ready
        yet. A server that was ready once is tried again in any case. Over a transport that cannot be supervised,
        `keep_trying` has no effect.
        """
        connected = self._session.connect(keep_trying=keep_trying)
        if not connected and not self._session.keeps_trying:
            # An application does not disconnect what it could not connect.
            self._close_services()
        return connected

    def wake(self) -> None:
        """Start a server that is at rest, as a call would, without waiting for it. Does nothing in any other state."""
        self._session.wake()

    def restart(self, *, keep_trying: bool = False) -> bool:
        """Give the server a fresh process. True when that is ready.

        If the server is ready there is no gap: the old process goes on until the fresh one has shaken hands and listed
        its tools. Then new calls go to the fresh one, while the old one finishes the calls that it has, for
        `drain_timeout` seconds at most; after that, a call ends as in a crash. If the fresh one cannot be started, or
        takes longer than the `timeout` of the transport, the old one goes on, `last_error` says why, and this is False.

        A server that is not ready, or cannot be supervised, is disconnected and connected, with `keep_trying` as for
        `connect`. Calls under way end as cancelled then.
        """
        replaced = self._session.replace()
        if replaced is not None:
            return replaced
        self._session.disconnect(self._forget)
        return self.connect(keep_trying=keep_trying)

    def can_follow(self, other: MCPClient) -> bool:
        """Whether `reconfigure` of the other client can go on with the configuration of this one.

        They must take the time from the same clock, and servers that are placed on a cluster change in other ways.
        """
        is_placed = isinstance(self.transport, PlacedTransport) or isinstance(other.transport, PlacedTransport)
        return self._clock is other._clock and not is_placed

    def reconfigure(self, successor: MCPClient) -> MCPError | None:
        """For the manager: go on with the configuration of `successor`, which has joined it and was never connected.

        If the server is ready there is no gap, as for `restart`: the settings of `successor` hold from the moment on
        when a process that was started with them takes over. If it cannot be started, nothing changes, and the error is
        returned. A server that is not ready gets the settings at once, and is started with them; None says that it is
        ready then, or was stopped before, or is at rest. Backlog, subscriptions and listeners stay.
        """
        transport = successor.transport
        if not isinstance(transport, ChannelTransport):
            return MCPError(f"server {self.name!r} cannot be supervised with its new transport")
        observer = Observer(self.name, transport.network, successor._options.capture_content)
        context = supervision_context(
            self.name,
            transport,
            successor._options,
            successor._services,
            self._hooks,
            self._server_requests,
            observer,
            self._callbacks,
        )
        self._successor = (context, successor)
        return self._session.reconfigure(context)

    def disconnect(self, *, drain: float = 0.0) -> None:
        """Stop the server and everything it started, and forget its tools. Waiting calls end as cancelled.

        With `drain`, a server that is ready has so many seconds to finish the calls that it has; new calls are refused
        meanwhile. Raises ValueError for a `drain` that is no duration.
        """
        _require_drain(drain)
        self._session.disconnect(self._forget, drain)
        self.listeners.end()

    def _forget(self) -> None:
        self._server_requests.withdraw_all()
        self._cache.forget()
        self.tool_calls.forget()
        self.tool_calls.output_checks.end()
        self._close_services()

    def request_disconnect(self, *, drain: float = 0.0) -> None:
        """Begin what `disconnect` does, without waiting for it. `disconnect` has to follow."""
        _require_drain(drain)
        self._session.request_disconnect(drain)

    def _close_services(self) -> None:
        if self._services.owned:
            self._services.close()

    @property
    def keeps_trying(self) -> bool:
        """Whether the server is started again after a failure, if its restart policy permits; see `connect`."""
        return self._session.keeps_trying

    def is_connected(self) -> bool:
        """True while the server is ready for calls."""
        return self._session.is_connected()

    def __enter__(self) -> MCPClient:
        if not self.connect():
            reason = self.last_error or "it was disconnected meanwhile"
            raise ServerUnavailable(f"Failed to connect to server {self.name!r}: {reason}")
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def set_roots(self, roots: RootsSource) -> None:
        """Offer other folders from now on; a connected server of the handshake era is told that they changed.

        Raises ValueError for what is no root, and RuntimeError if the client was made without any `roots`, because
        then its server was told that there are none to ask for.
        """
        offered = self._options.features.roots
        if offered is None:
            raise RuntimeError(f"client {self.name!r} was made without roots; give it some then, be it an empty list")
        offered.replace(roots)
        self.announce_roots()

    def announce_roots(self) -> None:
        """Tell the server that the roots changed, if its protocol has a notification for that."""
        # In the stateless era it is gone; each request asks anew (2026-07-28, "Roots").
        if self.protocol_version in HANDSHAKE_REVISIONS:
            self._session.notify("notifications/roots/list_changed")

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every `Event` of this server, one at a time and in order, on a callback thread.

        If the listener is so slow that more than 10,000 events or 4 MiB wait, the oldest are dropped, and it gets an
        `EventsDropped`. Returns a function that ends the subscription. Clients of a manager report to the manager's
        listeners too.
        """
        return self.listeners.subscribe(listener, self._services.callbacks)

    # What is known about the server.

    @property
    def state(self) -> ServerState:
        """Where the server stands at this moment."""
        return self._session.state

    @property
    def status(self) -> ServerStatus:
        """The state with the figures of this moment: restarts, calls, latencies, the last error."""
        return self._session.status(len(self.tool_calls.catalog))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status.summary}>"

    @property
    def last_error(self) -> str | None:
        """The last thing that went wrong with the server itself; None if nothing has."""
        return self._session.last_error

    @property
    def server_info(self) -> dict[str, Any]:
        """Name and version that the server gave in its handshake; empty before the first one."""
        profile = self._session.profile
        return {} if profile is None else dict(profile.server_info)

    @property
    def protocol_version(self) -> str | None:
        """The protocol revision of the last handshake, such as ``2025-11-25``; None before the first one."""
        profile = self._session.profile
        return None if profile is None else profile.protocol_version

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the server said in its handshake that it offers, by name; empty before the first one."""
        profile = self._session.profile
        return {} if profile is None else dict(profile.capabilities)

    @property
    def instructions(self) -> str | None:
        """The server's hints for a model. They come from the server, so they are as trustworthy as the server.

        At most 64 Ki characters of them. With pinned tools they are pinned too, when they are first read here; under
        ``block`` they are None if they are not the approved ones. That reads a file.
        """
        profile = self._session.profile
        if profile is None or profile.instructions is None:
            return None
        instructions = profile.instructions[:_MAX_INSTRUCTIONS]
        if self._instructions_gate.mode == "off":
            return instructions
        pins = pins_of_text(instructions)
        return None if self._instructions_gate.review_pins(pins, pins) else instructions

    # Tools.

    @property
    def tool_filter(self) -> ToolFilter:
        """Which tools may be listed and called: the server's filter together with the manager's."""
        return self._options.tool_filter

    def list_tools(self, refresh: bool = False) -> list[MCPTool]:
        """The tools on offer, filtered; from the cache unless `refresh`. Empty if the server cannot list them.

        The cache follows the server: it is filled by each handshake and by `notifications/tools/list_changed`.
        """
        return list(self.tool_calls.offered(refresh=refresh))

    @property
    def denied_tools(self) -> frozenset[str]:
        """Names of tools that the server has and a filter hides."""
        return self.tool_calls.catalog.denied

    @property
    def blocked_tools(self) -> Mapping[str, MCPTool]:
        """Tools that the server has and that are withheld until their definitions are approved, by name."""
        return self.tool_calls.catalog.blocked

    @property
    def _tools(self) -> list[MCPTool] | None:
        """The cache, under the name that the specification gives it; None before the first listing."""
        catalog = self.tool_calls.catalog
        return list(catalog.tools) if catalog.listed else None

    @_tools.setter
    def _tools(self, tools: Iterable[MCPTool] | None) -> None:
        self.tool_calls.assume(tools)

    def refusal_of(self, tool_name: str) -> ToolDenied | None:
        """Why a tool, by the server's own name for it, must not be called; None if it may."""
        return self.tool_calls.refusal_of(tool_name)

    def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        reset_timeout_on_progress: bool | None = None,
        max_timeout: float | None = None,
    ) -> ToolResult:
        """Call a tool by the server's own name for it, and wait for the result.

        Returns the result as the server sent it (``content``, ``isError``, ``structuredContent``), with the text as
        ``error`` if the tool reports one; or ``{"error": …, "error_type": …, "delivery": …}`` if the call failed.
        `timeout` is in seconds and covers waiting, writing and the answer.
        ``on_progress(progress, total, message)`` runs in this thread. With `reset_timeout_on_progress` the call has its
        whole timeout again with each progress, up to `max_timeout`; the client's own settings count where they are
        None.

        Raises RuntimeError when the client was never connected or was disconnected, and ValueError for arguments that
        are not a dict of JSON values, and for a `timeout` or `max_timeout` that is not above 0 and at most a year.
        """
        options = CallOptions(timeout, on_progress, reset_timeout_on_progress, max_timeout)
        return self.tool_calls.call(tool_name, arguments, options)

    def submit_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        reset_timeout_on_progress: bool | None = None,
        max_timeout: float | None = None,
    ) -> CallFuture:
        """Like `call_tool`, without waiting: a future of the result, which raises the exceptions of `gaia.mcp.errors`.

        The future is done when the call is, whatever callbacks do. They and `on_progress` run on a callback thread,
        one after the other, for up to 32 futures of a server at the same time; they may wait for other calls, but not
        for the callbacks of these. `cancel()` also tells the server. A call that is not allowed, or a client that is
        not connected, raises at once.
        """
        options = CallOptions(timeout, on_progress, reset_timeout_on_progress, max_timeout)
        return self.tool_calls.submit(tool_name, arguments, options)

    def pinned(self) -> PinnedClient:
        """A handle that stays with one replica of a server on a cluster, for work that needs what a server remembers.

        It is a context manager. Several handles share the replicas evenly. Raises NotOffered for a server that has no
        `placement`, ServerUnavailable if none of its replicas is ready, and NotConnected without `connect`.
        """
        session = self._session.bind()
        services = self._services
        trips = ClientRequests(
            session,
            self._server_requests,
            ResponseCache(services.clock),
            self._observer,
            services.clock,
            services.steps,
        )
        features = ServerFeatures(trips, self.subscriptions, self._new_gate("prompts"))
        return PinnedClient(session, self.tool_calls.over(trips), features)

    def create_tool_wrapper(self, tool: MCPTool) -> Callable[..., ToolResult]:
        """A function that calls `tool` with its keyword arguments, for an agent's registry."""

        def wrapper(**kwargs: Any) -> ToolResult:
            return self.call_tool(tool.name, kwargs)

        wrapper.__name__ = tool.name
        wrapper.__doc__ = tool.description
        return wrapper

    # Resources, prompts and everything else. These methods raise the exceptions of `gaia.mcp.errors`.

    def request(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send any request and return its result object. Raises `MCPError`; denied tools stay denied."""
        if method == "tools/call":
            params = params or {}
            options = CallOptions(timeout)
            return self.trips.request(self.tool_calls.new_request(params.get("name"), params.get("arguments"), options))
        return self.trips.run(self.features.request(method, params, timeout))

    def list_resources(self) -> list[dict[str, Any]]:
        """``{"uri": …, "name": …}`` each, and what the server adds of title, description, mimeType, size."""
        return self.trips.run(self.features.list_resources())

    def list_resource_templates(self) -> list[dict[str, Any]]:
        """``{"uriTemplate": …, "name": …}`` each, and what the server adds of title, description, mimeType.

        Empty for a server that does not know the method, as many do that have resources.
        """
        return self.trips.run(self.features.list_resource_templates())

    def read_resource(self, uri: str) -> dict[str, Any]:
        """``{"contents": [{"uri": …, "mimeType": …, "text": … or "blob": …}]}``; a blob is in Base64."""
        return self.trips.run(self.features.read_resource(uri))

    def subscribe_resource(self, uri: str) -> None:
        """Receive a `ResourceUpdated` event for each change of a resource, until it is unsubscribed.

        Restarts of the server do not end it. Raises NotOffered if the server does not tell changes.
        """
        self.trips.run(self.features.subscribe_resource(uri))

    def unsubscribe_resource(self, uri: str) -> None:
        """End `subscribe_resource`; harmless if the resource was not subscribed."""
        self.trips.run(self.features.unsubscribe_resource(uri))

    def list_prompts(self) -> list[dict[str, Any]]:
        """``{"name": …, "title": …, "description": …, "arguments": [{"name": …, "required": …}]}`` each."""
        return self.trips.run(self.features.list_prompts())

    def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
        """``{"description": …, "messages": [{"role": …, "content": …}]}``."""
        return self.trips.run(self.features.get_prompt(name, arguments))

    def complete(
        self, ref: dict[str, Any], argument: dict[str, str], *, context: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """``{"completion": {"values": […], "total": …, "hasMore": …}}`` for the `argument` ``{"name": …, "value": …}``.

        `ref` is ``{"type": "ref/prompt", "name": …}`` or ``{"type": "ref/resource", "uri": …}``; `context` are the
        arguments that have values already.
        """
        return self.trips.run(self.features.complete(ref, argument, context))

    def set_logging_level(self, level: str) -> None:
        """Receive the server's log messages of this severity and above, as `ServerLog` events; also after restarts.

        `level` is one of debug, info, notice, warning, error, critical, alert, emergency; anything else is a
        ValueError. Raises NotOffered if the server does not send log messages.
        """
        self.trips.run(self.features.set_logging_level(level))

    # What the supervisor calls, on its thread (`SupervisionHooks`), with `refusal_of` and `subscriptions`.

    def listing_begins(self) -> Listing:
        return self.tool_calls.listing_begins()

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:
        self.tool_calls.listed(definitions or [], listing)
        profile = self._session.profile
        # A server that was never asked again, because it is lazy, would have no tools for ever after one bad start.
        if self._options.lazy and profile is not None and definitions is not None:
            self._services.memory.remember(profile, definitions)

    def tools_remembered(self, definitions: list[Any]) -> None:
        self.tool_calls.remembered(definitions)

    def safe_to_repeat(self, tool_name: str) -> bool:
        return self.tool_calls.safe_to_repeat(tool_name)

    def last_known(self) -> tuple[ServerProfile | None, list[Any]] | None:
        known = self._services.memory.recall()
        return None if known is None else (known.profile, known.tools)

    def adopted(self, context: SupervisionContext) -> None:
        candidate = self._successor
        if candidate is None or candidate[0] is not context:
            # Still another configuration was given meanwhile, and is about to follow.
            return
        self._successor, successor = None, candidate[1]
        self.transport = successor.transport
        self.entry = successor.entry
        self._options, self._services = successor._options, successor._services
        self._cache.forget()
        self.tool_calls.adopt(self._options, self._services, self._hooks.happened)
        self.features.adopt(self._new_gate("prompts"))
        self._instructions_gate = self._new_gate("instructions")
        self._session.adopted()

    def happened(self, event: Event) -> None:
        self._cache.happened(event)
        self._services.on_event(event)
        self.listeners.publish(event)


def _require_drain(drain: float) -> None:
    if drain != 0:
        require_seconds("drain", drain)
