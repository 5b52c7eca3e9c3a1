"""One server's configuration: the keys of its JSON object, with their types and checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from gaia.mcp.authorization.config import AuthConfig
from gaia.mcp.config.entry_errors import explained, limits, remark, similar_key, word_for
from gaia.mcp.config.placement import MOVED, EngineName, Placement
from gaia.mcp.errors import ConfigError
from gaia.mcp.protocol.negotiation import PROTOCOL_ALIASES, PROTOCOLS
from gaia.mcp.supervision.context import RecyclingLimits, check_replicas
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.transports.base import InProcessServer
from gaia.mcp.transports.sandbox import Sandbox, memory_bytes
from gaia.runtime import json_file
from gaia.runtime.clock import require_seconds
from gaia.runtime.redaction import repr_of_shown
from gaia.telemetry.content import MODES, CaptureMode

ServerType = Literal["stdio", "http", "sse", "streamable-http"]
"""Other programs' files use these words too; ``streamable-http`` is a synonym of ``http``."""

PinMode = Literal["off", "warn", "block"]
"""What to do about a tool whose definition is not the approved one: nothing, report it, or also withhold the tool."""

OutputMode = Literal["off", "warn", "error"]
"""What to do about results that do not fit the tool's output schema: nothing, log it, or fail the call."""

Instances = Literal["shared", "per-session", "per-client"]
"""Which clients of a gateway share a process of a server."""

_DURATIONS = ("timeout", "max_timeout", "health_interval", "health_timeout", "probe_timeout", "drain_timeout")
_OPTIONAL_DURATIONS = ("idle_stop", "start_timeout")
_IDLE_STOP_SECONDS = 300.0

_STRICT: Mapping[str, type[msgspec.Struct]] = {
    "sandbox": Sandbox,
    "placement": Placement,
}
"""In these objects unknown keys are errors, because a misspelt key would have no effect."""
_AUTH_KINDS: dict[object, type[msgspec.Struct]] = {kind.__struct_config__.tag: kind for kind in get_args(AuthConfig)}
_CHOICES = {
    "type": get_args(ServerType),
    "pinTools": get_args(PinMode),
    "outputValidation": get_args(OutputMode),
    "placement.engine": get_args(EngineName),
    "placement.strategy": ("spread", "pack"),
    "placement.lifetime": ("driver", "detached"),
    "instances": get_args(Instances),
    "restart.restart": ("always", "on-failure", "never"),
    "auth.type": tuple(map(str, _AUTH_KINDS)),
    "auth.tokenAuth": ("basic", "post"),
    "captureContent": MODES,
    "captureContentTools": MODES,
}


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The configuration of one server, made from JSON by `from_dict`. Durations are in seconds.

    The constructor raises ValueError for unusable values. The `repr` shows no value that could be a secret.
    `ClientOptions` explains the settings that both have.
    """

    name: str = ""
    """The key of the entry in its file, for messages; never read from the entry itself."""
    command: str | None = None
    args: list[str] | None = None
    """None and an empty list differ: without `args`, the command is split into words."""
    env: dict[str, str] | None = None
    cwd: str | None = None
    in_process: InProcessServer | None = None
    """A server object of this program, instead of a command or a url. Only in entries in memory."""
    type: ServerType | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    auth: AuthConfig | None = None
    """How to log in at a server over HTTP; None leaves the login to a person, see `OAuth`."""
    timeout: float = 30.0
    """How long one call may take, waiting included."""
    start_timeout: float | None = None
    disabled: bool = False
    enabled_tools: list[str] | None = None
    """Globs of the tools that may be used; None for all."""
    disabled_tools: list[str] = msgspec.field(default_factory=list)
    """Globs of the tools that may not be used; wins over `enabled_tools`."""
    pin_tools: PinMode | None = None
    restart: RestartPolicy = RestartPolicy()
    max_lifetime: float | None = None
    max_calls: int | None = None
    max_memory: str | int | None = None
    """Bytes, or a text such as ``512M``. `RecyclingLimits` explains this and the previous two."""
    drain_timeout: float = 30.0
    standby: bool = False
    inherit_env: bool = False
    """Whether the server inherits the whole environment of this process, not only a minimal set of variables."""
    sandbox: bool | Sandbox = False
    """The sandbox of a server with a `command`: none, the default one, or one with these settings."""
    health_interval: float = 30.0
    health_timeout: float = 10.0
    replicas: int = 1
    stateless: bool = False
    placement: Placement | None = None
    """Where in a cluster the server runs; None is this machine."""
    max_pending: int = 1024
    max_message_bytes: int = 256 * 1024 * 1024
    capture_content: CaptureMode | None = None
    """How much of arguments and results is traced; None leaves it to the environment, see `gaia.telemetry`."""
    capture_content_tools: dict[str, CaptureMode] = msgspec.field(default_factory=dict)
    """The same for tools and prompts whose names match these globs; the first match counts."""
    output_validation: OutputMode | None = None
    reset_timeout_on_progress: bool = False
    max_timeout: float = 3600.0
    protocol: str = "auto"
    """Which protocol era or revision to speak: one of `negotiation.PROTOCOLS`, or an alias."""
    probe_timeout: float = 5.0
    lazy: bool = False
    idle_stop: float | None = None
    """None: never, or after 300 seconds if the server is lazy or has several instances; see `idle_seconds`."""
    instances: Instances = "shared"
    """Whether all clients of a gateway share one process, or each session or each client has its own."""
    max_instances: int = 100
    """How many processes sessions or clients may have at once."""

    @classmethod
    def from_dict(cls, name: str, mapping: object) -> ServerConfig:
        """Check the JSON object of the server `name`. Raises ConfigError naming the server, the key and the problem.

        Unknown keys are ignored, see `unknown_keys`, but one that was probably meant to limit the server is an error.
        """
        if not name:
            raise ConfigError(f"server {name!r}: it has no name; give it one that is not empty")
        if not isinstance(mapping, Mapping):
            raise ConfigError(f"server {name!r}: expected a config dict with a 'command', got {word_for(mapping)}")
        for key, similar in unknown_keys(mapping).items():
            if limits(key, similar, mapping.get(key)):
                raise ConfigError(
                    f"server {name!r}: {remark(key, similar)} (it may be there to limit the server, which is not used "
                    "until you correct or remove the key)"
                )
        placement = mapping.get("placement")
        for key in MOVED.keys() & (placement if isinstance(placement, Mapping) else ()):
            raise ConfigError(f"server {name!r}: placement.{key}: moved: {MOVED[key]}")
        try:
            return json_file.convert({**mapping, "name": name}, cls)
        except msgspec.ValidationError as error:
            raise ConfigError(f"server {name!r}: {explained(error, mapping, _CHOICES, _STRICT)}") from error

    def __post_init__(self) -> None:
        has_command, has_url = bool((self.command or "").strip()), bool((self.url or "").strip())
        if self.in_process is not None:
            if has_command or has_url or self.type is not None:
                raise ValueError("in_process: the server lives in this program; remove command, url and type")
            self._check_without_process("this one lives in this program")
        elif not has_command and not has_url:
            raise ValueError("command: missing; give the command that starts the server, or the url of a running one")
        if self.type is None and has_command and has_url:
            raise ValueError('type: there is both a command and a url; remove one, or say "stdio" or "http" here')
        if self.type == "stdio" and not has_command:
            raise ValueError('command: missing; a server of type "stdio" needs one')
        if self.type not in (None, "stdio") and not has_url:
            raise ValueError(f'url: missing; a server of type "{self.type}" needs one')
        if self.transport in ("http", "sse"):
            self._check_without_process("this one has a url")
        self._check_when_it_runs()
        for name in ("max_pending", "max_message_bytes", "max_instances"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name}: must be 1 or more, got {value!r}")
        self.recycling_limits()
        check_replicas(self.replicas, stateless=self.stateless)
        if self.placement is not None and self.placement.is_shared:
            self._check_shared()
        if PROTOCOL_ALIASES.get(self.protocol, self.protocol) not in PROTOCOLS:
            raise ValueError(f"protocol: must be one of {', '.join(PROTOCOLS)}, got {self.protocol!r}")

    def _check_shared(self) -> None:
        for name in ("standby", "max_lifetime", "max_calls", "max_memory", "replicas"):
            if getattr(self, name) not in ((1,) if name == "replicas" else (None, False)):
                raise ValueError(f'{name}: programs share the one process of a server with "lifetime": "detached"')

    def _check_when_it_runs(self) -> None:
        for name in (*_DURATIONS, *_OPTIONAL_DURATIONS):
            if (seconds := getattr(self, name)) is not None or name in _DURATIONS:
                require_seconds(name, seconds)
        if self.standby and self.idle_seconds is not None:
            raise ValueError(
                'standby: it is for a server that always runs; remove it, or "lazy", "idleStop" and "instances"'
            )
        if self.standby and self.restart.restart == "never":
            raise ValueError('standby: it would never take over, because restart.restart is "never"; remove either')

    def _check_without_process(self, why: str) -> None:
        for name, problem in (
            ("sandbox", "only a server with a command can be started in one"),
            ("standby", "only a server with a command can have one"),
            ("max_memory", "only for a server with a command"),
            ("placement", "only for a server with a command, which is started there"),
        ):
            # An in-process server can have a stand-by.
            if getattr(self, name) not in (None, False) and (name != "standby" or self.in_process is None):
                raise ValueError(f"{name}: {problem}; {why}")

    @property
    def transport(self) -> Literal["stdio", "http", "sse", "in-process"]:
        """How the server is reached: `type`, or else what `command`, `url` and `in_process` imply."""
        if self.in_process is not None:
            return "in-process"
        if self.type is None:
            return "stdio" if (self.command or "").strip() else "http"
        return "http" if self.type == "streamable-http" else self.type

    @property
    def idle_seconds(self) -> float | None:
        """Seconds without a call after which the server is stopped; None if it is not."""
        is_default = self.idle_stop is None and (self.lazy or self.instances != "shared")
        return _IDLE_STOP_SECONDS if is_default else self.idle_stop

    def recycling_limits(self) -> RecyclingLimits:
        """The limits at which a fresh process replaces the server's. Raises ValueError for unchecked values."""
        size = None if self.max_memory is None else memory_bytes(self.max_memory, "max_memory")
        return RecyclingLimits(max_lifetime=self.max_lifetime, max_calls=self.max_calls, max_memory=size)

    @property
    def sandbox_settings(self) -> Sandbox | None:
        if isinstance(self.sandbox, Sandbox):
            return self.sandbox
        return Sandbox() if self.sandbox else None

    __repr__ = repr_of_shown

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # Arguments and URLs are left out because they carry secrets once variables are expanded.
        shown = [("name", self.name), ("transport", self.transport), ("command", self.command)]
        return [*shown, ("env", sorted(self.env or ())), ("headers", sorted(self.headers or ()))]


def unknown_keys(mapping: object) -> dict[str, str | None]:
    """The unknown keys of a server's JSON object, each with the known key that it resembles, or None.

    Keys within ``restart`` and ``auth`` are named ``restart.<key>`` and ``auth.<key>``.
    """
    if not isinstance(mapping, Mapping):
        return {}
    found = _unknown_in(mapping, ServerConfig, "")
    restart, auth = mapping.get("restart"), mapping.get("auth")
    if isinstance(restart, dict):
        found |= _unknown_in(restart, RestartPolicy, "restart.")
    if isinstance(auth, dict) and (kind := _AUTH_KINDS.get(auth.get("type"))) is not None:
        found |= _unknown_in(auth, kind, "auth.")
    return found


def remarks_on_keys(mapping: object) -> list[str]:
    return [remark(key, similar) for key, similar in unknown_keys(mapping).items()]


def without_name(problem: str, name: str) -> str:
    """Remove the name of the server from a message, for a place that already shows the name."""
    return problem.replace(f"server {name!r}: ", "", 1)


def require_servers(servers: object) -> None:
    """Raise ConfigError if `servers` is not a mapping of names to entries."""
    if not isinstance(servers, Mapping):
        raise ConfigError(
            f"expected servers by name, such as {{'time': {{'command': 'uvx'}}}}, got {type(servers).__name__}; "
            "the servers of a configuration file are MCPConfig(path) for a manager, config_file=path for an agent"
        )
    for key in ("command", "url"):
        if isinstance(servers.get(key), str):
            raise ConfigError(f"expected servers by name, got the entry of one server; give {{NAME: {{{key!r}: …}}}}")
    for key in ("mcpServers", "servers"):
        inside = servers.get(key)
        if not isinstance(inside, Mapping) or "command" in inside or "url" in inside:
            continue
        if any(isinstance(entry, Mapping) for entry in inside.values()):
            raise ConfigError(f"expected servers by name, got the content of a file; give what is in its {key!r}")


def _unknown_in(mapping: Mapping[str, Any], struct: type[msgspec.Struct], prefix: str) -> dict[str, str | None]:
    known = [key for key in struct.__struct_encode_fields__ if key != "name"]
    if struct.__struct_config__.tag_field is not None:
        known.append(struct.__struct_config__.tag_field)
    found: dict[str, str | None] = {}
    for key in mapping:
        if key not in known:
            meant = similar_key(str(key), known)
            found[f"{prefix}{key}"] = f"{prefix}{meant}" if meant else None
    return found
