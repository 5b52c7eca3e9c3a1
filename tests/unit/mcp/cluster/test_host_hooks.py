from gaia.mcp.cluster.host_events import HostEvents
from gaia.mcp.cluster.host_hooks import HostHooks
from gaia.mcp.cluster.wire import KnownTools, ListingBegan, ToolsListed, ToolsRemembered
from gaia.testing import FakeClock

ADD = {"name": "add", "description": "one"}
OTHER = {"name": "add", "description": "another"}
SAFE = {**ADD, "annotations": {"readOnlyHint": True}}
SUBTRACT = {"name": "subtract"}


def hooks_for(events: HostEvents, known: KnownTools | None = None) -> HostHooks:
    hooks = HostHooks("it", 30.0, FakeClock(), known)
    hooks.join(events)
    return hooks


def test_a_driver_that_is_behind_does_not_know_what_has_changed() -> None:
    hooks = hooks_for(HostEvents())
    assert hooks.knows(0, "add")
    first, second = hooks.listing_begins(), hooks.listing_begins()
    hooks.tools_listed([ADD, SUBTRACT], first)
    assert not hooks.knows(0, "add")
    assert hooks.knows(first.number, "add")
    hooks.tools_listed([OTHER, SUBTRACT], second)
    assert not hooks.knows(first.number, "add")
    assert hooks.knows(first.number, "subtract")
    assert hooks.knows(second.number, "add")


def test_a_listing_that_comes_late_does_not_count() -> None:
    hooks = hooks_for(HostEvents())
    first, second = hooks.listing_begins(), hooks.listing_begins()
    hooks.tools_listed([OTHER], second)
    hooks.tools_listed([ADD], first)
    assert hooks.knows(second.number, "add")
    assert not hooks.knows(first.number, "add")


def test_a_server_that_could_not_list_its_tools_has_none() -> None:
    events = HostEvents()
    hooks = hooks_for(events)
    hooks.tools_listed([ADD], hooks.listing_begins())
    hooks.tools_listed(None, hooks.listing_begins())
    assert not hooks.knows(1, "add")
    assert events.fetch(2, 0).events == [ListingBegan(2), ToolsListed(2, None)]


def test_only_a_few_listings_are_kept() -> None:
    hooks = hooks_for(HostEvents())
    for _ in range(10):
        hooks.tools_listed([ADD], hooks.listing_begins())
    assert hooks.knows(7, "add")
    assert not hooks.knows(6, "add")


def test_a_tool_is_safe_to_repeat_by_what_the_server_says_now() -> None:
    hooks = hooks_for(HostEvents())
    assert not hooks.safe_to_repeat("add")
    hooks.tools_listed([SAFE, {**SUBTRACT, "annotations": "yes"}], hooks.listing_begins())
    assert hooks.safe_to_repeat("add")
    assert not hooks.safe_to_repeat("subtract")
    hooks.tools_listed([ADD], hooks.listing_begins())
    assert not hooks.safe_to_repeat("add")


def test_the_driver_is_told_when_a_listing_begins_and_ends() -> None:
    events = HostEvents()
    hooks = hooks_for(events)
    hooks.tools_listed([ADD], hooks.listing_begins())
    assert events.fetch(0, 0).events == [ListingBegan(1), ToolsListed(1, [ADD])]


def test_what_was_known_before_the_first_start() -> None:
    assert hooks_for(HostEvents()).last_known() is None
    assert hooks_for(HostEvents(), KnownTools(None, [ADD])).last_known() == (None, [ADD])


def test_one_that_comes_later_is_told_what_the_others_know() -> None:
    hooks = hooks_for(HostEvents())
    hooks.tools_remembered([OTHER])
    early = HostEvents()
    hooks.join(early)
    assert early.fetch(0, 0).events == [ToolsRemembered([OTHER])]
    hooks.tools_listed([ADD], hooks.listing_begins())
    late = HostEvents()
    hooks.join(late)
    assert late.fetch(0, 0).events == [ListingBegan(1), ToolsListed(1, [ADD])]


def test_one_that_is_gone_is_told_nothing() -> None:
    events = HostEvents()
    hooks = hooks_for(events)
    hooks.part(events)
    hooks.tools_listed([ADD], hooks.listing_begins())
    assert events.fetch(0, 0).events == []
