"""The page for Prometheus, read with Prometheus' own parser."""

from __future__ import annotations

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from gaia.mcp.client.supervision.events import ServerState
from gaia.mcp.client.supervision.status import ServerStatus
from gaia.mcp.gateway.operations.metrics import metrics_of
from gaia.mcp.gateway.operations.status import GatewayStatus
from tests.unit.mcp.gateway.operations.test_status import STATUS


def samples(status: GatewayStatus) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(metrics_of(status).decode())
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
    assert found["limit_running", "client 'ci'"] == 2
    assert found["limit_waiting", "client 'ci'"] == 1


def test_a_server_that_is_down_and_no_sessions() -> None:
    down = ServerStatus(name='a "b"\n', state=ServerState.FAILED)
    found = samples(msgspec.structs.replace(STATUS, servers=[down], sessions=[], reload=None))

    assert found["server_up", 'a "b"\n'] == 0
    assert found["sessions", ""] == 0
    assert ("last_reload_successful",) not in found
