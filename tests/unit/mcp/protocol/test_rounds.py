"""Requests of several round trips: what a server may require, and the params of the next round."""

from typing import Any, ClassVar

import pytest

from gaia.mcp.errors import InvalidResponse, Overloaded
from gaia.mcp.protocol.rounds import (
    InputRequest,
    InputRequired,
    check_result_type,
    delivery_of,
    needs_input,
)

Json = dict[str, Any]
ROOTS: Json = {"method": "roots/list", "params": {}}
CLIENT_METHODS = ["tools/call", "prompts/get", "resources/read"]


def required(**members: Any) -> InputRequired:
    return InputRequired.from_result({"resultType": "input_required", **members})


class TestReading:
    def test_requests_keep_the_keys_of_the_server(self) -> None:
        form = {"method": "elicitation/create", "params": {"message": "Name?"}}
        assert required(inputRequests={"a b": ROOTS, "": form}).requests == {
            "a b": InputRequest("roots/list", {}),
            "": InputRequest("elicitation/create", {"message": "Name?"}),
        }

    @pytest.mark.parametrize("request_", [{"method": "roots/list"}, {"method": "roots/list", "params": None}])
    def test_a_request_may_do_without_params_and_a_state_without_requests(self, request_: Json) -> None:
        assert required(inputRequests={"a": request_}).requests == {"a": InputRequest("roots/list", {})}
        assert required(requestState="s").requests is None

    @pytest.mark.parametrize("members", [{}, {"inputRequests": None}])
    def test_neither_requests_nor_a_state_is_invalid(self, members: Json) -> None:
        with pytest.raises(InvalidResponse, match="does not say which"):
            required(**members)

    @pytest.mark.parametrize("requests", [[ROOTS], "roots", 5, {str(number): ROOTS for number in range(17)}])
    def test_other_values_and_too_many_requests_are_invalid(self, requests: Any) -> None:
        with pytest.raises(InvalidResponse, match="at most 16 members"):
            required(inputRequests=requests)
        assert len(required(inputRequests={str(number): ROOTS for number in range(16)}).requests or {}) == 16

    @pytest.mark.parametrize(
        "request_", ["roots/list", None, {}, {"method": 5}, {"method": "roots/list", "params": [1]}]
    )
    def test_a_malformed_request_is_named_and_its_key_is_cut(self, request_: Any) -> None:
        with pytest.raises(InvalidResponse, match=r"inputRequests\.k{40}: expected a method and params"):
            required(inputRequests={"k" * 5000: request_})


class TestNextRound:
    ORIGINAL: ClassVar[Json] = {"name": "echo", "arguments": {}}

    def test_answers_and_state_go_along_with_the_original_params(self) -> None:
        params = required(inputRequests={"a": ROOTS}, requestState={"n": 1}).params(self.ORIGINAL, {"a": {"roots": []}})
        assert params == {**self.ORIGINAL, "inputResponses": {"a": {"roots": []}}, "requestState": {"n": 1}}
        assert self.ORIGINAL.keys() == {"name", "arguments"}

    @pytest.mark.parametrize(
        ("members", "params"),
        [
            ({"requestState": "s"}, {"requestState": "s"}),
            ({"inputRequests": {}}, {"inputResponses": {}}),
            ({"inputRequests": {}, "requestState": None}, {"inputResponses": {}, "requestState": None}),
        ],
        ids=["without requests", "without a state", "with a state that is null"],
    )
    def test_what_was_not_required_is_not_answered(self, members: Json, params: Json) -> None:
        assert required(**members).params(None, {}) == params


class TestResultType:
    @pytest.mark.parametrize("method", ["tools/list", *CLIENT_METHODS])
    @pytest.mark.parametrize("result", [{}, {"resultType": "complete"}])
    def test_a_complete_result_is_fine_everywhere(self, method: str, result: Json) -> None:
        assert check_result_type(method, result) is None
        assert not needs_input(result)

    @pytest.mark.parametrize("method", CLIENT_METHODS)
    def test_three_methods_may_require_input(self, method: str) -> None:
        result = {"resultType": "input_required"}
        assert check_result_type(method, result) is None
        assert needs_input(result)

    @pytest.mark.parametrize(
        ("method", "kind"),
        [
            ("tools/list", "input_required"),
            ("tools/call", "task"),
            ("tools/call", None),
            ("tools/call", ["complete"]),
            ("tools/call", "x" * 100_000),
        ],
        ids=lambda value: str(value)[:20],
    )
    def test_any_other_type_is_an_error_that_is_short(self, method: str, kind: Any) -> None:
        problem = check_result_type(method, {"resultType": kind})
        assert problem is not None
        assert method in problem.message
        assert len(problem.message) < 200


class TestDelivery:
    @pytest.mark.parametrize("member", ["requestState", "inputResponses"])
    def test_params_of_a_further_round_say_that_there_was_one_before(self, member: str) -> None:
        assert delivery_of({"name": "a"}, Overloaded("full")) == "not_sent"
        assert delivery_of(None, Overloaded("full")) == "not_sent"
        assert delivery_of({"name": "a", member: None}, Overloaded("full")) == "unknown"
