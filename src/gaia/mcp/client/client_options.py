"""The settings of a client, and the services that it shares with the other clients of a manager."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from gaia import __version__
from gaia.mcp.authorization.config import OnAuthorization
from gaia.mcp.client.server_memory import ServerMemory
from gaia.mcp.config.server_config import OutputMode, PinMode, ServerConfig
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.eras import ClientIdentity
from gaia.mcp.requests.exchange import BeforeCall
from gaia.mcp.rpc.connection import Recorders
from gaia.mcp.supervision.callbacks import CallbackGroup, CallbackPool
from gaia.mcp.supervision.client_features import ClientFeatures, FeatureKeywords
from gaia.mcp.supervision.context import RecyclingLimits, SupervisionHooks, check_replicas
from gaia.mcp.supervision.events import Event
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.mcp.tools.pins import ServerPins, default_pins
from gaia.mcp.tools.tool import MCPTool
from gaia.mcp.tools.tool_filter import ALLOW_ALL, ToolFilter
from gaia.mcp.transports.base import MCPTransport
from gaia.runtime.clock import Clock, SystemClock, require_seconds
from gaia.runtime.threads import DaemonPool
from gaia.telemetry.content import ContentPolicy

_DURATIONS = ("health_interval", "health_timeout", "probe_timeout", "max_timeout", "question_timeout", "drain_timeout")
_OPTIONAL_DURATIONS = ("idle_stop", "start_timeout")
START_SECONDS = 60.0
_STEP_THREADS = 4
_JOIN_SECONDS = 2.0


class ClientSettings(TypedDict, total=False):
    """The keywords of `MCPClient` that are settings. `ClientOptions` documents them and has the defaults."""

    tool_filter: ToolFilter
    pin_tools: PinMode | None
    pins: ServerPins | None
    restart_policy: RestartPolicy | None
    standby: bool
    health_interval: float
    health_timeout: float
    max_pending: int
    protocol: str
    start_timeout: float | None
    probe_timeout: float
    output_validation: OutputMode | None
    reset_timeout_on_progress: bool
    max_timeout: float
    capture_content: ContentPolicy | None
    question_timeout: float
    recycling: RecyclingLimits
    drain_timeout: float
    lazy: bool
    idle_stop: float | None
    replicas: int
    stateless: bool
    before_call: BeforeCall | None


class ClientKeywords(ClientSettings, FeatureKeywords, total=False):
    """The keywords of `MCPClient`."""


def settings_of(server: ServerConfig, pins: ServerPins | None, *, own_restart: bool) -> ClientSettings:
    """The settings in a server's configuration, with `pins`. `own_restart`: the entry has a restart policy."""
    settings: Any = common_fields(server, ClientOptions)
    if server.transport == "sse" and server.protocol == "auto":
        settings["protocol"] = "handshake"
    own: ClientSettings = {
        "tool_filter": ToolFilter(server.enabled_tools, server.disabled_tools, keys=("enabledTools", "disabledTools")),
        "pins": pins,
        "restart_policy": server.restart if own_restart else None,
        "capture_content": ContentPolicy(server.capture_content, server.capture_content_tools),
        "recycling": server.recycling_limits(),
        "idle_stop": server.idle_seconds,
    }
    return {**settings, **own}


def common_fields(source: msgspec.Struct, target: type[msgspec.Struct]) -> dict[str, Any]:
    """The settings in `source` that `target` has under the same name, as keywords for `target`.

    So a setting that is passed on unchanged is named only in the classes that have it.
    """
    return {name: getattr(source, name) for name in source.__struct_fields__ if name in target.__struct_fields__}


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one client. Durations are in seconds; an invalid one raises ValueError (`require_seconds`)."""

    tool_filter: ToolFilter = ALLOW_ALL
    """Which tools may be listed and called."""
    pin_tools: PinMode | None = None
    """What to do about tools whose definitions differ from `pins`; None means "off", or the manager's setting."""
    pins: ServerPins | None = None
    """The approved definitions; None means those under the client's name in ``~/.gaia/mcp_tools.lock.json``."""
    restart_policy: RestartPolicy | None = None
    """None means the manager's policy, or the default policy."""
    standby: bool = False
    """Whether a second process of the server waits, with its handshake done, and takes over when the first is lost."""
    health_interval: float = 30.0
    """The client sends a ping to a server that was idle for this long."""
    health_timeout: float = 10.0
    """A server counts as hung when it leaves two pings unanswered for this long each."""
    max_pending: int = 1024
    """How many calls may wait at once; further calls are refused."""
    protocol: str = "auto"
    """"auto" (ask the server), "handshake" or "stateless" (the era), or a revision such as "2025-11-25".

    With "auto", a transport that has only the four methods uses the handshake era.
    """
    start_timeout: float | None = None
    """How long each start may take. None: 60 s, or the transport's `timeout` if that is longer."""
    probe_timeout: float = 5.0
    """With "auto", how long the server has to show that it speaks the stateless era."""
    output_validation: OutputMode | None = None
    """What to do about results that do not fit their `outputSchema`: "off", "warn" (log) or "error" (fail the call)."""
    reset_timeout_on_progress: bool = False
    """Whether each progress notification restarts a call's timeout, up to `max_timeout`."""
    max_timeout: float = 3600.0
    """The longest time of a call whose timeout is restarted by progress."""
    capture_content: ContentPolicy | None = None
    """How much of arguments and results is recorded in traces."""
    question_timeout: float = 600.0
    """How long the application may take to answer one request of the server."""
    recycling: RecyclingLimits = RecyclingLimits()
    """The limits at which a process of the server is replaced by a fresh one."""
    drain_timeout: float = 30.0
    """How long a process that was replaced may take to finish its calls."""
    lazy: bool = False
    """Whether the first use starts the server, if its tools are known from an earlier start."""
    idle_stop: float | None = None
    """How long the server may be without a call before it is stopped; the next call starts it. None: no limit."""
    replicas: int = 1
    """How many processes of the server share its calls. More than one needs `stateless`."""
    stateless: bool = False
    """Whether the server remembers nothing from one call to the next, so that each call may go to any process of it."""
    before_call: BeforeCall | None = None
    """Called before each tool call with a `CurrentCall`; returns keywords of `call_tool` to change or add, or None.

    It may be async: it is awaited with the call, or runs on a loop of the engine while a thread waits."""
    features: ClientFeatures = ClientFeatures()

    def __post_init__(self) -> None:
        for name in (*_DURATIONS, *_OPTIONAL_DURATIONS):
            if (seconds := getattr(self, name)) is not None or name in _DURATIONS:
                require_seconds(name, seconds)
        check_replicas(self.replicas, stateless=self.stateless)

    def in_effect(self, timeout: float) -> ClientOptions:
        """These options with all times of a start, for a server whose calls may take `timeout` seconds."""
        seconds = max(START_SECONDS, timeout) if self.start_timeout is None else self.start_timeout
        # A server of the handshake era that ignores the probe must have time left to answer `initialize`.
        return msgspec.structs.replace(self, start_timeout=seconds, probe_timeout=min(self.probe_timeout, seconds / 2))

    def or_else(self, defaults: ClientOptions) -> ClientOptions:
        return msgspec.structs.replace(
            self,
            pin_tools=self.pin_tools or defaults.pin_tools,
            restart_policy=self.restart_policy or defaults.restart_policy,
            output_validation=self.output_validation or defaults.output_validation,
            features=self.features.or_else(defaults.features),
            lazy=self.lazy or defaults.lazy,
            before_call=self.before_call or defaults.before_call,
        )


def options_of(keywords: ClientKeywords) -> ClientOptions:
    features: Any = {name: value for name, value in keywords.items() if name in FeatureKeywords.__annotations__}
    settings: Any = {name: value for name, value in keywords.items() if name not in features}
    return ClientOptions(features=ClientFeatures.of(features), **settings)


class SharedServices(msgspec.Struct, frozen=True, kw_only=True):
    """Shared by the clients of a manager: threads for user code, the clock, and receivers of events."""

    callbacks: CallbackPool
    steps: DaemonPool
    """Threads that run gaia's own work between the round trips of submitted calls. They never run user code."""
    server_request_threads: CallbackPool
    owned: bool = False
    """Whether the client that uses the services closes them."""
    clock: Clock = msgspec.field(default_factory=SystemClock)
    rng: random.Random = msgspec.field(default_factory=random.Random)
    tool_filter: ToolFilter = ALLOW_ALL
    """Applies in addition to the client's own filter."""
    source: Path | None = None
    """The file of the server's entry, for messages; None for an entry in memory."""
    memory: ServerMemory = msgspec.field(default_factory=ServerMemory)
    pins: Callable[[str], ServerPins] = default_pins
    """Returns the approved definitions of a server, by its name, for clients without pins of their own."""
    on_authorization: OnAuthorization | None = None
    recorders: Recorders = msgspec.field(default_factory=Recorders)
    on_event: Callable[[Event], None] = lambda _: None
    """Receives each event, on the thread on which it happens."""
    on_tools: Callable[[tuple[MCPTool, ...]], None] = lambda _: None
    """Receives the tools on offer whenever they may have changed, usually on the supervisor's thread."""

    @classmethod
    def of(cls, owner: str, **others: Any) -> SharedServices:
        """The services of a client or a manager, with threads of its own; `owner` is part of their names."""
        return cls(
            callbacks=CallbackPool(owner),
            server_request_threads=CallbackPool(owner, "server-requests"),
            steps=DaemonPool(f"mcp-{owner}-steps", _STEP_THREADS, is_engine=True),
            **others,
        )

    def close(self) -> None:
        self.callbacks.close()
        self.server_request_threads.close()
        self.steps.drain(_JOIN_SECONDS)


class ClientSetup(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    transport: MCPTransport
    options: ClientOptions
    services: SharedServices
    hooks: SupervisionHooks
    server_requests: ServerRequests
    observer: Observer
    callbacks: CallbackGroup

    @property
    def identity(self) -> ClientIdentity:
        return ClientIdentity("GAIA MCP Client", __version__, self.options.features.capabilities)

    def pins(self) -> ServerPins:
        own = self.options.pins
        return self.services.pins(self.name) if own is None else own
