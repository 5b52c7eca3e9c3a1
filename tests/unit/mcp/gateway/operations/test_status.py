"""The status of a gateway survives the way as JSON."""

from __future__ import annotations

import msgspec
import pytest

from gaia.mcp.gateway.operations.status import (
    ClientStatus,
    GatewayStatus,
    LimitStatus,
    ReloadStatus,
    SessionStatus,
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
