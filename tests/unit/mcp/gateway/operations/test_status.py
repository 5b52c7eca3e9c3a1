"""What is known of a running gateway."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from gaia.mcp.gateway.access.access import Access
from gaia.mcp.gateway.access.clients_file import ClientEntry, ClientsFile, hash_of
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import EVERYTHING
from gaia.mcp.gateway.access.settings import ClientLimits, GatewayLimits
from gaia.mcp.gateway.clients.sessions import Session
from gaia.mcp.gateway.operations.status import (
    ClientStatus,
    GatewayStatus,
    LimitStatus,
    ReloadStatus,
    SessionStatus,
    clients_of,
    limits_of,
    session_status,
)
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus

SESSION = SessionStatus(client="ci", program="test 1", path="/mcp", protocol_version="2025-11-25", running=2, idle=0.5)
STATUS = GatewayStatus(
    name="gw1",
    version="1.0",
    uptime=3.0,
    is_draining=False,
    max_sessions=10,
    session_count=1,
    servers=[ServerStatus(name="it", state=ServerState.READY, calls=3, latency_p50=0.25)],
    sessions=[SESSION],
    clients=[ClientStatus(name="ci", profile="small", sessions=1, running=2)],
    limits=[LimitStatus(name="client 'ci'", concurrent=4, per_second=None, running=2, waiting=1)],
    reload=ReloadStatus(at=1.0, error="a.json: it is wrong"),
)


def test_json_and_back() -> None:
    assert msgspec.json.decode(msgspec.json.encode(STATUS), type=GatewayStatus) == STATUS
    assert STATUS.to_builtins()["servers"][0]["state"] == "ready"


def test_the_page_is_bounded_however_many_clients_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.mcp.gateway.operations.status._MOST", 2)
    limit = STATUS.limits[0]
    whole = msgspec.structs.replace(
        STATUS,
        sessions=[msgspec.structs.replace(SESSION, path=path) for path in "abc"],
        clients=[ClientStatus(name=name, profile="") for name in "abc"],
        limits=[
            msgspec.structs.replace(limit, name=name, running=running)
            for name, running in zip("abc", range(3), strict=True)
        ],
    )
    shown = whole.bounded()
    assert [one.path for one in shown.sessions] == ["b", "c"], "those that were used last"
    assert [one.name for one in shown.clients] == ["a", "b"]
    assert [one.name for one in shown.limits] == ["c", "b"]
    assert shown.session_count == whole.session_count


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
