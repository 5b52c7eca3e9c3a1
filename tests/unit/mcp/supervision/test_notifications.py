"""What becomes of what a server says unasked. Time is a number, and the server a list."""

import threading
from collections.abc import Callable

import pytest

from gaia.mcp.supervision.events import Event, ServerLog
from tests.supervised import Supervised
from tests.waiting import PATIENCE

Supervise = Callable[..., Supervised]

TEXT = {"content": [{"type": "text", "text": "hello"}]}


class TestNotifications:
    def test_changed_tools_are_listed_again(self, server: Supervised) -> None:
        server.transport.tools = [{"name": "new"}]
        server.transport.channel().notify("notifications/tools/list_changed", {})
        assert server.wait_for_listing(2) == [{"name": "new"}]

    def test_many_changes_during_a_listing_lead_to_one_more(self, server: Supervised) -> None:
        channel = server.transport.channel()
        channel.take_over("tools/list")
        channel.notify("notifications/tools/list_changed", {})
        request = channel.wait_for("tools/list", 2)
        for _ in range(50):
            channel.notify("notifications/tools/list_changed", {})
            server.settle()
        channel.answer(request, {"tools": [{"name": "old"}]})
        channel.answer(channel.wait_for("tools/list", 3), {"tools": [{"name": "new"}]})
        assert server.wait_for_listing(3) == [{"name": "new"}]
        assert len(channel.requests("tools/list")) == 3

    def test_a_change_during_a_listing_that_fails_is_not_forgotten(self, server: Supervised) -> None:
        channel = server.transport.channel()
        channel.take_over("tools/list")
        channel.notify("notifications/tools/list_changed", {})
        first = channel.wait_for("tools/list", 2)
        channel.notify("notifications/tools/list_changed", {})
        server.settle()
        channel.answer_error(first, -32603, "busy")
        channel.answer(channel.wait_for("tools/list", 3), {"tools": [{"name": "new"}]})
        assert server.wait_for_listing(2) == [{"name": "new"}]

    @pytest.mark.parametrize("moment", ["before the listing", "during the listing"])
    def test_a_change_before_the_server_is_ready_is_not_forgotten(self, supervise: Supervise, moment: str) -> None:
        server = supervise()
        server.transport.answers.pop("tools/list")
        initialize = server.transport.answers.pop("initialize")
        ready = server.in_background(server.supervisor.start)
        channel = server.transport.channel()
        request = channel.wait_for("initialize")
        if moment == "before the listing":
            channel.notify("notifications/tools/list_changed", {})
        channel.answer(request, initialize(request))
        listing = channel.wait_for("tools/list")
        if moment == "during the listing":
            channel.notify("notifications/tools/list_changed", {})
        server.settle()
        channel.answer(listing, {"tools": [{"name": "old"}]})
        assert ready.result(PATIENCE)
        channel.answer(channel.wait_for("tools/list", 2), {"tools": [{"name": "new"}]})
        assert server.wait_for_listing(2) == [{"name": "new"}]

    def test_log_messages_become_events(self, server: Supervised) -> None:
        channel = server.transport.channel()
        channel.notify("notifications/message", {"level": "warning", "logger": "db", "data": {"free": 3}})
        assert server.wait_for(ServerLog) == ServerLog("fake", "warning", "db", {"free": 3})
        channel.notify("notifications/message", {"data": "plain"})
        assert server.wait_for(ServerLog) == ServerLog("fake", "info", None, "plain")

    def test_those_that_wait_are_bounded_in_bytes(self, server: Supervised) -> None:
        channel = server.transport.channel()
        entered, go_on = threading.Event(), threading.Event()

        def stall(event: Event) -> None:
            if isinstance(event, ServerLog) and not entered.is_set():
                entered.set()
                assert go_on.wait(PATIENCE)

        server.reactions.append(stall)
        for _ in range(2):
            # Twice: what was read makes room.
            entered.clear()
            go_on.clear()
            server.events.clear()
            channel.notify("notifications/message", {"data": "first"})
            assert entered.wait(PATIENCE)
            for _ in range(500):
                channel.notify("notifications/message", {"data": "x" * 60_000})
            channel.notify("notifications/message", {"data": "last"})
            go_on.set()
            server.settle()
            assert 60 <= len([event for event in server.events if isinstance(event, ServerLog)]) <= 75

    def test_a_flood_of_them_is_bounded_and_hides_no_change_of_tools(self, server: Supervised) -> None:
        channel = server.transport.channel()
        entered, go_on = threading.Event(), threading.Event()

        def stall(event: Event) -> None:
            if isinstance(event, ServerLog) and not entered.is_set():
                entered.set()
                assert go_on.wait(PATIENCE)

        server.reactions.append(stall)
        channel.notify("notifications/message", {"data": 0})
        assert entered.wait(PATIENCE)
        for number in range(50_000):
            channel.notify("notifications/message", {"data": number})
            if number % 10 == 0:
                channel.notify("notifications/tools/list_changed", {})
        assert server.supervisor._loop.pending < 20_000
        go_on.set()
        server.wait_for_listing(2)
