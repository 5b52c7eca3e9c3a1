"""Requests and their options, which many threads share."""

from __future__ import annotations

from typing import Any

import pytest

from gaia.mcp.errors import CallCancelled, MCPError, NotConnected, Overloaded, UrlElicitationRequired
from gaia.mcp.requests.exchange import RequestExchange, Step
from gaia.mcp.requests.response_cache import ResponseCache
from gaia.mcp.rpc.call import Call
from gaia.testing import FakeClock


class Context:
    is_stateless = True
    cache = ResponseCache(FakeClock())

    def note_urls(self, error: UrlElicitationRequired) -> None:
        """No server reports that a person is done."""


STATELESS = Context()


def test_a_request_leaves_to_the_client_what_it_does_not_say_and_is_not_written_twice() -> None:
    wanted = RequestExchange("tools/call", {"name": "pay"}, tool="pay")
    options = wanted.options
    assert (options.timeout, options.on_progress, options.reset_timeout_on_progress) == (None, None, None)
    assert (options.max_timeout, wanted.max_timeout) == (None, None)
    assert not wanted.repeatable
    with pytest.raises(AttributeError, match="immutable"):
        options.timeout = None  # type: ignore[misc]


class TestRounds:
    def request(self) -> RequestExchange:
        return RequestExchange("tools/call", {"name": "a"})

    def answered(self, exchange: RequestExchange, result: dict[str, Any] | None, error: MCPError | None = None) -> Step:
        call = Call(1, exchange.method, exchange.params, 0.0, 30.0)
        call.finish(result, error)
        return exchange.answered(STATELESS, call)

    def required(self, exchange: RequestExchange, **members: Any) -> Step:
        return self.answered(exchange, {"resultType": "input_required", **members})

    def test_each_round_has_only_its_own_answers_and_state(self) -> None:
        exchange = self.request()
        assert self.required(exchange, requestState="one") is Step.ASK
        assert exchange.input_arrived({}) is Step.SEND
        assert exchange.params == {"name": "a", "requestState": "one"}
        self.required(exchange, inputRequests={"where": {"method": "roots/list"}})
        exchange.input_arrived({"where": {}})
        assert exchange.params == {"name": "a", "inputResponses": {"where": {}}}

    def test_the_tenth_answer_must_be_the_result(self) -> None:
        exchange = self.request()
        for _ in range(9):
            assert self.required(exchange, requestState="again") is Step.ASK
        assert self.required(exchange, requestState="again") is Step.DONE
        assert str(exchange.error) == "tools/call: the server still requires input after 10 rounds"
        assert exchange.error is not None
        assert exchange.error.delivery == "unknown"

    @pytest.mark.parametrize(("rounds", "delivery"), [(0, "not_sent"), (1, "unknown")])
    def test_an_error_says_what_became_of_the_whole_request(self, rounds: int, delivery: str) -> None:
        exchange, error = self.request(), Overloaded("full")
        for _ in range(rounds):
            self.required(exchange, requestState="s")
        assert self.answered(exchange, None, error) is Step.DONE
        assert exchange.error is error
        assert error.delivery == delivery

    def test_a_client_that_was_disconnected_meanwhile_is_not_misused(self) -> None:
        exchange = self.request()
        self.required(exchange, requestState="s")
        exchange.fail(NotConnected("Not connected to server 'a'"))
        assert isinstance(exchange.error, CallCancelled)
        assert exchange.error.delivery == "unknown"
