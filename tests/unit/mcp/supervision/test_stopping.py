"""A server that finishes its calls before it is stopped for good."""

from __future__ import annotations

import queue

import pytest

from gaia.mcp.errors import MCPError
from gaia.mcp.supervision.events import ServerState
from tests.fake_transport import PATIENCE
from tests.supervised import Supervised
from tests.unit.mcp.supervision.test_server_lifecycle import Supervise

TEXT = {"content": "text"}


@pytest.fixture
def server(supervise: Supervise) -> Supervised:
    return supervise().started()


class TestFinishing:
    def test_a_server_that_is_stopped_may_finish_its_calls(self, server: Supervised) -> None:
        channel = server.transport.channel(1)
        call = server.submit()
        request = channel.wait_for("tools/call")
        stopped = server.in_background(server.supervisor.stop, 60.0)
        server.wait_for_state(ServerState.CLOSED)
        with pytest.raises(MCPError, match="it was disconnected") as refused:
            server.submit().result(PATIENCE)
        assert refused.value.delivery == "not_sent"
        assert channel.closed_with_grace is None
        channel.answer(request, TEXT)
        assert call.result(PATIENCE) == TEXT
        server.pass_time(0.05)
        stopped.result(PATIENCE)

    def test_it_has_so_much_time(self, server: Supervised) -> None:
        channel = server.transport.channel(1)
        call = server.submit(timeout=1000.0)
        channel.wait_for("tools/call")
        stopped = server.in_background(server.supervisor.stop, 20.0)
        server.wait_for_state(ServerState.CLOSED)
        server.clock.wait_for_waiter(server.clock.monotonic() + 0.05)
        server.clock.advance(20.0)
        with pytest.raises(MCPError, match="within 20 s"):
            call.result(PATIENCE)
        stopped.result(PATIENCE)

    def test_stopping_it_again_without_time_ends_it_at_once(self, server: Supervised) -> None:
        channel = server.transport.channel(1)
        call = server.submit(timeout=1000.0)
        channel.wait_for("tools/call")
        stopped = server.in_background(server.supervisor.stop, 3600.0)
        server.wait_for_state(ServerState.CLOSED)
        server.supervisor.request_stop(3600.0)
        server.supervisor.stop()
        with pytest.raises(MCPError, match="is closed"):
            call.result(PATIENCE)
        stopped.result(PATIENCE)

    def test_an_exception_in_the_middle_does_not_start_it_again(self, server: Supervised) -> None:
        outcomes: queue.SimpleQueue[object] = queue.SimpleQueue()
        channel = server.transport.channel(1)
        call = server.submit(timeout=1000.0)
        channel.wait_for("tools/call")
        stopped = server.in_background(server.supervisor.stop, 3600.0)
        server.wait_for_state(ServerState.CLOSED)

        def broken(_: object) -> None:
            outcomes.put(None)
            raise RuntimeError("broken")

        # It is refused, because the server is closed, and the one who asked cannot take that.
        server.replace(1.0, broken)
        outcomes.get(timeout=PATIENCE)
        with pytest.raises(MCPError):
            call.result(PATIENCE)
        stopped.result(PATIENCE)
        assert server.transport.starts == 1
