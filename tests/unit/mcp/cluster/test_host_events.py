import threading

from gaia.mcp.cluster.host_events import HostEvents
from gaia.mcp.cluster.wire import EventHappened, Progressed, ToolsListed
from tests.waiting import PATIENCE


class TestFetching:
    def test_events_are_numbered_and_kept_until_they_are_acknowledged(self) -> None:
        events = HostEvents()
        first, second = ToolsListed(1), ToolsListed(2)
        events.add(first)
        assert events.fetch(0, 0).events == [first]
        events.add(second)
        again = events.fetch(0, 0)
        assert (again.first, again.events) == (1, [first, second])
        rest = events.fetch(1, 0)
        assert (rest.first, rest.events) == (2, [second])
        assert events.fetch(2, 0).events == []

    def test_a_poll_waits_for_an_event(self) -> None:
        events, found = HostEvents(), []
        poll = threading.Thread(target=lambda: found.append(events.fetch(0, PATIENCE)))
        poll.start()
        events.add(ToolsListed(1))
        poll.join(PATIENCE)
        assert found[0].events == [ToolsListed(1)]

    def test_a_later_poll_ends_an_earlier_one(self) -> None:
        events, found = HostEvents(), []
        poll = threading.Thread(target=lambda: found.append(events.fetch(0, 10 * PATIENCE)))
        poll.start()
        # Either it waits already, or it finds that it is not the last one; only then is it ended by an event.
        while not found:
            events.fetch(0, 0)
        poll.join(PATIENCE)
        assert found[0].events == []

    def test_the_end_ends_polls(self) -> None:
        events = HostEvents()
        events.close()
        assert events.fetch(0, PATIENCE).events == []


class TestBounds:
    def test_progress_and_logs_are_dropped_and_nothing_else(self) -> None:
        events = HostEvents()
        large = {"message": "x" * (5 * 1024 * 1024)}
        assert events.add(Progressed(1, large))
        assert not events.add(Progressed(1, large))
        assert not events.add(EventHappened("ServerLog", large))
        assert events.add(ToolsListed(1, [large, large]))
        events.fetch(2, 0)
        assert events.add(Progressed(1, large))
