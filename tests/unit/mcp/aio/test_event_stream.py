"""Events for ``async for``: in order, bounded, and over when the stream is left or its owner is disconnected."""

import asyncio
import gc

import pytest

from gaia.mcp.aio import EventStream
from gaia.mcp.supervision.events import Event, EventsDropped, Listeners, ResourceUpdated, ServerLog
from tests.unit.mcp.aio.conftest import run


def updated(number: int, server: str = "one") -> ResourceUpdated:
    return ResourceUpdated(server, f"x://{number}")


async def test_events_come_in_order_from_the_moment_on_that_the_stream_is_made() -> None:
    listeners = Listeners()
    listeners.publish(updated(0))
    stream = EventStream(listeners)
    for number in range(1, 4):
        listeners.publish(updated(number))
    first = [await anext(stream) for _ in range(3)]
    following = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    await asyncio.to_thread(listeners.publish, updated(4))
    assert [*first, await following] == [updated(number) for number in range(1, 5)]


async def test_it_ends_with_its_owner_after_the_last_event() -> None:
    listeners = Listeners()
    stream = EventStream(listeners)
    listeners.publish(updated(1, "one"))
    listeners.publish(updated(2, "two"))
    listeners.end()
    assert [event async for event in stream] == [updated(1, "one"), updated(2, "two")]


async def test_a_task_that_waits_is_told_of_the_end_by_any_thread() -> None:
    listeners = Listeners()
    stream = EventStream(listeners)

    async def collect() -> list[Event]:
        return [event async for event in stream]

    task = asyncio.create_task(collect())
    await asyncio.sleep(0)
    await asyncio.to_thread(listeners.end)
    assert await task == []


async def test_a_loop_that_is_left_ends_the_subscription() -> None:
    listeners = Listeners()
    stream = EventStream(listeners)
    listeners.publish(updated(1))
    async for event in stream:
        assert event == updated(1)
        break
    subscribed = len(listeners._posts)
    del stream
    gc.collect()
    assert (subscribed, len(listeners._posts) + len(listeners._ends)) == (1, 0)


async def test_a_closed_stream_gives_no_further_event_and_ends_a_task_that_waits() -> None:
    listeners = Listeners()
    stream = EventStream(listeners)
    waiting = asyncio.ensure_future(anext(stream, None))
    await asyncio.sleep(0)
    await stream.aclose()
    assert await waiting is None
    listeners.publish(updated(1))
    assert await anext(stream, None) is None
    await stream.aclose()
    assert listeners._posts == listeners._ends == ()


async def test_a_slow_task_misses_the_oldest_events_and_is_told_how_many() -> None:
    listeners = Listeners()
    stream = EventStream(listeners)
    for number in range(10_050):
        listeners.publish(updated(number))
    listeners.end()
    first, *others = [event async for event in stream]
    assert first == EventsDropped("one", 50)
    assert others == [updated(number) for number in range(50, 10_050)]


async def test_what_waits_is_bounded_in_bytes_too() -> None:
    listeners = Listeners()
    stream = EventStream(listeners)
    for number in range(10):
        listeners.publish(ServerLog("one", "info", None, f"{number}" + "x" * 1024 * 1024))
    listeners.end()
    events = [event async for event in stream]
    assert isinstance(events[0], EventsDropped)
    assert events[0].count >= 6


def test_events_after_the_loop_was_closed_raise_nothing() -> None:
    listeners = Listeners()
    loop = asyncio.new_event_loop()

    async def make() -> EventStream:
        return EventStream(listeners)

    stream = loop.run_until_complete(make())
    loop.close()
    for number in range(3):
        listeners.publish(updated(number))
    listeners.end()
    del stream
    gc.collect()
    assert listeners._posts == ()


def test_another_event_loop_is_refused() -> None:
    """Its tasks would wait for a loop that cannot wake them up."""
    listeners = Listeners()

    async def make() -> EventStream:
        return EventStream(listeners)

    stream = run(make())
    listeners.publish(updated(1))

    async def take() -> None:
        with pytest.raises(RuntimeError, match=r"another event loop; call events\(\)"):
            await anext(stream)
        await stream.aclose()

    run(take())


async def test_a_second_task_that_waits_is_refused_and_the_first_goes_on() -> None:
    listeners = Listeners()
    stream = EventStream(listeners)
    first = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another task"):
        await anext(stream)
    listeners.publish(updated(1))
    assert await first == updated(1)


async def test_a_task_that_was_cancelled_leaves_the_stream_to_the_next() -> None:
    listeners = Listeners()
    stream = EventStream(listeners)
    first = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    listeners.publish(updated(1))
    assert await anext(stream) == updated(1)
