"""Which replica a call goes to: the ready one with the fewest calls, once, and never one that was removed."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gaia.mcp.errors import CallCancelled, Overloaded, ServerCrashed
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.connection import Connection, ConnectionState
from gaia.mcp.supervision import pool_queue as pool_queue_module
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.pool_queue import PoolQueue, ReplicaQueue
from gaia.testing import FakeClock
from tests.fake_transport import FakeChannel
from tests.interleaving import interleavings

MOST = 3
"""Calls that one replica may have in flight."""


class Replica:
    """One replica of a `Desk`, with what a supervisor does to its queue."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.queue = ReplicaQueue(
            desk.pool,
            "fake",
            MOST,
            desk.pool.next_id,
            on_call_waiting=lambda: None,
            on_expired=lambda _: None,
        )
        self.queue.move_to(ServerState.STARTING, None)
        self.channel: FakeChannel | None = None
        self.connection: Connection | None = None

    def ready(self) -> FakeChannel:
        self.connection = connection = Connection(
            "fake", 1, self.desk.clock, max_pending=100, on_notification=lambda _: None, on_ended=lambda _: None
        )
        self.channel = connection.channel = FakeChannel(connection, 1, {})
        connection.move_to(ConnectionState.READY)
        self.desk.channels.append(self.channel)
        self.queue.move_to(ServerState.READY, None)
        self.queue.admit(connection, lambda _: None)
        return self.channel

    def lose(self) -> None:
        connection, self.connection = self.connection, None
        assert connection is not None
        self.queue.suspend()
        self.queue.take_back(connection, "it exploded")
        self.queue.move_to(ServerState.RESTARTING, "it exploded")
        self.lost = connection

    def silence(self) -> None:
        assert self.channel is not None
        self.channel.close(0.0)
        self.queue.silenced(self.lost)

    @property
    def load(self) -> int:
        return 0 if self.connection is None else self.connection.load


class Desk:
    def __init__(self, replicas: int = 2, *, max_pending: int = MOST) -> None:
        self.clock = FakeClock()
        self.woken = 0
        self.pool = PoolQueue("fake", max_pending, itertools.count(1).__next__, self.wake, lambda _: None)
        self.pool.move_to(ServerState.READY, None)
        self.channels: list[FakeChannel] = []
        self.replicas: list[Replica] = []
        for _ in range(replicas):
            self.add()

    def wake(self, count: Callable[[], int]) -> None:
        self.woken += 1

    def add(self) -> Replica:
        self.replicas.append(Replica(self))
        self.pool.queues = tuple(one.queue for one in self.replicas)
        return self.replicas[-1]

    def remove(self, replica: Replica) -> None:
        self.replicas.remove(replica)
        self.pool.queues = tuple(one.queue for one in self.replicas)
        self.pool.leaving = (*self.pool.leaving, replica.queue)
        self.pool.changed()

    def call(self, tool: str = "echo", *, repeatable: bool = False) -> Call:
        now = self.clock.monotonic()
        return Call(
            self.pool.next_id(),
            "tools/call",
            {"name": tool},
            now,
            30.0,
            repeatable=repeatable,
            tool=tool,
            route=self.pool,
        )

    def submit(self, tool: str = "echo", *, repeatable: bool = False) -> Call:
        call = self.call(tool, repeatable=repeatable)
        self.pool.submit(call)
        return call

    def written(self) -> Counter[int]:
        return Counter(request["id"] for channel in self.channels for request in channel.requests("tools/call"))


def ids(channel: FakeChannel) -> list[int]:
    return [request["id"] for request in channel.requests("tools/call")]


def test_calls_go_to_the_replica_with_the_fewest_in_flight() -> None:
    desk = Desk(3)
    channels = [one.ready() for one in desk.replicas]
    for _ in range(6):
        desk.submit()
    assert [len(ids(channel)) for channel in channels] == [2, 2, 2]
    channels[1].answer(channels[1].requests("tools/call")[0], {})
    late = desk.submit()
    assert ids(channels[1])[-1] == late.id


def test_when_all_are_full_calls_wait_together_and_the_first_place_goes_to_the_first() -> None:
    desk = Desk()
    first, second = (one.ready() for one in desk.replicas)
    for _ in range(2 * MOST):
        desk.submit()
    waiting = [desk.submit() for _ in range(MOST)]
    assert isinstance(desk.submit().error, Overloaded)
    second.answer(second.requests("tools/call")[0], {})
    assert ids(second)[-1] == waiting[0].id
    first.answer(first.requests("tools/call")[0], {})
    assert ids(first)[-1] == waiting[1].id
    assert len(desk.pool) == 1


def test_a_call_that_is_given_up_makes_room() -> None:
    desk = Desk(1)
    channel = desk.replicas[0].ready()
    held = [desk.submit() for _ in range(MOST)]
    late, later = desk.submit(), desk.submit()
    assert held[0].cancel(CallCancelled("enough"))
    assert ids(channel)[-1] == late.id
    assert held[1].expire()
    assert ids(channel)[-1] == later.id


def test_a_safe_call_of_a_lost_replica_goes_to_another_one_as_soon_as_the_lost_one_is_silent() -> None:
    desk = Desk()
    lost, other = desk.replicas
    first = lost.ready()
    safe, unsafe = desk.submit(repeatable=True), desk.submit()
    first.stop_reading()
    unwritten = desk.submit()
    second = other.ready()
    lost.lose()
    assert ids(second) == [], "the lost one might still write them"
    assert isinstance(unsafe.error, ServerCrashed)
    lost.silence()
    assert ids(second) == [safe.id, unwritten.id]
    assert ids(first) != ids(second)


def test_a_replica_gets_no_calls_of_tools_that_it_defines_otherwise() -> None:
    desk = Desk()
    other, alike = (one.ready() for one in desk.replicas)
    desk.replicas[0].queue.differing = frozenset({"echo"})
    calls = [desk.submit() for _ in range(MOST)]
    assert ids(alike) == [call.id for call in calls]
    waiting = desk.submit()
    look = desk.submit("look")
    assert ids(other) == [look.id], "a call that cannot go yet delays no other"
    desk.replicas[0].queue.differing = ()
    desk.pool.send_waiting()
    assert ids(other) == [look.id, waiting.id]
    listing = Call(desk.pool.next_id(), "tools/list", None, 0.0, 30.0)
    desk.replicas[0].queue.differing = frozenset({"other"})
    assert not desk.replicas[0].queue.takes(listing)


def test_one_at_rest_is_wanted_when_the_others_have_calls() -> None:
    desk = Desk()
    desk.replicas[0].ready()
    desk.replicas[1].queue.move_to(ServerState.EXITED, None)
    connection = desk.replicas[0].connection
    assert connection is not None
    connection.submit(Call(desk.pool.next_id(), "subscriptions/listen", None, 0.0, math.inf, bound=True))
    desk.submit()
    assert desk.woken == 0
    desk.submit()
    assert desk.woken == 1


def test_a_replica_on_trial_waits_while_a_lost_one_may_write_the_calls() -> None:
    desk = Desk()
    lost, trial = desk.replicas
    lost.ready().stop_reading()
    call = desk.submit()
    lost.lose()
    trial.ready()
    assert trial.connection is not None
    trial.queue.suspend()
    assert trial.queue.admit_one(trial.connection, lambda _: None, lambda _: None) is None
    lost.silence()
    assert trial.queue.admit_one(trial.connection, lambda _: None, lambda _: None) is call


def test_a_forked_child_has_none_of_it() -> None:
    desk = Desk()
    desk.replicas[0].ready()
    for one in desk.replicas:
        one.queue.after_fork()
    assert "fork" in str(desk.submit().error)


class TestAnyMoment:
    """What happens to a replica at any moment of a submission."""

    def test_a_call_is_sent_once_if_a_replica_is_removed_or_gets_ready(self) -> None:
        def make() -> tuple[Callable[[], tuple[Desk, Call]], Callable[[], object]]:
            desk = Desk()
            desk.replicas[0].ready()

            def change() -> None:
                desk.remove(desk.replicas[0])
                desk.replicas[0].ready()

            return lambda: (desk, desk.submit()), change

        for (desk, call), _ in interleavings(make, pool_queue_module):
            assert desk.written() == {call.id: 1}

    def test_a_call_that_finds_no_room_is_sent_when_there_is_some(self) -> None:
        def make() -> tuple[Callable[[], tuple[Desk, Call]], Callable[[], object]]:
            desk = Desk(1, max_pending=1)
            channel = desk.replicas[0].ready()
            desk.submit()
            request = channel.requests("tools/call")[0]
            return lambda: (desk, desk.submit()), lambda: channel.answer(request, {})

        for (desk, call), _ in interleavings(make, pool_queue_module):
            assert call.ended or desk.written()[call.id] == 1


class PoolMachine(RuleBasedStateMachine):
    """Replicas come and go while calls are made: each unsafe call is written once at most, and none is forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(2)
        self.calls: list[Call] = []
        self.silent_later: list[Replica] = []

    def ready(self) -> list[Replica]:
        return [one for one in self.desk.replicas if one.connection is not None]

    @rule(safe=st.booleans())
    def submit(self, safe: bool) -> None:
        fewest = min((one.load for one in self.ready()), default=MOST)
        before = {one: len(ids(one.channel)) for one in self.ready() if one.channel is not None}
        call = self.desk.submit(repeatable=safe)
        self.calls.append(call)
        went_to = [one for one, count in before.items() if one.channel is not None and len(ids(one.channel)) > count]
        if fewest < MOST:
            (chosen,) = went_to
            assert chosen.load == fewest + 1
        else:
            assert went_to == []

    @rule()
    def add(self) -> None:
        if len(self.desk.replicas) < 4:
            self.desk.add()

    @rule(data=st.data())
    def get_ready(self, data: st.DataObject) -> None:
        idle = [one for one in self.desk.replicas if one.connection is None and one not in self.silent_later]
        if idle:
            data.draw(st.sampled_from(idle)).ready()

    @precondition(lambda self: self.ready())
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        replica = data.draw(st.sampled_from(self.ready()))
        replica.lose()
        self.silent_later.append(replica)

    @precondition(lambda self: self.silent_later)
    @rule()
    def silence(self) -> None:
        self.silent_later.pop(0).silence()

    @precondition(lambda self: self.ready())
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        replica = data.draw(st.sampled_from(self.ready()))
        assert replica.channel is not None
        self.desk.remove(replica)
        seen = len(ids(replica.channel))
        self.desk.pool.submit(call := self.desk.call())
        self.calls.append(call)
        assert len(ids(replica.channel)) == seen, "a removed one gets no call"

    @precondition(lambda self: self.ready())
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        channel = data.draw(st.sampled_from(self.ready())).channel
        assert channel is not None
        open_ids = {call.id for call in self.calls if not call.ended}
        requests = [one for one in channel.requests("tools/call") if one["id"] in open_ids]
        if requests:
            channel.answer(data.draw(st.sampled_from(requests)), {})

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        if open_calls := [call for call in self.calls if not call.ended]:
            data.draw(st.sampled_from(open_calls)).cancel(CallCancelled("enough"))

    @invariant()
    def each_request_is_written_once(self) -> None:
        assert all(count == 1 for count in self.desk.written().values())

    @invariant()
    def no_call_waits_that_could_be_sent(self) -> None:
        has_room = any(one.load < MOST for one in self.ready())
        waiting = [call for call in self.desk.pool._backlog if not (call.withdrawn or call.ended)]
        assert not (has_room and waiting)

    def teardown(self) -> None:
        while self.silent_later:
            self.silence()
        queues: Any = (*self.desk.pool.queues, *self.desk.pool.leaving)
        in_flight = {id(call) for queue in queues for one in queue._connections for call in one._in_flight.values()}
        waiting = {id(call) for call in self.desk.pool._backlog}
        for call in self.calls:
            assert call.ended or (id(call) in in_flight) != (id(call) in waiting)


TestPool = PoolMachine.TestCase
