"""Events and their listeners."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gaia.mcp.supervision import callbacks
from gaia.mcp.supervision.callbacks import CallbackPool, Lane
from gaia.mcp.supervision.events import (
    Event,
    EventsDropped,
    Listeners,
    PromptsChanged,
    ServerLog,
    ToolsChanged,
)
from tests.waiting import PATIENCE

EVENTS = [ToolsChanged("s", added=(str(number),)) for number in range(5)]


class HeldLane(Lane):
    """Runs nothing until the test says so."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.waiting: deque[Callable[[], object]] = deque()

    def post(self, task: Callable[[], object], server: str | None = None, size: int = 0) -> None:
        self.waiting.append(task)

    def go(self, count: int = sys.maxsize) -> None:
        while self.waiting and count > 0:
            count -= 1
            self.waiting.popleft()()


class HeldPool(CallbackPool):
    """All listeners have the same lane."""

    def __init__(self) -> None:
        super().__init__("unused")
        self.held = HeldLane()
        self.waiting = self.held.waiting
        self.go = self.held.go

    def lane(self, on_dropped: Callable[[str, int], object] | None = None) -> Lane:
        return self.held


@pytest.fixture
def lane() -> HeldPool:
    return HeldPool()


@pytest.fixture
def listeners() -> Listeners:
    return Listeners()


def publish(listeners: Listeners, *events: Event) -> None:
    for event in events:
        listeners.publish(event)


def test_a_listener_gets_events_in_order_and_not_on_the_thread_that_publishes(
    listeners: Listeners, lane: HeldPool
) -> None:
    told: list[Event] = []
    listeners.subscribe(told.append, lane)
    publish(listeners, *EVENTS)
    assert told == []
    lane.go()
    assert told == EVENTS


def test_it_gets_nothing_of_what_was_before_it(listeners: Listeners, lane: HeldPool) -> None:
    told: list[Event] = []
    publish(listeners, EVENTS[0])
    listeners.subscribe(told.append, lane)
    publish(listeners, EVENTS[1])
    lane.go()
    assert told == EVENTS[1:2]


def test_one_that_leaves_is_not_even_told_what_waits_for_it(listeners: Listeners, lane: HeldPool) -> None:
    told: list[Event] = []
    leave = listeners.subscribe(told.append, lane)
    publish(listeners, *EVENTS[:2])
    lane.go(1)
    leave()
    leave()
    publish(listeners, EVENTS[2])
    lane.go()
    assert told == EVENTS[:1]


def test_one_that_subscribed_twice_leaves_once_each(listeners: Listeners, lane: HeldPool) -> None:
    told: list[Event] = []
    leave = listeners.subscribe(told.append, lane)
    listeners.subscribe(told.append, lane)
    publish(listeners, EVENTS[0])
    lane.go()
    leave()
    publish(listeners, EVENTS[1])
    lane.go()
    assert told == [EVENTS[0], EVENTS[0], EVENTS[1]]


def test_a_listener_may_subscribe_and_leave_while_it_is_told(listeners: Listeners, lane: HeldPool) -> None:
    told: list[Event] = []

    def first(event: Event) -> None:
        listeners.subscribe(told.append, lane)
        leave()

    leave = listeners.subscribe(first, lane)
    publish(listeners, EVENTS[0])
    lane.go()
    publish(listeners, EVENTS[1])
    lane.go()
    assert told == [EVENTS[1]]


def test_listeners_that_come_and_go_on_many_threads_lose_none(listeners: Listeners, switching: Iterator[None]) -> None:
    lanes = [HeldPool() for _ in range(4)]
    stay: list[Event] = []

    def come_and_go(lane: HeldPool) -> None:
        for _ in range(200):
            listeners.subscribe(lambda _: None, lane)()
        listeners.subscribe(stay.append, lane)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, lanes))
    publish(listeners, PromptsChanged("s"))
    assert [len(lane.waiting) for lane in lanes] == [1] * 4
    for lane in lanes:
        lane.go()
    assert stay == [PromptsChanged("s")] * 4


class SlowListener:
    """One that is told of the first event until the test lets it go on."""

    def __init__(self, listeners: Listeners) -> None:
        self.pool, self.told = CallbackPool("test"), list[Event]()
        self._entered, self._go_on = threading.Event(), threading.Event()
        listeners.subscribe(self, self.pool)
        listeners.publish(EVENTS[0])
        assert self._entered.wait(PATIENCE)

    def __call__(self, event: Event) -> None:
        self.told.append(event)
        self._entered.set()
        self._go_on.wait(PATIENCE)

    def go_on(self) -> list[Event]:
        self._go_on.set()
        self.pool.close()
        return self.told


def test_a_listener_that_missed_events_is_told_in_their_place(
    listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "_MAX_TASKS", 2)
    listener = SlowListener(listeners)
    publish(listeners, PromptsChanged("other"), *EVENTS[1:])
    assert listener.go_on() == [EVENTS[0], PromptsChanged("other"), EventsDropped("s", 2), *EVENTS[3:]]


def test_events_are_bounded_by_their_size(listeners: Listeners) -> None:
    listener = SlowListener(listeners)
    for _ in range(1000):
        listeners.publish(ServerLog("s", "info", None, {"text": "x" * 60_000}))
    told = listener.go_on()
    kept = [event for event in told if isinstance(event, ServerLog)]
    assert 60 <= len(kept) <= 70
    assert told[1] == EventsDropped("s", 1000 - len(kept))


def test_an_event_cannot_be_changed_by_the_first_who_hears_of_it() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        EVENTS[0].server = "other"  # type: ignore[misc]


def test_at_the_end_only_those_that_asked_for_it_are_told_after_the_last_event(
    listeners: Listeners, lane: HeldPool
) -> None:
    told: list[object] = []
    listeners.subscribe(told.append, lane)
    unsubscribe = listeners.subscribe(told.append, lane, lambda: told.append("end"))
    publish(listeners, EVENTS[0])
    listeners.end()
    lane.go()
    assert told == [EVENTS[0], EVENTS[0], "end"]
    unsubscribe()
    listeners.end()
    lane.go()
    assert told == [EVENTS[0], EVENTS[0], "end"]


def test_a_coroutine_function_is_no_listener(listeners: Listeners, lane: HeldPool) -> None:
    async def listener(event: Event) -> None: ...

    with pytest.raises(ValueError, match=r"listener: runs on a thread.*run_coroutine_threadsafe"):
        listeners.subscribe(listener, lane)  # type: ignore[arg-type]  # what type checkers find, too
