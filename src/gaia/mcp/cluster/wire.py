"""What the driver and a host say to each other: structs, as bytes that Ray carries without looking into them.

Secrets are only in `HostSettings`, which goes from the driver to the host directly, as the argument of a call. Ray
keeps the arguments of an actor's constructor, so it has none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gaia.mcp import errors
from gaia.mcp.errors import MCPError
from gaia.mcp.observation.lifecycle_spans import LossReason
from gaia.mcp.protocol.eras import HandshakeEra, ServerProfile, StatelessEra
from gaia.mcp.supervision.context import RecyclingLimits
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.transports.sandbox import Sandbox

_HANDSHAKE = HandshakeEra()
_STATELESS = StatelessEra()


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How the server's process is started, with all variables filled in."""

    command: str
    args: list[str] | None = None
    env: dict[str, str] | None = None
    secrets: list[str] = []
    """Values that must not be shown."""
    cwd: str | None = None
    inherit_env: bool = False
    max_message_bytes: int = 256 * 1024 * 1024
    max_pending: int = 1024
    sandbox: Sandbox | None = None

    # Its members are secrets.
    __repr__ = object.__repr__


class KnownTools(msgspec.Struct, frozen=True):
    """What a server said at an earlier start."""

    profile: WireProfile | None
    tools: list[Any]


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a host needs to start and supervise its server. Durations in seconds."""

    version: str
    """Of gaia-mcp, which must be the same on both sides."""
    name: str
    user: str = ""
    """The same for all settings of one client of the driver, and for no others."""
    driver: str = ""
    """The program, for people: what it is called, where it runs."""
    launch: Launch
    timeout: float
    keep_trying: bool = False
    """Whether a server that cannot be started is started again, by its policy."""
    capabilities: dict[str, Any]
    """What the application offers to the server."""
    question_timeout: float
    protocol: str
    start_timeout: float
    probe_timeout: float
    policy: RestartPolicy
    health_interval: float
    health_timeout: float
    recycling: RecyclingLimits
    drain_timeout: float
    demand: dict[str, float] = {}
    """What it occupies of its node. All users of a shared server have to agree on it."""
    lease: float = 30.0
    """How long the host may act without having been asked for events."""
    standby: bool
    lazy: bool = False
    """Whether its process is started by the first use, if it is known which tools it has."""
    idle_stop: float | None = None
    known: KnownTools | None = None
    """What it said at an earlier start."""
    resources: tuple[str, ...] = ()
    """The resources whose changes are wanted."""
    log_level: str | None = None

    __repr__ = object.__repr__


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """A host's answer to its settings."""

    incarnation: str
    """Another one for each process of the actor, so that nothing meant for one is taken by the next."""
    node: str
    """The host name of its machine."""
    node_id: str | None = None
    """By which the engine knows the node."""
    pid: int
    """Of the actor's process."""
    problem: str | None = None
    """Why the host cannot work."""
    clock: float
    """What its clock shows."""
    is_over: bool = False
    """Its lease is over, and another host is about to take its place."""


class AskedCall(msgspec.Struct, frozen=True, array_like=True):
    """One call for a host."""

    incarnation: str
    number: int
    timeout: float
    max_timeout: float | None
    repeatable: bool
    progress: bool
    """Whether its progress is to be reported."""
    tool: str | None
    sent: float
    """When, as the clock of the host showed it; earlier rather than later."""
    frame: bytes
    """The request, as a JSON-RPC message with an id of the driver's."""
    listing: int = 0
    """The number of the last listing of tools that the driver has taken over; 0 if there was none."""
    start: int | None = None
    """The start of the server that it is meant for, if it must not go to a later one."""
    capabilities: dict[str, Any] | None = None
    """What is declared for this call, if that is another client's."""
    log_level: str | None = None
    """What a server of the stateless era is asked to log for this call."""


class WireError(msgspec.Struct, frozen=True, array_like=True):
    """An exception of `gaia.mcp.errors`."""

    kind: str
    message: str
    state: dict[str, Any]

    @classmethod
    def of(cls, error: MCPError) -> WireError:
        return cls(type(error).__name__, error.message, dict(error.__dict__))

    def restored(self) -> MCPError:
        kind = getattr(errors, self.kind, MCPError)
        if not (isinstance(kind, type) and issubclass(kind, MCPError)):
            kind = MCPError
        error: MCPError = kind.__new__(kind, self.message)
        error.args = (self.message,)
        error.__dict__.update({"delivery": "unknown", **self.state})
        return error


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """What became of a call. With neither a result nor an error it was not sent, and the driver decides anew."""

    result: bytes | None = None
    """The result object, as JSON."""
    error: WireError | None = None
    progress: int = 0
    """How many reports of its progress are among the events."""
    is_late: bool = False
    """The call was meant for another incarnation, or came too late: nothing was done about it."""


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What became of a request of the server: a result, a refusal, or neither if it was withdrawn."""

    number: int
    result: dict[str, Any] | None = None
    code: int | None = None
    message: str = ""


class WireProfile(msgspec.Struct, frozen=True):
    """What the server told about itself."""

    protocol_version: str
    server_info: dict[str, Any]
    capabilities: dict[str, Any]
    stateless: bool
    instructions: str | None = None

    @classmethod
    def of(cls, profile: ServerProfile) -> WireProfile:
        return cls(
            profile.protocol_version,
            dict(profile.server_info),
            dict(profile.capabilities),
            profile.era.is_stateless,
            profile.instructions,
        )

    def restored(self) -> ServerProfile:
        era = _STATELESS if self.stateless else _HANDSHAKE
        return ServerProfile(self.protocol_version, self.server_info, self.capabilities, era, self.instructions)


# Events of a host, in their order.


class StateReached(msgspec.Struct, frozen=True, kw_only=True, tag="state"):
    """The server has another state than before, as its supervisor sees it."""

    state: ServerState
    reason: str | None = None
    generation: int = 0
    pid: int | None = None
    last_error: str | None = None
    retry_in: float | None = None
    restarts: int = 0
    recyclings: int = 0
    last_recycling: str | None = None
    profile: WireProfile | None = None
    loss: LossReason | None = None
    """Why the server was lost, unless it has been ready since; with how it ended."""
    exit_code: int | None = None
    signal: str | None = None


class ListingBegan(msgspec.Struct, frozen=True, tag="listing"):
    """The server is about to be asked for its tools."""

    number: int


class ToolsListed(msgspec.Struct, frozen=True, tag="tools"):
    """The server was asked for its tools; without definitions, it could not list them."""

    number: int
    definitions: list[Any] | None = None
    profile: WireProfile | None = None
    """What the server that listed them told about itself."""


class ToolsRemembered(msgspec.Struct, frozen=True, tag="remembered"):
    """Until the server is asked, its tools are those that it had at an earlier start."""

    definitions: list[Any]


class Progressed(msgspec.Struct, frozen=True, tag="progress"):
    """The server works on a call."""

    call: int
    params: dict[str, Any]


class Logged(msgspec.Struct, frozen=True, tag="log"):
    """The server has logged something that belongs to a call."""

    call: int
    params: dict[str, Any]


class AskedInput(msgspec.Struct, frozen=True, tag="ask"):
    """The server asks the application: an elicitation, a sampling, its roots."""

    number: int
    method: str
    params: dict[str, Any]


class Withdrawn(msgspec.Struct, frozen=True, tag="withdrawn"):
    """The answer to such a request is not needed any more."""

    number: int


class EventHappened(msgspec.Struct, frozen=True, tag="event"):
    """An `Event` of the server, by the name of its class, without the server's name."""

    kind: str
    fields: dict[str, Any]


HostEvent = (
    StateReached
    | ListingBegan
    | ToolsListed
    | ToolsRemembered
    | Progressed
    | Logged
    | AskedInput
    | Withdrawn
    | EventHappened
)


class Sent(msgspec.Struct, frozen=True):
    """Events, the first of which has the number `first`; the driver acknowledges them with its next poll."""

    first: int
    events: list[HostEvent]
    clock: float = 0.0
    """What the host's clock showed when it sent this."""


_encoder = msgspec.msgpack.Encoder(enc_hook=repr)
_reply = msgspec.msgpack.Decoder(Reply)
_greeting = msgspec.msgpack.Decoder(Greeting)
_events = msgspec.msgpack.Decoder(Sent)


def encode(message: msgspec.Struct) -> bytes:
    return _encoder.encode(message)


def decode_reply(data: bytes) -> Reply:
    return _reply.decode(data)


def decode_greeting(data: bytes) -> Greeting:
    return _greeting.decode(data)


def decode_events(data: bytes) -> Sent:
    return _events.decode(data)
