import pytest

from gaia.mcp.cluster.bound_calls import BoundCalls
from gaia.mcp.cluster.gate import Gate
from gaia.mcp.cluster.lease import HostClock
from gaia.mcp.cluster.wire import Reply, WireError
from gaia.mcp.errors import NotConnected, Overloaded, ServerCrashed, SessionLost, ToolDenied
from gaia.mcp.rpc.call import Call
from tests.unit.mcp.cluster.test_placed_calls import OK, Server


@pytest.fixture
def server() -> Server:
    return Server(max_flights=1)


@pytest.fixture
def bound(server: Server) -> BoundCalls:
    return BoundCalls(server.calls, server.calls.bind(), None)


def submit(bound: BoundCalls, *, repeatable: bool = True) -> Call:
    params = {"name": "echo"}
    call = Call(bound.next_id(), "tools/call", params, 0.0, 30.0, repeatable=repeatable, tool="echo")
    bound.submit(call)
    return call


def test_the_host_is_told_for_which_start_a_call_is(server: Server, bound: BoundCalls) -> None:
    call = submit(bound)
    asked, _ = server.link.calls[0]
    assert (asked.start, asked.repeatable) == (0, False)
    server.link.answer(0, OK)
    assert call.error is None


def test_a_host_that_is_lost(server: Server, bound: BoundCalls) -> None:
    call = submit(bound)
    server.link.lose(0)
    assert isinstance(call.error, SessionLost)
    assert call.error.delivery == "unknown"
    assert bound.is_lost
    server.open("two")
    late = submit(bound)
    assert isinstance(late.error, SessionLost)
    assert late.error.delivery == "not_sent"


def test_a_server_that_crashes(server: Server, bound: BoundCalls) -> None:
    call = submit(bound)
    server.link.answer(0, Reply(error=WireError.of(ServerCrashed("it fell", delivery="unknown"))))
    assert isinstance(call.error, SessionLost)
    assert "it fell" in call.error.message


def test_a_server_that_was_started_again(server: Server, bound: BoundCalls) -> None:
    server.calls.open(Gate(server.link, "one", HostClock(), 2))
    assert bound.is_lost
    assert isinstance(submit(bound).error, SessionLost)


def test_it_does_not_wait_for_others_and_is_bounded(server: Server, bound: BoundCalls) -> None:
    server.submit()
    submit(bound)
    assert len(server.link.calls) == 2
    assert isinstance(submit(bound).error, Overloaded)


def test_a_tool_that_is_another_one_there(server: Server) -> None:
    gate = server.calls.bind()
    gate.differing = {"echo"}
    assert isinstance(submit(BoundCalls(server.calls, gate, None)).error, ToolDenied)


def test_handles_are_spread(server: Server, bound: BoundCalls) -> None:
    server.open("two")
    other = server.calls.bind()
    assert other.incarnation == "two"
    bound.close()
    bound.close()
    assert server.calls.bind().incarnation == "one"
    assert isinstance(submit(bound).error, NotConnected)
