"""One host and several programs that use its server, without an engine in between."""

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import psutil
import pytest

from gaia.mcp.cluster.host import ServerHost
from gaia.mcp.cluster.report import HostReport
from gaia.mcp.cluster.wire import (
    Answer,
    AskedInput,
    Launch,
    ListingBegan,
    Reply,
    StateReached,
    ToolsListed,
    Withdrawn,
    decode_events,
    encode,
)
from gaia.mcp.supervision.events import ServerState
from gaia.testing import FakeClock
from tests.hosts import Driver
from tests.waiting import PATIENCE, wait_until

LEASE = 30.0
QUESTION = {"method": "elicitation/create", "params": {"message": "ok?", "requestedSchema": {}}}


class Shared:
    """A host and its drivers."""

    def __init__(self, server: dict[str, Any]) -> None:
        self.clock = FakeClock()
        self.unused = threading.Event()
        self.host = ServerHost("node-1", self.clock, on_unused=self.unused.set)
        self._server = server

    def driver(self, name: str, **changed: Any) -> Driver:
        driver = Driver(self._server, self.clock)
        driver.host = self.host
        driver.greeting = driver.greet(user=name, driver=name, lease=LEASE, **changed)  # type: ignore[attr-defined]
        return driver

    def ready(self, name: str, **changed: Any) -> Driver:
        driver = self.driver(name, **changed)
        driver.wait_for(ServerState.READY)
        return driver

    def report(self) -> HostReport:
        return msgspec.msgpack.decode(self.host.report(), type=HostReport)


@pytest.fixture
def shared(demo_server: dict[str, Any]) -> Iterator[Shared]:
    shared = Shared(demo_server)
    yield shared
    shared.host.stop()


class TestUsers:
    def test_all_use_one_process_and_each_is_told_everything(self, shared: Shared) -> None:
        first, second = shared.ready("first"), shared.ready("second")
        assert first.wait_for(ServerState.READY).pid == second.wait_for(ServerState.READY).pid
        assert [type(event) for event in second.events] == [ListingBegan, ToolsListed, StateReached]
        # Their calls have the same numbers.
        assert first.call("add", 1, a=1, b=2).result is not None
        assert second.call("add", 1, a=1, b=2).result is not None
        assert first.incarnation != second.incarnation

    def test_the_last_one_ends_it(self, shared: Shared) -> None:
        first, second = shared.ready("first"), shared.ready("second")
        pid = first.wait_for(ServerState.READY).pid
        assert pid is not None
        assert not shared.host.leave(first.incarnation)
        assert second.call("add", a=1, b=2).result is not None
        assert first.call("add", a=1, b=2).is_late
        assert shared.host.leave(second.incarnation)
        assert not psutil.pid_exists(pid)
        assert shared.driver("third").greeting.is_over  # type: ignore[attr-defined]

    def test_one_that_leaves_ends_its_calls_and_no_others(self, shared: Shared) -> None:
        first, second = shared.ready("first"), shared.ready("second")
        replies: dict[str, Reply] = {}

        def sleep(driver: Driver, name: str, seconds: float) -> None:
            replies[name] = driver.call("sleep", 7, seconds=seconds)

        threads = [
            threading.Thread(target=sleep, args=(first, "first", 60)),
            threading.Thread(target=sleep, args=(second, "second", 60)),
        ]
        for thread in threads:
            thread.start()
        assert wait_until(lambda: sum(user.in_flight for user in shared.report().users) == 2)
        assert not shared.host.leave(first.incarnation)
        threads[0].join(PATIENCE)
        error = replies["first"].error
        assert error is not None
        assert error.kind == "CallCancelled"
        shared.host.cancel(second.incarnation, 7, "not wanted", False)
        threads[1].join(PATIENCE)
        assert replies["second"].error is not None

    def test_one_that_is_not_heard_of_is_not_counted_any_more(self, shared: Shared) -> None:
        first, second = shared.ready("first"), shared.ready("second")
        shared.clock.advance(LEASE - 1)
        assert second.host.poll(second.incarnation, 0)
        shared.clock.advance(1)
        assert wait_until(lambda: [user.driver for user in shared.report().users] == ["second"])
        assert first.call("add", a=1, b=2).is_late
        assert second.call("add", a=1, b=2).result is not None
        shared.clock.advance(LEASE)
        assert shared.unused.wait(PATIENCE)
        assert shared.report().users == []

    def test_a_host_that_no_program_uses_ends(self, shared: Shared) -> None:
        shared.clock.advance(60)
        assert shared.unused.wait(PATIENCE)

    def test_another_configuration_is_refused_without_its_values(self, shared: Shared) -> None:
        first = shared.ready("first")
        launch = Launch(command=first.settings.launch.command, args=first.settings.launch.args, env={"KEY": "s3cret"})
        problem = shared.driver("second", launch=launch, health_interval=1.0).greeting.problem  # type: ignore[attr-defined]
        assert "with another configuration, which differs in: env, health_interval" in problem
        assert "s3cret" not in problem
        assert [user.driver for user in shared.report().users] == ["first"]


class TestQuestions:
    @pytest.fixture
    def asking(self, fault_server: Any) -> Iterator[Shared]:
        shared = Shared(fault_server(faults=[{"tool": "client_answers", "server_requests": [QUESTION]}]))
        yield shared
        shared.host.stop()

    def test_the_program_whose_call_it_is_is_asked(self, asking: Shared) -> None:
        features = {"capabilities": {"elicitation": {"form": {}}}}
        first, second = asking.ready("first", **features), asking.ready("second", **features)
        replies: list[Reply] = []
        thread = threading.Thread(target=lambda: replies.append(second.call("client_answers")))
        thread.start()
        (question,) = asked(second)
        answer = Answer(question.number, {"action": "accept", "content": {}})
        asking.host.answer(second.incarnation, encode(answer))
        thread.join(PATIENCE)
        assert replies[0].result is not None
        assert b"accept" in replies[0].result
        told = decode_events(first.host.poll(first.incarnation, 0)).events
        assert not any(isinstance(event, AskedInput | Withdrawn) for event in told)


def asked(driver: Driver) -> list[AskedInput]:
    """The questions to this driver, of which there is one at least."""
    while True:
        found = [event for event in driver.events if isinstance(event, AskedInput)]
        if found:
            return found
        driver.events += decode_events(driver.host.poll(driver.incarnation, len(driver.events))).events
