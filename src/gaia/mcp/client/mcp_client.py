"""`MCPClient`: the client of one MCP server."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, Unpack

from gaia.mcp.authorization.config import OnAuthorization
from gaia.mcp.client.client_engine import ClientEngine
from gaia.mcp.client.client_options import ClientKeywords, ClientOptions, SharedServices, options_of, settings_of
from gaia.mcp.client.pinned_client import PinnedClient
from gaia.mcp.client.server_transport import transport_for
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import ServerUnavailable
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS
from gaia.mcp.protocol.exchange import Exchange
from gaia.mcp.requests.exchange import CallKeywords, CallOptions
from gaia.mcp.requests.submitted_request import CallFuture
from gaia.mcp.supervision.client_features import ClientFeatures, OnElicitation, RootsSource
from gaia.mcp.supervision.events import Listener, ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.tools.pins import ServerPins
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.mcp.tools.tool_result import ToolResult
from gaia.mcp.transports.base import MCPTransport
from gaia.mcp.transports.command import split_command
from gaia.mcp.transports.stdio import StdioTransport
from gaia.runtime.clock import Clock, SystemClock
from gaia.runtime.log import enable_debug
from gaia.runtime.signatures import spells_out

T = TypeVar("T")


class MCPClient:
    """Talks to one MCP server, and keeps it alive if its transport can be supervised (`StdioTransport` can).

    All methods may be called from any thread. As a context manager it connects on entering, which may raise
    `ServerUnavailable` (a RuntimeError), and disconnects on leaving.
    """

    @spells_out(ClientKeywords, ClientFeatures(), ClientOptions())
    def __init__(
        self,
        name: str,
        transport: MCPTransport,
        debug: bool = False,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """Make a client without starting anything. `debug` shows gaia's log on stderr.

        These features are declared to the server: `on_elicitation` asks a person, by forms and, if `elicitation_modes`
        has "url", by a URL; `on_sampling` asks a model, which may call tools if `sampling_tools` is true; `roots` are
        folders, or a function that returns them. The functions run on threads of their own.

        The other keywords are the settings of `ClientOptions`; `clock` and `rng` are for tests. Raises ValueError for a
        setting that cannot be used.
        """
        if debug:
            enable_debug()
        self.name = name
        """This program's name for the server."""
        self.debug = debug
        """Whether gaia's log is shown on stderr."""
        options = options_of(keywords)
        services = SharedServices.of(name, owned=True, clock=clock or SystemClock(), rng=rng or random.Random())  # noqa: S311 - jitter, not cryptography
        self._engine = ClientEngine(name, transport, options, services, clock)

    @property
    def transport(self) -> MCPTransport:
        """The transport now in use; `MCPClientManager.apply` may replace it."""
        return self._engine.transport

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
        `on_authorization` takes a person to the login page of a server over HTTP; without it, the person logs in
        beforehand with ``gaia mcp login``. Raises ValueError for an entry that cannot be used, saying which key is
        wrong.
        """
        server = ServerConfig.from_dict(name, config)
        timeout = server.timeout if "timeout" in config else timeout
        settings = settings_of(server, pins, own_restart="restart" in config)
        transport = transport_for(server, timeout, debug, on_authorization)
        clock = None if server.in_process is None else server.in_process.clock
        client = cls(name, transport, debug, on_elicitation=on_elicitation, clock=clock, **settings)
        client._engine.entry = server
        return client

    @classmethod
    def from_command(cls, name: str, command: str, timeout: float = 30, debug: bool = False) -> MCPClient:
        """A client for a command line, which is split as a shell would but never run by one. Prefer `from_config`."""
        program, *args = split_command(command)
        return cls(name, StdioTransport(program, args, timeout=timeout, debug=debug), debug)

    # Connecting and disconnecting.

    def connect(self, *, keep_trying: bool = False) -> bool:
        """Start the server and shake hands. True when it is ready; False if not, and `last_error` says why.

        Does nothing when the server is connected. A `connect` that returns False leaves no process behind. With
        `keep_trying` the server is tried again by its restart policy, in the background and until `disconnect`; after
        the server was ready once, it is always tried again. Over a transport that cannot be supervised, `keep_trying`
        has no effect.
        """
        engine = self._engine
        connected = engine.session.connect(keep_trying=keep_trying)
        if not connected and not engine.session.keeps_trying:
            # An application does not disconnect a client that it could not connect.
            engine.close_services()
        return connected

    def restart(self, *, keep_trying: bool = False) -> bool:
        """Give the server a fresh process. True when the fresh process is ready.

        If the server is ready there is no gap: new calls go to the fresh process once it has shaken hands and listed
        its tools, while the old process finishes its calls, for `drain_timeout` seconds at most; after that, a call
        ends as in a crash. If the fresh process cannot be started, or takes longer than the transport's `timeout`, the
        old process goes on, `last_error` says why, and the result is False.

        A server that is not ready, or cannot be supervised, is disconnected and connected, with `keep_trying` as for
        `connect`. Calls under way end as cancelled then.
        """
        session = self._engine.session
        replaced = session.replace()
        if replaced is not None:
            return replaced
        session.disconnect(self._engine.forget)
        return self.connect(keep_trying=keep_trying)

    def disconnect(self, *, drain: float = 0.0) -> None:
        """Stop the server and everything it started, and forget its tools. Waiting calls end as cancelled.

        A ready server has `drain` seconds to finish its calls; new ones are refused meanwhile. Raises ValueError for a
        `drain` that is not a duration.
        """
        self._engine.disconnect(drain)

    def scale(self, replicas: int) -> None:
        """Have this many processes of a server that is `stateless`, until a configuration names another number.

        New processes are started, and others finish their calls and end after `drain_timeout` at the latest: first
        those that are not ready, last those with open handles of `pinned`. This waits for neither; `status.replicas`
        and `ReplicaChanged` show them. Raises NotOffered for a server that is not `stateless`, and ValueError.
        """
        self._engine.session.scale(replicas)

    @property
    def keeps_trying(self) -> bool:
        """Whether the server is started again after a failure, if its restart policy permits; see `connect`."""
        return self._engine.session.keeps_trying

    def is_connected(self) -> bool:
        """True while the server is ready for calls."""
        return self._engine.session.is_connected()

    def __enter__(self) -> MCPClient:
        if not self.connect():
            reason = self.last_error or "it was disconnected meanwhile"
            raise ServerUnavailable(f"Failed to connect to server {self.name!r}: {reason}")
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def set_roots(self, roots: RootsSource) -> None:
        """Replace the offered folders; a connected server of the handshake era is notified.

        Raises ValueError for something that is not a root, and RuntimeError if the client was made without any `roots`.
        """
        offered = self._engine.options.features.roots
        if offered is None:
            raise RuntimeError(f"client {self.name!r} was made without roots; give it some then, be it an empty list")
        offered.replace(roots)
        self.announce_roots()

    def announce_roots(self) -> None:
        """Notify the server that the roots changed, if its protocol has a notification for that."""
        # The stateless era has no such notification; each request asks anew (2026-07-28, "Roots").
        if self.protocol_version in HANDSHAKE_REVISIONS:
            self._engine.session.notify("notifications/roots/list_changed")

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Pass every `Event` of this server to `listener`, one at a time and in order, on a callback thread.

        If more than 10,000 events or 4 MiB wait, the oldest are dropped, and the listener receives an `EventsDropped`.
        Returns a function that ends the subscription. Events of a manager's clients also go to the manager's listeners.
        """
        return self._engine.listeners.subscribe(listener, self._engine.services.callbacks)

    # State and description of the server.

    @property
    def state(self) -> ServerState:
        """The present state of the server."""
        return self._engine.session.state

    @property
    def status(self) -> ServerStatus:
        """The state with the present figures: restarts, calls, latencies, the last error."""
        return self._engine.session.status(len(self._engine.tool_calls.catalog))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status.summary}>"

    @property
    def last_error(self) -> str | None:
        """The last failure of the server itself; None if it never failed."""
        return self._engine.session.last_error

    @property
    def server_info(self) -> dict[str, Any]:
        """The name and version that the server gave in its handshake; empty before the first one."""
        profile = self._engine.session.profile
        return {} if profile is None else dict(profile.server_info)

    @property
    def protocol_version(self) -> str | None:
        """The protocol revision of the last handshake, such as ``2025-11-25``; None before the first one."""
        profile = self._engine.session.profile
        return None if profile is None else profile.protocol_version

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities that the server declared in its handshake, by name; empty before the first one."""
        profile = self._engine.session.profile
        return {} if profile is None else dict(profile.capabilities)

    @property
    def instructions(self) -> str | None:
        """The server's hints for a model, at most 64 Ki characters. They are only as trustworthy as the server.

        With pinned tools, the first read pins the instructions too. Under ``block``, the value is None if the
        instructions are not the approved ones. That check reads the lock file.
        """
        return self._engine.instructions

    # Tools.

    @property
    def tool_filter(self) -> ToolFilter:
        """Which tools may be listed and called: the server's filter together with the manager's."""
        return self._engine.options.tool_filter

    def list_tools(self, refresh: bool = False) -> list[MCPTool]:
        """The tools on offer, filtered; from the cache unless `refresh`. Empty if the server cannot list them.

        Each handshake and each `notifications/tools/list_changed` fills the cache.
        """
        return list(self._engine.tool_calls.offered(refresh=refresh))

    @property
    def denied_tools(self) -> frozenset[str]:
        """Names of the server's tools that a filter denies."""
        return self._engine.tool_calls.catalog.denied

    @property
    def blocked_tools(self) -> Mapping[str, MCPTool]:
        """The server's tools that are withheld until their definitions are approved, by name."""
        return self._engine.tool_calls.catalog.blocked

    @property
    def _tools(self) -> list[MCPTool] | None:
        """The cached tools, None before the first listing; the specification gives the name."""
        catalog = self._engine.tool_calls.catalog
        return list(catalog.tools) if catalog.listed else None

    @_tools.setter
    def _tools(self, tools: Iterable[MCPTool] | None) -> None:
        self._engine.tool_calls.assume(tools)

    @spells_out(CallKeywords, CallOptions())
    def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """Call a tool by the server's own name for it, and wait for the result.

        Returns the result as the server sent it (``content``, ``isError``, ``structuredContent``), with the text as
        ``error`` if the tool reports one; or ``{"error": …, "error_type": …, "delivery": …}`` if the call failed.
        `timeout` is in seconds and covers waiting, writing and the answer. ``on_progress(progress, total, message)``
        runs in this thread. With `reset_timeout_on_progress` each progress notification restarts the call's timeout, up
        to `max_timeout`; None means the client's own setting.

        Raises RuntimeError before `connect` and after `disconnect`, and ValueError for arguments that are not a dict of
        JSON values, and for a `timeout` or `max_timeout` that is not above 0 and at most a year.
        """
        return self._engine.tool_calls.call(tool_name, arguments, CallOptions(**options))

    @spells_out(CallKeywords, CallOptions())
    def submit_tool(
        self, tool_name: str, arguments: dict[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> CallFuture:
        """Like `call_tool`, without waiting: a future of the result, which raises the exceptions of `gaia.mcp.errors`.

        Callbacks of the future and `on_progress` run on a callback thread, one after the other, for up to 32 futures of
        a server at the same time. A callback may wait for another call, but not for that call's callbacks. `cancel()`
        also cancels the request at the server. A call that is not allowed, or a client that is not connected, raises at
        once.
        """
        return self._engine.tool_calls.submit(tool_name, arguments, CallOptions(**options))

    def pinned(self) -> PinnedClient:
        """A handle that stays with one process of the server, for work that relies on the server's memory.

        It is a context manager. Several handles share the replicas of a server evenly. Raises ServerUnavailable if the
        server is not ready (one at rest is started by that), NotConnected without `connect`, and NotOffered if the
        transport cannot be supervised.
        """
        return PinnedClient(*self._engine.pinned())

    def create_tool_wrapper(self, tool: MCPTool) -> Callable[..., ToolResult]:
        """A function that calls `tool` with its keyword arguments, for an agent's registry."""

        def wrapper(**kwargs: Any) -> ToolResult:
            return self.call_tool(tool.name, kwargs)

        wrapper.__name__ = tool.name
        wrapper.__doc__ = tool.description
        return wrapper

    # Resources, prompts and everything else. These methods raise the exceptions of `gaia.mcp.errors`.

    def _run(self, exchange: Exchange[T]) -> T:
        return self._engine.requests.run(exchange)

    def request(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send any request and return its result object. Raises `MCPError`. Denied tools stay denied."""
        if method == "tools/call":
            params = params or {}
            options = CallOptions(timeout)
            return self._engine.requests.request(
                self._engine.tool_calls.new_request(params.get("name"), params.get("arguments"), options)
            )
        return self._run(self._engine.features.request(method, params, timeout))

    def list_resources(self) -> list[dict[str, Any]]:
        """``{"uri": …, "name": …}`` each, with title, description, mimeType and size if the server adds them."""
        return self._run(self._engine.features.list_resources())

    def list_resource_templates(self) -> list[dict[str, Any]]:
        """``{"uriTemplate": …, "name": …}`` each; empty for a server that does not know the method."""
        return self._run(self._engine.features.list_resource_templates())

    def read_resource(self, uri: str) -> dict[str, Any]:
        """``{"contents": [{"uri": …, "mimeType": …, "text": … or "blob": …}]}``; a blob is in Base64."""
        return self._run(self._engine.features.read_resource(uri))

    def subscribe_resource(self, uri: str) -> None:
        """Receive a `ResourceUpdated` event for each change of a resource, until it is unsubscribed.

        The subscription survives restarts of the server. Raises NotOffered if the server does not report changes.
        """
        self._run(self._engine.features.subscribe_resource(uri))

    def unsubscribe_resource(self, uri: str) -> None:
        """End `subscribe_resource`; harmless if the resource was not subscribed."""
        self._run(self._engine.features.unsubscribe_resource(uri))

    def list_prompts(self) -> list[dict[str, Any]]:
        """``{"name": …, "title": …, "description": …, "arguments": [{"name": …, "required": …}]}`` each."""
        return self._run(self._engine.features.list_prompts())

    def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> dict[str, Any]:
        """``{"description": …, "messages": [{"role": …, "content": …}]}``."""
        return self._run(self._engine.features.get_prompt(name, arguments))

    def complete(
        self, ref: dict[str, Any], argument: dict[str, str], *, context: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """``{"completion": {"values": […], "total": …, "hasMore": …}}`` for `argument`, a ``{"name": …, "value": …}``.

        `ref` is ``{"type": "ref/prompt", "name": …}`` or ``{"type": "ref/resource", "uri": …}``; `context` holds the
        arguments that already have values.
        """
        return self._run(self._engine.features.complete(ref, argument, context))

    def set_logging_level(self, level: str) -> None:
        """Receive the server's log messages of this severity and above, as `ServerLog` events; also after restarts.

        `level` is one of debug, info, notice, warning, error, critical, alert, emergency; anything else is a
        ValueError. Raises NotOffered if the server does not send log messages.
        """
        self._run(self._engine.features.set_logging_level(level))
