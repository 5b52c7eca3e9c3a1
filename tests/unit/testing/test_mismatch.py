from __future__ import annotations

import itertools
from typing import Any

import pytest

from gaia.testing import mismatch
from gaia.testing.cassette import RecordedExchange
from gaia.testing.mismatch import different_answer, equals, not_recorded


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def recorded(*calls: dict[str, Any]) -> list[RecordedExchange]:
    greeting = [
        RecordedExchange(request="initialize", result={}),
        RecordedExchange(request="tools/list", result={"tools": []}),
    ]
    return [*greeting, *(RecordedExchange(request="tools/call", params=params, result={}) for params in calls)]


class TestEquals:
    @pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", [1, ["a"]], {"a": {"b": [None]}}, "", {}], ids=repr)
    def test_a_value_equals_itself(self, value: Any) -> None:
        assert equals(value, value)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (1, 2),
            (1, True),
            (False, 0),
            ("a", "b"),
            ([1], [1, 2]),
            ({"a": 1}, {"b": 1}),
            ({"a": 1}, {"a": 1, "b": 2}),
            ({"a": [1]}, {"a": [2]}),
            ("a", ["a"]),
        ],
    )
    def test_other_values_differ(self, one: Any, other: Any) -> None:
        assert not equals(one, other)
        assert not equals(other, one)

    @pytest.mark.parametrize("asked", ["secret", "", "s\nt", "***"])
    def test_a_mask_stands_for_any_text(self, asked: str) -> None:
        assert equals("***", asked)
        assert equals({"header": "Bearer ***!"}, {"header": f"Bearer {asked}!"})

    def test_a_mask_stands_for_a_number(self) -> None:
        assert equals({"pin": "***"}, {"pin": 88123456})
        assert not equals("***", True)
        assert not equals("***", None)

    @pytest.mark.parametrize("asked", ["Bearer x", "bearer x!", "Bearer!", 7, None])
    def test_what_is_around_a_mask_counts(self, asked: Any) -> None:
        assert not equals("Bearer ***!", asked)

    def test_text_between_masks_is_found_in_order(self) -> None:
        assert equals("***-a-***-b-***", "1-a-2-b-3")
        assert not equals("***-a-***-b-***", "1-b-2-a-3")
        assert not equals("a***a", "a")

    def test_many_masks_take_no_time(self) -> None:
        assert not equals("***a" * 200 + "b", "a" * 100_000 + "c")

    def test_a_masked_key_stands_for_another_key(self) -> None:
        assert equals({"a": 1, "***": 2}, {"a": 1, "hidden": 2})
        assert not equals({"a": 1, "***": 2}, {"a": 1, "hidden": 3})


class TestNotRecorded:
    def test_the_closest_arguments_are_compared(self) -> None:
        exchanges = recorded(call("add", a=1, b=2), call("add", a=100, b=200), call("echo", a=1, b=3))
        text = not_recorded("cassette, server 'demo'", "tools/call", call("add", a=1, b=3), exchanges)
        assert text.startswith("cassette, server 'demo': tool 'add' was asked for something that was not recorded")
        assert text.endswith("\n@ b\n-2\n+3")

    def test_a_tool_that_was_never_called(self) -> None:
        exchanges = recorded(call("echo"), call("add", a=1), call("add", a=2))
        text = not_recorded("here", "tools/call", call("subtract", a=1), exchanges)
        assert "tool 'subtract'" in text
        assert '"a": 1' in text
        assert text.endswith("Recorded are tool 'add', tool 'echo'.")

    def test_another_method(self) -> None:
        text = not_recorded("here", "resources/read", {"uri": "demo://a"}, recorded())
        assert "resources/read was asked for something" in text
        assert "demo://a" in text
        assert text.endswith("Recorded are no calls.")

    def test_one_call_more_than_recorded(self) -> None:
        exchanges = recorded(call("add", a=1), call("add", a=1))
        text = not_recorded("here", "tools/call", call("add", a=1), exchanges)
        assert "tool 'add' was asked for this 2 times in the recording, and now once more" in text

    def test_not_all_of_many_calls_are_compared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compared = itertools.count(1)
        monkeypatch.setattr(mismatch, "_similarity", lambda *_: next(compared))
        text = not_recorded(
            "c.json", "tools/call", call("add", a=-1), recorded(*(call("add", a=n) for n in range(5000)))
        )
        assert "+-1" in text
        assert next(compared) == 201

    def test_what_was_masked_is_not_shown(self) -> None:
        exchanges = recorded(call("get", token="***", rest=["Bearer ***", 1], page=1))
        asked = call("get", token="hunter22", rest=["Bearer hunter22", 1], page=2)
        text = not_recorded("here", "tools/call", asked, exchanges)
        assert "-1\n+2" in text
        assert "hunter22" not in text
        once_more = call("get", token="hunter22", rest=["Bearer hunter22", 1], page=1)
        assert "hunter22" not in not_recorded("here", "tools/call", once_more, exchanges)


def test_a_different_answer_is_shown() -> None:
    text = different_answer(
        "here", "elicitation/create", {"result": {"action": "accept"}}, {"result": {"action": "decline"}}
    )
    assert "elicitation/create of the server was answered otherwise" in text
    assert '-  "action": "accept"\n+  "action": "decline"' in text
