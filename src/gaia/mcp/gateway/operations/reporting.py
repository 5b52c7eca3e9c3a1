"""The parts of a `GatewayStatus`, from what the gateway's event loop owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gaia.mcp.gateway.access.access import Access
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.gateway.operations.status import ClientStatus, LimitStatus, SessionStatus


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
            name=one.name,
            concurrent=one.limit.concurrent,
            per_second=one.limit.per_second,
            running=one.running,
            waiting=one.waiting,
        )
        for one in access.limits.figures()
    ]
