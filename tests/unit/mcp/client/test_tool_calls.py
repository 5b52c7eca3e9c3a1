"""`ToolCalls`, the part of a client that calls tools: which requests it makes, and what it makes of failures."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.client.client_options import ClientOptions, ClientSetup, SharedServices
from gaia.mcp.client.tool_calls import ToolCalls
from gaia.mcp.errors import CallTimeout, JsonRpcError, NotConnected
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.requests.exchange import CallOptions, RequestExchange
from gaia.mcp.requests.response_cache import ResponseCache
from gaia.mcp.supervision.events import ToolsChanged
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.runtime.clock import SystemClock

LOOK: dict[str, Any] = {"name": "look", "annotations": {"readOnlyHint": True}}
ADD: dict[str, Any] = {"name": "add", "inputSchema": {"required": ["a"]}, "outputSchema": {"type": "object"}}

Make = Callable[..., ToolCalls]


@pytest.fixture
def requests() -> Mock:
    return Mock(
        **{"request.return_value": {"content": []}, "session.is_connected.return_value": True, "session.timeout": 30.0}
    )


@pytest.fixture
def events() -> list[Any]:
    return []


@pytest.fixture
def make(requests: Mock, events: list[Any]) -> Iterator[Make]:
    made: list[ToolCalls] = []

    def make(shared_filter: ToolFilter | None = None, **settings: Any) -> ToolCalls:
        services = SharedServices(
            callbacks=Mock(), server_request_threads=Mock(), steps=Mock(), tool_filter=shared_filter or ToolFilter()
        )
        cache = ResponseCache(SystemClock())
        setup = ClientSetup(
            name="s",
            transport=Mock(),
            options=ClientOptions(**settings),
            services=services,
            hooks=Mock(happened=events.append),
            server_requests=Mock(),
            observer=Observer("s"),
            callbacks=Mock(),
        )
        calls = ToolCalls(setup, requests, cache)
        calls.listed([LOOK, ADD], calls.listing_begins())
        made.append(calls)
        return calls

    yield make
    for calls in made:
        calls.output_checks.end()


def requested(requests: Mock) -> RequestExchange:
    (request,) = requests.request.call_args.args
    assert isinstance(request, RequestExchange)
    return request


class TestRequests:
    def test_one_says_which_tool_it_calls_and_how(self, make: Make, requests: Mock) -> None:
        options = CallOptions(timeout=5.0)
        assert make().call("look", {"at": 1}, options) == {"content": []}
        request = requested(requests)
        assert (request.method, request.params) == ("tools/call", {"name": "look", "arguments": {"at": 1}})
        assert (request.tool, request.options, request.repeatable) == ("look", options, True)
        assert (request.max_timeout, request.check, request.observation) == (None, None, None)

    def test_results_are_checked_where_the_tool_has_an_output_schema(self, make: Make, requests: Mock) -> None:
        make().call("add", {}, CallOptions())
        assert requested(requests).check is not None
        assert not requested(requests).repeatable

    @pytest.mark.parametrize(
        ("settings", "options", "seconds"),
        [
            ({}, CallOptions(), None),
            ({}, CallOptions(max_timeout=9.0), None),
            ({}, CallOptions(reset_timeout_on_progress=True), 3600.0),
            ({}, CallOptions(reset_timeout_on_progress=True, max_timeout=9.0), 9.0),
            ({"reset_timeout_on_progress": True, "max_timeout": 7.0}, CallOptions(), 7.0),
            ({"reset_timeout_on_progress": True}, CallOptions(reset_timeout_on_progress=False), None),
        ],
    )
    def test_progress_extends_a_call_as_its_options_or_the_clients_say(
        self, make: Make, requests: Mock, settings: dict[str, Any], options: CallOptions, seconds: float | None
    ) -> None:
        make(**settings).call("look", None, options)
        assert requested(requests).max_timeout == seconds

    @pytest.mark.parametrize(
        "filters", [{"tool_filter": ToolFilter(deny=["add"])}, {"shared_filter": ToolFilter(["look"])}]
    )
    def test_a_tool_that_a_filter_denies_is_not_requested(
        self, make: Make, requests: Mock, filters: dict[str, ToolFilter]
    ) -> None:
        calls = make(**filters)
        assert [tool.name for tool in calls.offered(refresh=False)] == ["look"]
        assert calls.call("add", {}, CallOptions())["error_type"] == "denied"
        requests.request.assert_not_called()

    @pytest.mark.parametrize(("name", "arguments"), [(7, {}), ("look", [1])])
    def test_what_cannot_be_a_call_is_a_value_error(self, make: Make, name: Any, arguments: Any) -> None:
        with pytest.raises(ValueError, match="must be"):
            make().call(name, arguments, CallOptions())


class TestFailures:
    def test_an_error_becomes_a_dict(self, make: Make, requests: Mock) -> None:
        requests.request.side_effect = CallTimeout("too late", delivery="unknown")
        outcome = make().call("look", {}, CallOptions())
        assert outcome == {"error": "too late", "error_type": "timeout", "delivery": "unknown"}

    def test_refused_arguments_are_explained_with_the_schema(self, make: Make, requests: Mock) -> None:
        requests.request.side_effect = JsonRpcError(-32602, "a is missing")
        outcome = make().call("add", {"b": 1}, CallOptions())
        assert outcome["code"] == -32602
        assert '"required"' in outcome["error"]
        assert '"b": 1' in outcome["error"]

    def test_a_client_that_is_not_connected_raises(self, make: Make, requests: Mock) -> None:
        requests.request.side_effect = NotConnected("no")
        with pytest.raises(NotConnected):
            make().call("look", {}, CallOptions())


class TestListings:
    def test_changes_are_told_and_equal_listings_are_not(self, make: Make, events: list[Any]) -> None:
        calls = make()
        calls.listed([LOOK, ADD], calls.listing_begins())
        calls.listed([LOOK], calls.listing_begins())
        calls.forget()
        calls.forget()
        assert events == [
            ToolsChanged("s", added=("add", "look")),
            ToolsChanged("s", removed=("add",)),
            ToolsChanged("s", removed=("look",)),
        ]

    def test_one_that_was_requested_earlier_never_replaces_a_later_one(self, make: Make, events: list[Any]) -> None:
        calls = make()
        earlier, later = calls.listing_begins(), calls.listing_begins()
        calls.listed([ADD], later)
        calls.listed([LOOK, ADD], earlier)
        assert [tool.name for tool in calls.catalog.tools] == ["add"]
        assert events[1:] == [ToolsChanged("s", removed=("look",))]

    def test_one_that_was_requested_before_the_client_was_disconnected_is_not_used(self, make: Make) -> None:
        calls = make()
        listing = calls.listing_begins()
        calls.forget()
        calls.listed([LOOK], listing)
        assert not calls.catalog.listed
        assert calls.catalog.tools == ()

    def test_they_are_asked_for_when_there_is_none_or_a_new_one_is_wanted(self, make: Make, requests: Mock) -> None:
        calls = make()
        requests.run.return_value = [ADD]
        assert len(calls.offered(refresh=False)) == 2
        assert [tool.name for tool in calls.offered(refresh=True)] == ["add"]
        calls.forget()
        assert [tool.name for tool in calls.offered(refresh=False)] == ["add"]
        assert requests.list_all.call_count == 2
