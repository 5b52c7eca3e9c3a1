"""The instruments, and what the gauges look at."""

import os
from collections.abc import Callable

import pytest
from opentelemetry.metrics import CallbackOptions
from opentelemetry.sdk.metrics import MeterProvider

from gaia.runtime.locks import WeakObjects
from gaia.telemetry import metrics
from gaia.telemetry.attributes import SERVER_NAME
from gaia.telemetry.metrics import metering_is_off
from tests.tracing import Metering


class Server:
    def __init__(self, name: str, queued: int = 0, in_flight: int = 0, replica: int | None = None) -> None:
        self.replica = replica
        self.name = name
        self.queued = queued
        self.in_flight = in_flight


def sums(figure: Callable[[metrics.Observed], int]) -> dict[object, float]:
    """What the gauges show of a figure, by server."""
    return {(one.attributes or {})[SERVER_NAME]: one.value for one in metrics._observations(figure, CallbackOptions())}


class TestObserved:
    @pytest.fixture(autouse=True)
    def observed(self, monkeypatch: pytest.MonkeyPatch) -> WeakObjects[metrics.Observed]:
        monkeypatch.setattr(metrics, "observed", WeakObjects())
        return metrics.observed

    def test_replicas_are_shown_by_themselves(self, observed: WeakObjects[metrics.Observed]) -> None:
        servers = [Server("time", 3), Server("time", 0, 1, replica=1), Server("time", 0, 2, replica=2)]
        for server in servers:
            observed.add(server)
        found = metrics._observations(lambda one: one.queued + one.in_flight, CallbackOptions())
        assert {(one.attributes or {}).get("gaia.mcp.replica"): one.value for one in found} == {None: 3, 1: 1, 2: 2}

    def test_clients_of_the_same_name_are_added_up(self, observed: WeakObjects[metrics.Observed]) -> None:
        servers = [Server("time", 1), Server("time", 2), Server("git", 4)]
        for server in servers:
            observed.add(server)
        assert sums(lambda one: one.queued) == {"time": 3, "git": 4}
        observed.discard(servers[0])
        observed.discard(servers[0])
        assert sums(lambda one: one.queued) == {"time": 2, "git": 4}

    def test_a_figure_is_read_without_a_lock(self, observed: WeakObjects[metrics.Observed]) -> None:
        servers = [Server("time", 1), Server("git", 2)]
        observed.add(servers[0])

        def figure(one: metrics.Observed) -> int:
            # A client may connect while the metrics are read: this must not wait for itself.
            observed.add(servers[1])
            return one.queued

        assert sums(figure) == {"time": 1}
        assert sums(figure) == {"time": 1, "git": 2}


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_forgets_the_servers() -> None:
    server = Server("time", 1)
    metrics.observed.add(server)
    try:
        child = os.fork()
        if child == 0:
            os._exit(len(metrics.observed.present()))
        assert os.waitpid(child, 0)[1] == 0
        assert server in metrics.observed.present()
    finally:
        metrics.observed.discard(server)


class TestGauges:
    def test_they_show_the_servers_of_the_moment(self, metering: Metering, monkeypatch: pytest.MonkeyPatch) -> None:
        observed: WeakObjects[metrics.Observed] = WeakObjects()
        monkeypatch.setattr(metrics, "observed", observed)
        server = Server("time", queued=2, in_flight=5)
        observed.add(server)
        assert metering.value("gaia.mcp.client.calls.queued", gaia__mcp__server__name="time") == 2
        assert metering.value("gaia.mcp.client.calls.in_flight", gaia__mcp__server__name="time") == 5
        observed.discard(server)
        assert metering.points("gaia.mcp.client.calls.queued") == []


class TestInstruments:
    def test_all_durations_have_the_buckets_of_the_conventions(self, metering: Metering) -> None:
        instruments = metrics.instruments
        durations = [name for name in vars(instruments) if name.endswith("_duration")]
        assert len(durations) == 5
        for name in durations:
            getattr(instruments, name).record(0.3, {"of": name})
        for metric in (
            "mcp.client.operation.duration",
            "mcp.client.session.duration",
            "mcp.server.operation.duration",
            "gaia.mcp.server.recovery.duration",
        ):
            (point,) = metering.points(metric)
            assert tuple(point.explicit_bounds) == metrics.BUCKETS
            assert point.count == 1

    def test_metering_is_off_until_there_is_a_provider(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert metering_is_off()
        Metering(monkeypatch)
        assert not metering_is_off()

    def test_a_meter_without_readers_is_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        provider = MeterProvider()
        monkeypatch.setattr(metrics, "instruments", metrics.Instruments(provider.get_meter("gaia.mcp")))
        assert not metering_is_off()
