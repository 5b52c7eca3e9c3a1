from __future__ import annotations

from typing import Any

import pytest

from gaia.mcp.rpc.channel import Ending
from gaia.testing.cassette import Failure, RecordedEnding, RecordedExchange, Start, Step, stable_start

GREETING = RecordedExchange(request="initialize", result={"capabilities": {"tools": {}}})
LISTING = RecordedExchange(request="tools/list", result={"tools": []})


def call(tool: str, arguments: dict[str, Any] | None = None, **members: Any) -> RecordedExchange:
    return RecordedExchange(request="tools/call", params={"name": tool, "arguments": arguments or {}}, **members)


def mask(text: str) -> str:
    return text.replace("secret", "***")


def stable(*exchanges: RecordedExchange, greeting: tuple[Step, ...] = (), ending: Ending | None = None) -> Start:
    start = stable_start([GREETING, LISTING, *exchanges], greeting, ending, mask)
    assert start is not None
    return start


def calls(*exchanges: RecordedExchange) -> list[RecordedExchange]:
    return stable(*exchanges).exchanges[2:]


def test_requests_are_sorted_by_method_tool_and_arguments() -> None:
    made = [
        call("b", result={}),
        RecordedExchange(request="prompts/get", result={}),
        call("a", {"x": 2}),
        call("a", {"x": 1}),
    ]
    assert [(one.request, one.params.get("name"), one.params.get("arguments")) for one in calls(*made)] == [
        ("prompts/get", None, None),
        ("tools/call", "a", {"x": 1}),
        ("tools/call", "a", {"x": 2}),
        ("tools/call", "b", {}),
    ]


def test_equal_requests_keep_their_order() -> None:
    assert [one.result for one in calls(*(call("a", result={"n": n}) for n in (2, 1, 3)))] == [
        {"n": 2},
        {"n": 1},
        {"n": 3},
    ]


def test_arguments_are_in_order() -> None:
    (one,) = calls(call("a", {"b": {"d": 1, "c": [{"f": 1, "e": 2}]}, "a": 1}))
    assert str(one.params["arguments"]) == "{'a': 1, 'b': {'c': [{'e': 2, 'f': 1}], 'd': 1}}"


def test_a_round_follows_the_one_before() -> None:
    first, second = calls(
        RecordedExchange(request="tools/call", params={"name": "a", "arguments": {}, "inputResponses": {}}),
        call("a", result={"requestState": "v1.17"}),
    )
    assert "inputResponses" not in first.params
    assert "inputResponses" in second.params
    assert first.result == {"requestState": "***"}


def test_a_listing_that_says_the_same_is_left_out() -> None:
    other = RecordedExchange(request="tools/list", result={"tools": [{"name": "a"}]})
    assert stable(LISTING, LISTING, other, other, LISTING).exchanges == [GREETING, LISTING, other, LISTING]


def test_a_listing_without_an_answer_is_left_out_unless_the_server_crashed() -> None:
    unanswered = RecordedExchange(request="tools/list")
    assert stable(unanswered).exchanges == [GREETING, LISTING]
    crashed = RecordedExchange(request="tools/list", crashed=True)
    assert stable(crashed, ending=Ending(1)).exchanges == [GREETING, LISTING, crashed]


def test_a_probe_that_failed_is_left_out() -> None:
    assert stable(RecordedExchange(request="server/discover", error={"code": -32601})).exchanges == [GREETING, LISTING]


def test_secrets_are_masked_everywhere() -> None:
    step = Step(request="elicitation/create", params={"message": "secret"}, answer={"result": {"content": "secret"}})
    start = stable(
        call("a", {"token": "secret", "secret": 1}, result={"text": "secret"}, meanwhile=[step], afterwards=[step]),
        call("b", error={"message": "secret"}),
        call("c", failed=Failure(type="HttpError", message="secret", details={"data": "secret"})),
        greeting=(step,),
        ending=Ending(cause="closed the session secret", stderr_tail="secret"),
    )
    assert "secret" not in repr(start)
    assert repr(start).count("***") == 13


@pytest.mark.parametrize(
    ("exchanges", "ending"),
    [
        ([], None),
        ([], Ending(1)),
        ([RecordedExchange(request="server/discover", crashed=True)], Ending(1)),
        ([RecordedExchange(request="initialize")], None),
        ([GREETING], None),
        ([GREETING, RecordedExchange(request="tools/list")], None),
    ],
)
def test_a_start_that_another_recording_may_not_have(exchanges: list[RecordedExchange], ending: Ending | None) -> None:
    assert stable_start(exchanges, [], ending, mask) is None


@pytest.mark.parametrize(
    ("exchanges", "ending"),
    [
        ([RecordedExchange(request="initialize", crashed=True)], Ending(1)),
        ([RecordedExchange(request="initialize", result={"capabilities": {}})], None),
        ([GREETING, LISTING], None),
    ],
)
def test_a_start_that_each_recording_has(exchanges: list[RecordedExchange], ending: Ending | None) -> None:
    assert stable_start(exchanges, [], ending, mask) is not None


def test_stderr_is_left_out() -> None:
    assert stable(ending=Ending(3, None, "at 12:30")).end == RecordedEnding(exit_code=3)
