"""`GatewayStatus`: the status of a running gateway, as shown on its page ``/status``."""

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
"""States of a server that can answer. The next call starts a server that has exited, or is lazy and idle."""


_MOST = 1_000
"""Sessions, clients and limits on the page. The number of an issuer's clients is unbounded."""


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One session of a client of the handshake era. Durations are in seconds."""

    client: str | None
    """The client's name in the gateway's clients file; None if there is no such file."""
    program: str
    """The client's name and version of itself."""
    path: str
    """The path where the session was opened, such as ``/mcp/files``."""
    protocol_version: str
    running: int
    idle: float
    """Seconds since its last message, or since the last sweep that found an open call."""


class ClientStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    profile: str
    sessions: int = 0
    running: int = 0


class LimitStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    concurrent: int | None
    per_second: float | None
    running: int
    waiting: int


class ReloadStatus(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    """Seconds since the epoch."""
    error: str | None
    """Why nothing was changed; None if the files were applied."""


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    uptime: float
    """Seconds since the gateway was made."""
    is_draining: bool
    """Whether the gateway stops soon, and opens no new sessions."""
    max_sessions: int
    session_count: int
    servers: list[ServerStatus]
    sessions: list[SessionStatus]
    clients: list[ClientStatus]
    limits: list[LimitStatus]
    reload: ReloadStatus | None = None

    def bounded(self) -> GatewayStatus:
        """A copy for the page, limited to the most recently used sessions and the most used limits."""
        return msgspec.structs.replace(
            self,
            sessions=self.sessions[-_MOST:],
            clients=self.clients[:_MOST],
            limits=sorted(self.limits, key=lambda limit: -(limit.running + limit.waiting))[:_MOST],
        )

    def to_builtins(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def session_status(session: Session, path: str, now: float) -> SessionStatus:
    return SessionStatus(
        client=None if session.owner is None else session.owner.name,
        program=session.program,
        path=path,
        protocol_version=session.revision,
        running=len(session.requests),
        idle=now - session.used_at,
    )


def clients_of(access: Access, sessions: Iterable[SessionStatus], only: Principal | None) -> list[ClientStatus]:
    profiles = access.profile_names() if only is None else {only.name: only.profile.name}
    counted, running = Counter[str](), Counter[str]()
    for session in sessions:
        if session.client is not None:
            counted[session.client] += 1
            running[session.client] += session.running
    # The clients file does not name clients that have access tokens of an issuer.
    return [
        ClientStatus(name=name, profile=profiles.get(name, ""), sessions=counted[name], running=running[name])
        for name in dict.fromkeys((*profiles, *counted))
    ]


def limits_of(access: Access) -> list[LimitStatus]:
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
