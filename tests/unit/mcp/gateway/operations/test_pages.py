"""The pages of a gateway about itself, without HTTP."""

from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from gaia.mcp.gateway.access.audit import Audit
from gaia.mcp.gateway.access.audit_file import AuditFile
from gaia.mcp.gateway.access.checks import Checks
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.profile import EVERYTHING, Profile
from gaia.mcp.gateway.operations.pages import OperationPages
from gaia.mcp.gateway.operations.status import GatewayStatus
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.serving.responses import HttpRequest, ignore
from tests.gateway.fake_loop import FakeLoop
from tests.unit.mcp.gateway.operations.test_status import STATUS

CI = Principal("ci", Profile("small", servers=("it",)))
OPERATOR = Principal("operator", EVERYTHING)


class Responder:
    is_over = False
    on_gone = staticmethod(ignore)

    status = 0
    body = b""
    headers: dict[bytes, bytes]

    def finish(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, dict(headers), body

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class Operated:
    """The pages of a gateway whose state a test sets."""

    def __init__(self) -> None:
        self.states = {"it": ServerState.READY}
        self.is_draining = False
        self.asked: list[Principal | None] = []
        self.checks = Checks()
        self.pages = OperationPages(self._servers, self._status, lambda: self.is_draining, self.checks)

    def get(self, path: str, client: Principal | None = None, method: str = "GET") -> Responder:
        responder = Responder()
        self.pages.answer(HttpRequest(method, path, {}, b"", None), responder, client)
        return responder

    def _servers(self) -> list[ServerStatus]:
        return [ServerStatus(name=name, state=state, last_error="it broke") for name, state in self.states.items()]

    def _status(self, client: Principal | None) -> GatewayStatus:
        self.asked.append(client)
        return msgspec.structs.replace(STATUS, servers=self._servers())


@pytest.fixture
def operated() -> Operated:
    return Operated()


@pytest.mark.parametrize("path", ["/health", "/ready", "/ready/it", "/metrics", "/status"])
def test_these_are_its_pages(path: str, operated: Operated) -> None:
    assert operated.pages.has(path)
    assert operated.get(path).status == 200
    assert operated.get(path, method="POST").status == 405
    assert not any(map(operated.pages.has, ("/", "/mcp", "/mcp/health", "/readyx", "/metrics/")))


@pytest.mark.parametrize(
    ("states", "status"),
    [
        ([], 200),
        ([ServerState.STARTING], 503),
        ([ServerState.FAILED], 503),
        ([ServerState.FAILED, ServerState.READY], 200),
        ([ServerState.RESTARTING], 200),
        ([ServerState.EXITED], 200),
    ],
)
def test_a_gateway_is_ready_if_calls_of_any_server_are_answered(
    states: list[ServerState], status: int, operated: Operated
) -> None:
    operated.states = {str(number): state for number, state in enumerate(states)}

    assert operated.get("/ready").status == status


def test_a_gateway_that_drains_is_alive_and_not_ready(operated: Operated) -> None:
    operated.is_draining = True

    assert operated.get("/ready").json == {"status": "stopping"}
    assert operated.get("/ready").status == 503
    assert operated.get("/health").status == 200


def test_each_server_has_a_page(operated: Operated) -> None:
    operated.states["bad"] = ServerState.FAILED

    assert operated.get("/ready/it").json == {"status": "ready", "lastError": None}
    assert operated.get("/ready/bad").json == {"status": "failed", "lastError": "it broke"}
    assert [operated.get(f"/ready/{name}").status for name in ("it", "bad", "none")] == [200, 503, 404]


def test_probes_need_no_token_and_name_no_server(operated: Operated) -> None:
    assert operated.get("/ready").json == {"status": "ready", "servers": 1, "ready": 1}
    open_to_all = {
        path: operated.pages.are_open(HttpRequest("GET", path, {}, b"", None))
        for path in ("/health", "/ready", "/ready/it", "/metrics", "/status")
    }
    assert [path for path, is_open in open_to_all.items() if is_open] == ["/health", "/ready"]


def test_a_client_sees_what_its_profile_allows_and_not_why_a_server_is_down(operated: Operated) -> None:
    operated.states["other"] = ServerState.READY
    statuses = [operated.get(path, CI).status for path in ("/ready/it", "/ready/other", "/metrics", "/status")]
    assert statuses == [200, 404, 403, 200]
    assert [operated.get(path, OPERATOR).status for path in ("/status", "/metrics")] == [200, 200]
    assert operated.asked == [CI, None, None]
    operated.states["it"] = ServerState.FAILED
    for path in ("/ready/it", "/status"):
        assert b"it broke" in operated.get(path, OPERATOR).body
        assert b"it broke" not in operated.get(path, CI).body


def test_a_gateway_that_cannot_record_calls_is_not_ready(operated: Operated, tmp_path: Path) -> None:
    loop = FakeLoop()
    file = tmp_path / "audit.jsonl"
    operated.checks.audit = audit = Audit(AuditFile(file), loop)
    try:
        assert operated.get("/ready").status == 200
        file.rename(tmp_path / "moved")
        file.mkdir()
        audit.reopen()
        assert operated.get("/ready").status == 503
        assert operated.get("/ready").json == {"status": "the audit cannot be written"}
        file.rmdir()
        loop.advance(1.0)
        assert operated.get("/ready").status == 200, "no call is needed to notice that it can be written again"
    finally:
        audit.close()
