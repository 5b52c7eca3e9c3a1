from gaia.mcp.client.cluster.host_events import HostEvents
from gaia.mcp.client.cluster.host_hooks import HostHooks
from gaia.mcp.client.cluster.lease import Lease
from gaia.mcp.client.cluster.wire import KnownTools, ToolsListed
from gaia.mcp.client.rpc.clock import Clock
from gaia.testing import FakeClock

ADD = {"name": "add", "description": "one"}
OTHER = {"name": "add", "description": "another"}


def hooks_for(events: HostEvents, known: KnownTools | None = None, clock: Clock | None = None) -> HostHooks:
    return HostHooks("it", 30.0, Lease(30.0, clock or FakeClock()), events, known)


def test_a_call_that_waited_goes_back_if_its_tool_has_changed() -> None:
    hooks = hooks_for(HostEvents())
    first = hooks.listing_begins()
    hooks.tools_listed([ADD], first)
    hooks.checked(first.number)
    second = hooks.listing_begins()
    hooks.tools_listed([OTHER], second)
    assert hooks.refusal_of("add") is not None
    hooks.checked(second.number)
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
