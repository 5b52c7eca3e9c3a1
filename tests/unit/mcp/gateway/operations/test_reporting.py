"""The parts of the status, from sessions and clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from gaia.mcp.gateway.access.access import Access
from gaia.mcp.gateway.access.clients_file import ClientEntry, ClientsFile, hash_of
from gaia.mcp.gateway.access.limit_settings import ClientLimits, GatewayLimits
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import EVERYTHING
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.gateway.operations.status import ClientStatus, clients_of, limits_of, session_status
from tests.unit.mcp.gateway.operations.test_status import SESSION


@pytest.fixture
def access() -> Iterator[Access]:
    loop = asyncio.new_event_loop()
    clients = {"ci": ClientEntry(token=hash_of("t"), profile="everything")}
    limits = GatewayLimits(per_client=ClientLimits(concurrent=2))
    yield Access(ClientsFile(clients=clients, limits=limits), loop)
    loop.close()


def test_a_session_says_who_and_how_long() -> None:
    # What else a session has is not looked at.
    session = Session("id", cast("Any", None), Principal("ci", EVERYTHING))
    session.revision, session.program, session.used_at = "2025-11-25", "test", 10.0
    session.requests[1] = cast("Any", None)
    status = session_status(session, "/mcp/it", 12.5)

    assert (status.client, status.program, status.path) == ("ci", "test", "/mcp/it")
    assert (status.protocol_version, status.running, status.idle) == ("2025-11-25", 1, 2.5)


def test_clients_have_their_sessions_and_known_ones_are_there_without(access: Access) -> None:
    other = ClientStatus(name="issuer/joe", profile="", sessions=1, running=2)
    sessions = [SESSION, SESSION]
    by_token = [msgspec.structs.replace(SESSION, client="issuer/joe")]

    assert clients_of(access, [], None) == [ClientStatus(name="ci", profile="everything")]
    assert clients_of(access, [*sessions, *by_token], None) == [
        ClientStatus(name="ci", profile="everything", sessions=2, running=4),
        other,
    ]
    assert clients_of(access, sessions, Principal("ci", EVERYTHING)) == [
        ClientStatus(name="ci", profile="everything", sessions=2, running=4)
    ]


def test_limits_say_how_much_is_in_use(access: Access) -> None:
    access.limits.admit(Principal("ci", EVERYTHING), "it", "echo", lambda _: None, lambda _: None)
    (limit,) = limits_of(access)

    assert (limit.concurrent, limit.per_second, limit.running, limit.waiting) == (2, None, 1, 0)
