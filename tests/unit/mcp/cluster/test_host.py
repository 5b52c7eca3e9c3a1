import threading
from collections.abc import Iterator
from typing import Any

import orjson
import psutil
import pytest

from gaia.mcp.cluster.wire import (
    Launch,
    ListingBegan,
    Progressed,
    Reply,
    StateReached,
    ToolsListed,
    decode_events,
    decode_greeting,
)
from gaia.mcp.supervision.events import ServerState
from gaia.testing import FakeClock
from tests.hosts import Driver
from tests.waiting import PATIENCE, wait_until

LEASE = 30.0


@pytest.fixture
def driver(demo_server: dict[str, Any]) -> Iterator[Driver]:
    driver = Driver(demo_server)
    yield driver
    driver.host.stop()


class TestCallsForOneStart:
    def test_only_that_start_gets_them(self, driver: Driver) -> None:
        driver.greet()
        driver.wait_for(ServerState.READY)
        assert driver.call("add", start=1, a=1, b=2).result is not None
        crashed = driver.call("crash", start=1).error
        assert crashed is not None
        assert crashed.kind == "ServerCrashed"
        driver.wait_for(ServerState.READY, times=2)
        lost = driver.call("add", start=1, a=1, b=2).error
        assert lost is not None
        assert (lost.kind, lost.state["delivery"]) == ("SessionLost", "not_sent")
        assert driver.call("add", start=2, a=1, b=2).result is not None


class TestGreeting:
    def test_it_starts_the_server_and_tells_of_its_tools_before_it_is_ready(self, driver: Driver) -> None:
        greeting = driver.greet()
        assert (greeting.problem, greeting.node_id) == (None, "node-1")
        ready = driver.wait_for(ServerState.READY)
        assert ready.profile is not None
        assert ready.pid is not None
        kinds = [type(event) for event in driver.events]
        assert kinds == [StateReached, ListingBegan, ToolsListed, StateReached]

    def test_a_second_one_starts_nothing(self, driver: Driver) -> None:
        assert driver.greet().incarnation == driver.greet().incarnation
        assert driver.wait_for(ServerState.READY).generation == 1

    def test_another_version_is_reported(self, driver: Driver) -> None:
        problem = driver.greet(version="0.0.1").problem
        assert problem is not None
        assert "install the same version on both" in problem

    def test_settings_that_cannot_be_read_are_not_repeated(self, driver: Driver) -> None:
        problem = decode_greeting(driver.host.greet(b"a secret")).problem
        assert problem is not None
        assert "secret" not in problem

    def test_a_command_that_does_not_exist(self, driver: Driver) -> None:
        driver.greet(launch=Launch(command="no-such-command"))
        assert "no-such-command" in str(driver.wait_for(ServerState.FAILED).reason)


class TestCalls:
    def test_a_call_is_answered(self, driver: Driver) -> None:
        driver.greet()
        driver.wait_for(ServerState.READY)
        reply = driver.call("add", a=1, b=2)
        assert reply.result is not None
        assert orjson.loads(reply.result)["structuredContent"] == {"sum": 3}

    def test_one_for_another_incarnation_is_not_made(self, driver: Driver) -> None:
        driver.greet()
        driver.incarnation = "another"
        assert driver.call("add", a=1, b=2).is_late
        assert driver.host.poll("another", 0) == b""

    def test_one_of_a_tool_that_the_driver_does_not_know_yet_is_sent_back(self, driver: Driver) -> None:
        driver.greet()
        driver.wait_for(ServerState.READY)
        reply = driver.call("add", listing=0, a=1, b=2)
        assert (reply.result, reply.error, reply.is_late) == (None, None, False)

    def test_a_crash_is_the_business_of_the_host(self, driver: Driver) -> None:
        driver.greet()
        driver.wait_for(ServerState.READY)
        error = driver.call("crash").error
        assert error is not None
        assert (error.kind, error.state["delivery"]) == ("ServerCrashed", "unknown")
        assert driver.wait_for(ServerState.READY, 2).generation == 2

    def test_a_cancellation_ends_a_call_also_if_it_comes_first(self, driver: Driver) -> None:
        driver.greet()
        driver.wait_for(ServerState.READY)
        driver.host.cancel(driver.incarnation, 77, "not wanted", False)
        error = driver.call("sleep", 77, seconds=60).error
        assert error is not None
        assert (error.kind, error.state["delivery"]) == ("CallCancelled", "not_sent")

    def test_a_cancellation_ends_a_call_that_is_under_way(self, driver: Driver) -> None:
        driver.greet()
        driver.wait_for(ServerState.READY)
        replies: list[Reply] = []
        thread = threading.Thread(target=lambda: replies.append(driver.call("sleep", 77, seconds=60)))
        thread.start()
        # Whether it comes before or after the call does not matter.
        driver.host.cancel(driver.incarnation, 77, "not wanted", False)
        thread.join(PATIENCE)
        assert replies[0].error is not None
        assert replies[0].error.kind == "CallCancelled"


class TestProgress:
    def test_it_is_among_the_events_and_counted_in_the_answer(self, fault_server: Any) -> None:
        driver = Driver(fault_server(faults=[{"tool": "echo", "progress": [{"progress": 1}, {"progress": 2}]}]))
        try:
            driver.greet()
            driver.wait_for(ServerState.READY)
            assert driver.call("echo", text="x").progress == 2
            found = decode_events(driver.host.poll(driver.incarnation, len(driver.events))).events
            assert [one.params["progress"] for one in found if isinstance(one, Progressed)] == [1, 2]
        finally:
            driver.host.stop()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def forgotten(demo_server: dict[str, Any], clock: FakeClock) -> Iterator[Driver]:
    """A driver whose host has a clock of its own."""
    driver = Driver(demo_server, clock)
    # No look at the server's health takes longer than it may when the clock leaps.
    driver.greet(lease=LEASE, health_interval=100 * LEASE)
    driver.wait_for(ServerState.READY)
    yield driver
    driver.host.stop()


class TestLease:
    def test_the_server_is_stopped_when_the_driver_does_not_ask_any_more(
        self, forgotten: Driver, clock: FakeClock
    ) -> None:
        pid = forgotten.wait_for(ServerState.READY).pid
        assert pid is not None
        clock.advance(LEASE)
        assert forgotten.over.wait(PATIENCE)
        assert not psutil.pid_exists(pid)

    def test_polls_keep_it(self, forgotten: Driver, clock: FakeClock) -> None:
        for _ in range(4):
            clock.advance(LEASE - 1)
            assert forgotten.host.poll(forgotten.incarnation, 0)
        assert not forgotten.over.is_set()
        assert forgotten.call("add", a=1, b=2).result is not None

    def test_a_host_whose_time_is_over_does_nothing(self, forgotten: Driver, clock: FakeClock) -> None:
        clock.advance(LEASE)
        # Whether its thread has noticed it or not.
        assert forgotten.host.poll(forgotten.incarnation, 0) == b""
        reply = forgotten.call("add", a=1, b=2)
        assert reply.is_late
        assert (reply.result, reply.error) == (None, None)
        assert forgotten.greet().is_over

    def test_a_call_that_is_as_old_as_the_lease_is_not_made(self, forgotten: Driver, clock: FakeClock) -> None:
        sent = clock.monotonic()
        for _ in range(3):
            clock.advance(LEASE / 3)
            assert forgotten.host.poll(forgotten.incarnation, 0)
        assert forgotten.call("add", sent=sent, a=1, b=2).is_late
        assert forgotten.call("add", sent=sent + 1, a=1, b=2).result is not None

    def test_a_call_under_way_ends_as_lost(self, forgotten: Driver, clock: FakeClock) -> None:
        replies: list[Reply] = []
        thread = threading.Thread(target=lambda: replies.append(forgotten.call("sleep", seconds=60)))
        thread.start()
        supervisor = forgotten.host._supervisor
        assert supervisor is not None
        assert wait_until(lambda: supervisor.in_flight == 1)
        clock.advance(LEASE)
        thread.join(PATIENCE)
        error = replies[0].error
        assert error is not None
        assert (error.kind, error.state["delivery"]) == ("ServerCrashed", "unknown")
