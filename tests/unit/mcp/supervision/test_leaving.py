"""Generations whose place another one has taken: they finish their calls, and then all of them is ended."""

from __future__ import annotations

import pytest

from gaia.mcp.errors import CallCancelled, CallTimeout, ServerCrashed, StartFailed
from gaia.mcp.supervision.events import Restarted, ServerLog, ServerState
from tests.fake_transport import PATIENCE
from tests.supervised import Supervised
from tests.unit.mcp.supervision.test_replacement import DRAIN, TEXT, replaced
from tests.unit.mcp.supervision.test_server_lifecycle import Supervise
from tests.unit.mcp.supervision.test_spare import is_answered_by


@pytest.fixture
def server(supervise: Supervise) -> Supervised:
    return supervise().started()


class TestDraining:
    def test_what_the_old_one_says_is_heard_except_about_its_tools(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit()
        request = first.wait_for("tools/call")
        replaced(server)
        listings = len(server.listings)
        first.notify("notifications/message", {"level": "info", "data": "almost done"})
        assert server.wait_for(ServerLog).data == "almost done"
        first.notify("notifications/tools/list_changed", {})
        server.settle()
        assert len(server.listings) == listings
        assert len(first.requests("tools/list")) == 1
        first.answer(request, TEXT)
        assert call.result(PATIENCE) == TEXT

    def test_a_call_in_it_can_be_cancelled(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit()
        request = first.wait_for("tools/call")
        second = replaced(server)
        # It was looked at, and is going to be looked at again.
        server.clock.wait_for_waiter(server.clock.monotonic() + 0.05)
        assert call.cancel()
        assert first.wait_for("notifications/cancelled")["params"]["requestId"] == request["id"]
        assert second.requests("notifications/cancelled") == []
        server.pass_time(0.05)
        first.wait_until_closing()

    def test_a_call_in_it_has_its_deadline(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit(timeout=0.05)
        first.wait_for("tools/call")
        replaced(server)
        server.pass_time(0.05)
        assert isinstance(call.exception(PATIENCE), CallTimeout)
        first.wait_for("notifications/cancelled")

    def test_a_call_that_takes_too_long_fails_or_is_repeated(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        slow, safe = server.submit(timeout=100.0), server.submit("look", timeout=100.0, repeatable=True)
        first.wait_for("tools/call", 2)
        second = replaced(server)
        server.clock.advance(DRAIN)
        error = slow.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        assert "replaced" in error.message
        assert "20 s" in error.message
        first.wait_until_closing()
        second.answer(second.wait_for("tools/call"), TEXT)
        assert safe.result(PATIENCE) == TEXT

    def test_its_end_is_no_loss(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit()
        first.wait_for("tools/call")
        replaced(server)
        first.end(exit_code=1)
        error = call.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert "exited with code 1" in error.message
        assert is_answered_by(server, 2)
        assert server.states == [ServerState.STARTING, ServerState.READY]

    def test_a_call_that_it_has_not_read_goes_to_the_fresh_one_when_it_has_ended(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        first.stop_reading()
        unread = server.submit(timeout=100.0)
        second = replaced(server)
        first.hold_closing()
        server.clock.advance(DRAIN)
        first.wait_until_closing()
        server.settle()
        assert second.requests("tools/call") == []
        first.let_close()
        second.answer(second.wait_for("tools/call"), TEXT)
        assert unread.result(PATIENCE) == TEXT
        assert first.requests("tools/call") == []

    def test_or_as_soon_as_nothing_more_is_written_to_the_old_one(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        first.stop_reading()
        unread = server.submit(timeout=100.0)
        second = replaced(server)
        first.writes_until_closed = False
        first.hold_closing()
        server.clock.advance(DRAIN)
        second.answer(second.wait_for("tools/call"), TEXT)
        assert unread.result(PATIENCE) == TEXT
        first.let_close()
        assert first.requests("tools/call") == []

    def test_the_fresh_one_may_be_lost_meanwhile(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit()
        request = first.wait_for("tools/call")
        replaced(server).end(exit_code=1)
        server.wait_for(Restarted, lambda event: event.generation == 3)
        first.answer(request, TEXT)
        assert call.result(PATIENCE) == TEXT
        assert is_answered_by(server, 3)

    def test_a_call_that_comes_back_when_the_server_has_failed_is_refused(self, supervise: Supervise) -> None:
        server = supervise().started()
        first = server.transport.channel(1)
        first.stop_reading()
        unread = server.submit(timeout=100.0)
        second = replaced(server)
        server.transport.start_errors.extend(StartFailed("no memory") for _ in range(10))
        second.end(exit_code=1)
        server.wait_for_state(ServerState.RESTARTING)
        server.supervisor.stop()
        assert isinstance(unread.exception(PATIENCE), CallCancelled)

    def test_stopping_ends_all_of_it(self, server: Supervised) -> None:
        first = server.transport.channel(1)
        call = server.submit()
        first.wait_for("tools/call")
        second = replaced(server)
        server.supervisor.stop()
        assert isinstance(call.exception(PATIENCE), CallCancelled)
        assert first.closed_with_grace is not None
        assert second.closed_with_grace is not None
        assert server.supervisor.in_flight == 0
