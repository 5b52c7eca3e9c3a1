"""A handle stays with one connection: its calls never move, and its process is not stopped while it is open."""

from __future__ import annotations

import gc
import queue

import pytest

from gaia.mcp.errors import MCPError, NotConnected, ServerUnavailable, SessionLost
from gaia.mcp.requests.exchange import RequestExchange
from gaia.mcp.rpc.call import Call
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.pin import Pin
from gaia.mcp.transports.base import PlacementStatus
from gaia.runtime.clock import SystemClock
from tests.fake_transport import FakeChannel
from tests.supervised import SessionOf, Supervised, made, restart
from tests.unit.mcp.supervision.test_server_lifecycle import Supervise
from tests.waiting import PATIENCE, wait_until

ECHO = RequestExchange("tools/call", {"name": "echo"}, tool="echo", repeatable=True)


@pytest.fixture
def server(supervise: Supervise) -> Supervised:
    return supervise().started()


def submitted(pin: Pin, *, repeatable: bool = True) -> Call:
    call = Call(pin.next_id(), "tools/call", {"name": "echo"}, 0.0, 30.0, repeatable=repeatable, route=pin)
    assert pin.submit(call)
    return call


def replaced(server: Supervised) -> FakeChannel:
    outcomes: queue.SimpleQueue[MCPError | None] = queue.SimpleQueue()
    server.replace(20.0, outcomes.put)
    assert outcomes.get(timeout=PATIENCE) is None
    return server.transport.channel(2)


def test_its_calls_go_to_its_process_also_after_that_was_replaced(server: Supervised) -> None:
    pin, first = server.supervisor.pin(), server.transport.channel(1)
    second = replaced(server)
    call = submitted(pin)
    first.answer(first.wait_for("tools/call"), {"content": "text"})
    assert call.result == {"content": "text"}
    assert second.requests("tools/call") == []


def test_a_replaced_process_is_drained_when_its_handles_are_closed(server: Supervised) -> None:
    pin, other, first = server.supervisor.pin(), server.supervisor.pin(), server.transport.channel(1)
    replaced(server)
    other.close()
    server.pass_time(0.05)
    server.settle()
    assert first.closed_with_grace is None
    pin.close()
    server.clock.advance(0.05)
    first.wait_until_closing()
    assert pin.is_lost


def test_a_replaced_process_is_ended_when_the_time_to_drain_is_over(server: Supervised) -> None:
    pin, first = server.supervisor.pin(), server.transport.channel(1)
    call = submitted(pin)
    replaced(server)
    server.clock.advance(20.0)
    first.wait_until_closing()
    assert isinstance(call.error, SessionLost)
    assert call.error.delivery == "unknown"


def test_a_handle_that_is_dropped_counts_no_more(server: Supervised) -> None:
    pin = server.supervisor.pin()
    replaced(server)
    del pin
    gc.collect()
    server.clock.advance(0.05)
    server.transport.channel(1).wait_until_closing()


def test_a_call_of_a_lost_process_is_never_repeated(server: Supervised) -> None:
    pin = server.supervisor.pin()
    call = submitted(pin)
    server.transport.channel(1).wait_for("tools/call")
    second = restart(server)
    assert isinstance(call.error, SessionLost)
    assert (call.error.delivery, call.error.error_type) == ("unknown", "session_lost")
    assert "exited with code 1" in call.error.message
    assert pin.is_lost
    with pytest.raises(SessionLost, match="pinned") as error:
        made(SessionOf(pin, SystemClock(), 30.0), ECHO)  # type: ignore[arg-type,type-var]
    assert error.value.delivery == "not_sent"
    assert second.requests("tools/call") == []


def test_it_is_lost_when_the_server_of_a_gateway_has_crashed(server: Supervised) -> None:
    pin, first = server.supervisor.pin(), server.transport.channel(1)
    pin.ready.reads_failures = True
    call = submitted(pin)
    failure = {"isError": True, "_meta": {"gaia.mcp/failure": {"errorType": "server_crashed", "delivery": "unknown"}}}
    first.answer(first.wait_for("tools/call"), {"content": [{"type": "text", "text": "lost"}], **failure})
    assert (call.error is not None and call.error.error_type) == "server_crashed"
    assert pin.is_lost
    late = submitted(pin)
    assert isinstance(late.error, SessionLost)
    assert late.error.delivery == "not_sent"


def test_it_is_lost_when_its_host_has_restarted_the_server(server: Supervised) -> None:
    places = [PlacementStatus(node="far", id="1", host_pid=1, generation=number) for number in (1, 1, 2)]
    pin = Pin(server.supervisor.call_queue, lambda: places[0])
    assert not pin.is_lost
    del places[:2]
    assert pin.is_lost


def test_a_call_that_was_not_written_was_not_sent(server: Supervised) -> None:
    pin = server.supervisor.pin()
    server.transport.channel(1).stop_reading()
    call = submitted(pin)
    restart(server)
    assert isinstance(call.error, SessionLost)
    assert call.error.delivery == "not_sent"


def test_a_closed_one_takes_no_calls(server: Supervised) -> None:
    pin = server.supervisor.pin()
    early = submitted(pin)
    pin.close()
    late = submitted(pin)
    assert isinstance(late.error, NotConnected)
    first = server.transport.channel(1)
    first.answer(first.wait_for("tools/call"), {})
    assert early.error is None


def test_its_calls_expire(server: Supervised) -> None:
    pin = server.supervisor.pin()
    call = submitted(pin)
    assert call.expire()
    assert server.transport.channel(1).wait_for("notifications/cancelled")["params"]["requestId"] == call.id
    assert server.transport.channel(1).wait_for("ping"), "a process that does not answer may hang"


def test_a_process_with_a_handle_is_not_idle(supervise: Supervise) -> None:
    server = supervise(idle_stop=100.0).started()
    pin = server.supervisor.pin()
    server.pass_time(100.0)
    server.settle()
    assert server.supervisor.state is ServerState.READY
    pin.close()
    for _ in range(10):
        server.clock.advance(25.0)
        server.settle()
    assert wait_until(lambda: server.supervisor.state is ServerState.EXITED)
    with pytest.raises(ServerUnavailable, match="it is exited: it was idle"):
        server.supervisor.pin()
    assert wait_until(lambda: server.transport.starts == 2), "asking for a handle is a use of the server"


def test_it_needs_a_connection(supervise: Supervise) -> None:
    server = supervise()
    with pytest.raises(NotConnected, match="call connect"):
        server.supervisor.pin()
