"""`GatewayStatus`: what is known of a running gateway, as its page ``/status`` has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from gaia.mcp.gateway.access.access import Access
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus

READY_STATES = frozenset({ServerState.READY, ServerState.EXITED})
"""A server that has exited, or is lazy and at rest, is started by the next call."""


_MOST = 1_000
"""Sessions, clients and limits on the page: clients of an issuer are without number."""


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One session of a client of the handshake era. Durations are in seconds."""

    client: str | None
    """The client's name in the gateway's clients file; None where there is no such file."""
    program: str
    """What the client calls itself, with its version."""
    path: str
    """Where it opened the session, such as ``/mcp`` or ``/mcp/files``."""
    protocol_version: str
    running: int
    """Its requests under way."""
    idle: float
    """Since its last message, or since it was last found with a call or a stream."""


class ClientStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One client that is known by name."""

    name: str
    profile: str
    sessions: int = 0
    running: int = 0
    """Its requests under way in its sessions."""


class LimitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One limit of calls, and how much of it is in use."""

    name: str
    concurrent: int | None
    """Calls at once; None if that is not limited."""
    per_second: float | None
    """Calls that may begin each second; None if that is not limited."""
    running: int
    waiting: int


class ReloadStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last time that the gateway has read its files again."""

    at: float
    """Seconds since the epoch."""
    error: str | None
    """Why nothing has changed; None if the files are applied."""


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What one client may know of the gateway."""

    name: str
    version: str
    """Of gaia-mcp."""
    uptime: float
    """Seconds."""
    is_draining: bool
    """Whether it is about to end: there are no new sessions."""
    max_sessions: int
    session_count: int
    """Of all clients."""
    servers: list[ServerStatus]
    sessions: list[SessionStatus]
    clients: list[ClientStatus]
    limits: list[LimitStatus]
    reload: ReloadStatus | None = None

    def bounded(self) -> GatewayStatus:
        """For the page: of sessions those that were used last, of limits those that are in use most."""
        return msgspec.structs.replace(
            self,
            sessions=self.sessions[-_MOST:],
            clients=self.clients[:_MOST],
            limits=sorted(self.limits, key=lambda limit: -(limit.running + limit.waiting))[:_MOST],
        )

    def to_builtins(self) -> dict[str, Any]:
        """As JSON has it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def session_status(session: Session, path: str, now: float) -> SessionStatus:
    """`now` is a reading of the sessions' clock."""
    return SessionStatus(
        client=None if session.owner is None else session.owner.name,
        program=session.program,
        path=path,
        protocol_version=session.revision,
        running=len(session.requests),
        idle=now - session.used_at,
    )


def clients_of(access: Access, sessions: Iterable[SessionStatus], only: Principal | None) -> list[ClientStatus]:
    """The clients of the clients file, or `only` one of them, with those `sessions` that are theirs."""
    profiles = access.profile_names() if only is None else {only.name: only.profile.name}
    counted: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for session in sessions:
        if session.client is not None:
            counted[session.client] += 1
            running[session.client] += session.running
            # Clients that are known by their access tokens are in no file.
            profiles.setdefault(session.client, "")
    return [
        ClientStatus(name=name, profile=profile, sessions=counted[name], running=running[name])
        for name, profile in profiles.items()
    ]


def limits_of(access: Access) -> list[LimitStatus]:
    """Those that are in use now, or were lately."""
    return [
        LimitStatus(
            name=gate.name,
            concurrent=gate.limit.concurrent,
            per_second=gate.limit.per_second,
            running=gate.running,
            waiting=waiting,
        )
        for gate, waiting in access.limits.figures()
    ]
