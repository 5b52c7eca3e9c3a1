from gaia.mcp.client.cluster.host_events import HostEvents
from gaia.mcp.client.cluster.host_hooks import HostHooks
from gaia.mcp.client.cluster.lease import Lease
from gaia.mcp.client.cluster.wire import KnownTools, ToolsListed
from gaia.mcp.client.rpc.clock import Clock
from gaia.testing import FakeClock

ADD = {"name": "add", "description": "one"}
OTHER = {"name": "add", "description": "another"}


def hooks_for(events: HostEvents, known: KnownTools | None = None, clock: Clock | None = None) -> HostHooks:
    clock = clock or FakeClock()
    hooks = HostHooks("it", 30.0, clock, known)
    hooks.join(events, Lease(30.0, clock))
    return hooks


def test_a_call_that_waited_goes_back_if_its_tool_has_changed() -> None:
    events = HostEvents()
    hooks = hooks_for(events)
    first = hooks.listing_begins()
    hooks.tools_listed([ADD], first)
    hooks.checked(events, first.number)
    second = hooks.listing_begins()
    hooks.tools_listed([OTHER], second)
    assert hooks.refusal_of("add") is not None
    hooks.checked(events, second.number)
    assert hooks.refusal_of("add") is None


def test_a_call_that_waited_goes_back_if_the_lease_is_over() -> None:
    clock = FakeClock()
    hooks = hooks_for(HostEvents(), clock=clock)
    assert hooks.refusal_of("add") is None
    clock.advance(30.0)
    assert hooks.refusal_of("add") is not None


def test_the_driver_is_told_when_a_listing_begins_and_ends() -> None:
    events = HostEvents()
    hooks = hooks_for(events)
    hooks.tools_listed([ADD], hooks.listing_begins())
    assert events.fetch(0, 0).events == [ToolsListed(1), ToolsListed(1, [ADD])]


def test_what_was_known_before_the_first_start() -> None:
    assert hooks_for(HostEvents()).last_known() is None
    assert hooks_for(HostEvents(), KnownTools(None, [ADD])).last_known() == (None, [ADD])


def test_one_that_comes_later_is_told_what_the_others_know() -> None:
    hooks = hooks_for(HostEvents())
    hooks.tools_listed([ADD], hooks.listing_begins())
    late = HostEvents()
    hooks.join(late, Lease(30.0, FakeClock()))
    assert late.fetch(0, 0).events == [ToolsListed(1), ToolsListed(1, [ADD])]


def test_a_call_that_waited_goes_back_until_all_have_taken_over_its_tool() -> None:
    one, other = HostEvents(), HostEvents()
    hooks = hooks_for(one)
    hooks.join(other, Lease(30.0, FakeClock()))
    hooks.tools_listed([ADD], listing := hooks.listing_begins())
    hooks.checked(one, listing.number)
    assert hooks.refusal_of("add") is not None
    hooks.part(other)
    assert hooks.refusal_of("add") is None
