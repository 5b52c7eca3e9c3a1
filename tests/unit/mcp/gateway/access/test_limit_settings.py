"""Which figures limits may have."""

from typing import Any

import msgspec
import pytest

from gaia.mcp.gateway.access.limit_settings import CircuitSettings, ClientLimits, GatewayLimits, Limit


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        (Limit, {"concurrent": 0}, "concurrent: must be a whole number"),
        (Limit, {"concurrent": True}, "concurrent"),
        (Limit, {"per_second": 0}, "perSecond: must be a number"),
        (Limit, {"per_second": float("nan")}, "perSecond"),
        (Limit, {"burst": 2}, "burst: means nothing without perSecond"),
        (Limit, {"answer_bytes": -1}, "answerBytes"),
        (CircuitSettings, {"failures": 0}, "failures"),
        (CircuitSettings, {"window": 0}, "window"),
        (CircuitSettings, {"cooldown": -1}, "cooldown"),
        (ClientLimits, {"circuit": CircuitSettings()}, "perTool"),
        (ClientLimits, {"per_server": {"*": Limit(circuit=CircuitSettings())}}, "perTool"),
        (GatewayLimits, {"per_server": {"*": Limit(circuit=CircuitSettings())}}, "perTool"),
        (GatewayLimits, {"waiting": 0}, "waiting"),
        (GatewayLimits, {"waiting_per_client": 0}, "waitingPerClient"),
        (GatewayLimits, {"max_wait": 0}, "maxWait"),
    ],
)
def test_unusable_figures_are_refused(kind: Any, values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        kind(**values)


def test_keys_are_those_of_the_file_and_others_are_refused() -> None:
    limits = msgspec.json.decode(
        b'{"perClient": {"perSecond": 5, "perTool": {"x": {"circuit": {"failures": 2}}}}, "maxWait": 2}',
        type=GatewayLimits,
    )
    assert limits.per_client is not None
    assert limits.per_client.per_second == 5
    with pytest.raises(msgspec.ValidationError, match="persecond"):
        msgspec.json.decode(b'{"perClient": {"persecond": 5}}', type=GatewayLimits)
