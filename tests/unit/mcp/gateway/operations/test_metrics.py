"""The page for Prometheus, read with Prometheus' own parser."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gaia.mcp.gateway.access.audit import Audit
from gaia.mcp.gateway.access.audit_file import AuditFile
from gaia.mcp.gateway.access.checks import CallCounts, Checks, Refusals
from gaia.mcp.gateway.access.limits import Limits
from gaia.mcp.gateway.access.principal import Principal
from gaia.mcp.gateway.access.settings import ClientLimits, GatewayLimits, Limit
from gaia.mcp.gateway.operations.metrics import metrics_of
from gaia.mcp.gateway.operations.status import GatewayStatus
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from tests.gateway.fake_loop import FakeLoop
from tests.unit.mcp.gateway.operations.test_status import STATUS


def samples(
    status: GatewayStatus, counts: CallCounts | None = None, audit: Audit | None = None, **more: Any
) -> dict[tuple[str, ...], float]:
    checks = Checks(audit=audit, counts=counts or CallCounts(), **more)
    families = text_string_to_metric_families(metrics_of(status, checks).decode())
    return {
        (
            sample.name.removeprefix("gaia_gateway_"),
            *(value for _, value in sorted(sample.labels.items())),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def test_everything_of_the_status_is_there() -> None:
    found = samples(STATUS)

    assert found["uptime_seconds",] == 3
    assert found["draining",] == 0
    assert found["last_reload_successful",] == 0
    assert found["sessions", "ci"] == 1
    assert found["session_requests", "ci"] == 2
    assert found["server_up", "it"] == found["server_state", "it", "ready"] == 1
    assert found["server_calls_total", "it"] == 3
    assert found["server_latency_seconds", "0.5", "it"] == 0.25
    assert ("server_latency_seconds", "0.95", "it") not in found


def test_servers_that_are_down_or_at_rest_instances_and_refusals_are_counted() -> None:
    down = ServerStatus(name='a "b"\n', state=ServerState.FAILED)
    lazy = ServerStatus(name="lazy", state=ServerState.EXITED, instances=3)
    refusals = Refusals()
    refusals.note("wrong_token", "why", "POST /mcp", None)
    status = msgspec.structs.replace(STATUS, servers=[down, lazy], sessions=[], reload=None)
    found = samples(status, refusals=refusals)
    assert found["server_up", 'a "b"\n'] == 0
    assert found["server_up", "lazy"] == found["server_state", "lazy", "exited"] == 1, "it is not down"
    assert found["server_instances", "lazy"] == 3
    assert found["sessions", ""] == 0
    assert ("last_reload_successful",) not in found
    assert found["refusals_total", "wrong_token"] == 1


def test_calls_are_counted_by_client_server_and_outcome() -> None:
    counts = CallCounts()
    counts.add(Principal("ci"), "it", "ok", 0.001)
    counts.add(Principal("ci"), "it", "timeout", 100.0)
    found = samples(STATUS, counts)

    assert found["calls_total", "ci", "ok", "it"] == found["calls_total", "ci", "timeout", "it"] == 1
    assert found["call_duration_seconds_bucket", "ci", "0.001", "it"] == 1
    assert found["call_duration_seconds_bucket", "ci", "60.0", "it"] == 1
    assert found["call_duration_seconds_bucket", "ci", "+Inf", "it"] == 2
    assert found["call_duration_seconds_sum", "ci", "it"] == pytest.approx(100.001)


def test_an_audit_that_cannot_be_written_is_counted(tmp_path: Path) -> None:
    audit = Audit(AuditFile(tmp_path / "audit.jsonl"), FakeLoop())
    try:
        assert samples(STATUS, audit=audit)["audit_failing",] == 0
        (tmp_path / "audit.jsonl").rename(tmp_path / "moved")
        (tmp_path / "audit.jsonl").mkdir()
        audit.reopen()
        found = samples(STATUS, audit=audit)
        assert found["audit_failing",] == found["audit_failures_total",] == 1
        assert found["audit_lost_lines_total",] == 0
        assert ("audit_failing",) not in samples(STATUS)
    finally:
        audit.close()


def test_there_are_as_many_series_as_issuers_whatever_their_clients_are_called() -> None:
    settings = GatewayLimits(
        per_client=ClientLimits(
            concurrent=1, per_server={"*": Limit(concurrent=1)}, per_tool={"*": Limit(concurrent=1)}
        )
    )
    limits, counts, refusals = Limits(settings, FakeLoop()), CallCounts(), Refusals()
    sessions = []
    for number in range(300):
        client = Principal(f"corp/{number}")
        limits.admit(client, "it", "echo", lambda _: None, lambda _: None)
        limits.admit(client, "it", "echo", lambda _: None, lambda _: None)
        counts.add(client, "it", "ok", 0.1)
        sessions.append(msgspec.structs.replace(STATUS.sessions[0], client=client.name))
    status = msgspec.structs.replace(STATUS, sessions=sessions)
    found = samples(status, counts, limits=limits, refusals=refusals)
    assert len(found) < 100
    assert not [key for key in found if any("corp/" in one for one in key)]
    assert found["sessions", "corp"] == 300
    assert found["session_requests", "corp"] == 600
    assert found["limit_running", "client 'corp'"] == found["limit_waiting", "client 'corp'"] == 300
    assert found["limit_running", "client 'corp' on server 'it'"] == 300
    assert found["limit_running", "client 'corp' and tool 'echo' of 'it'"] == 300


def test_tools_that_nobody_has_listed_make_no_series_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.mcp.gateway.access.limits._MAX_GROUPS", 5)
    limits = Limits(GatewayLimits(per_tool={"*": Limit(concurrent=1)}), FakeLoop())
    for number in range(50):
        limits.admit(Principal("ann"), "it", f"guess{number}", lambda _: None, lambda _: None)
    found = {key[1]: value for key, value in samples(STATUS, limits=limits).items() if key[0] == "limit_running"}
    assert len(found) == 6
    assert found["others"] == 45
