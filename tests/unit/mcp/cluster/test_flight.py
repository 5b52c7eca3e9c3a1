from typing import Any

import pytest

from gaia.mcp.cluster.flight import Flight
from gaia.mcp.cluster.gate import Gate
from gaia.mcp.cluster.lease import HostClock
from gaia.mcp.errors import InvalidResponse
from gaia.mcp.rpc.call import Call

LINK: Any = object()


@pytest.mark.parametrize("is_bound", [True, False])
def test_the_host_is_asked_for_one_start_only_if_the_call_is_bound(is_bound: bool) -> None:
    gate = Gate(LINK, "one", HostClock(), start=3, listing=2)
    call = Call(7, "tools/call", {"name": "add"}, 0.0, 30.0, repeatable=True, tool="add")
    asked = Flight(call, gate, is_bound=is_bound).asked()
    assert (asked.incarnation, asked.number, asked.tool, asked.listing) == ("one", 7, "add", 2)
    assert asked.start == (3 if is_bound else None)
    assert asked.repeatable is not is_bound


def test_its_number_stays_when_the_call_is_repeated() -> None:
    call = Call(7, "tools/call", {"name": "add"}, 0.0, 30.0, repeatable=True, tool="add")
    flight = Flight(call, Gate(LINK, "one", HostClock()))
    call.prepare_repeat(8)
    assert (flight.number, call.id) == (7, 8)


def test_a_result_that_cannot_be_decoded_ends_the_call() -> None:
    call = Call(7, "tools/call", {"name": "add"}, 0.0, 30.0)
    Flight(call, Gate(LINK, "one", HostClock())).succeed(b'{"content":')
    assert isinstance(call.error, InvalidResponse)
