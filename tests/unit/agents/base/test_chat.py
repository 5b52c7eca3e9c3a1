"""Streams as endpoints send them, each in its own way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gaia.agents.base.agent_result import Usage
from gaia.agents.base.chat import Completion, CompletionBuilder, RequestedCall


def chunk(**delta: Any) -> SimpleNamespace:
    return SimpleNamespace(choices=[SimpleNamespace(delta=SimpleNamespace(**delta), finish_reason=None)], usage=None)


def call(index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None) -> Any:  # noqa: A002
    return SimpleNamespace(index=index, id=id, function=SimpleNamespace(name=name, arguments=arguments))


def built(*chunks: Any) -> Completion:
    builder = CompletionBuilder()
    for one in chunks:
        builder.add(one)
    return builder.build()


def calls(*parts: Any) -> list[RequestedCall]:
    return list(built(*[chunk(tool_calls=[part]) for part in parts]).tool_calls)


def test_text_comes_in_pieces() -> None:
    builder = CompletionBuilder()
    assert [builder.add(chunk(content=text)) for text in ("He", None, "llo")] == ["He", "", "llo"]
    assert builder.build().text == "Hello"


def test_a_refusal_is_text() -> None:
    assert built(chunk(refusal="I won't.")).text == "I won't."


def test_calls_come_in_pieces_by_index() -> None:
    assert calls(
        call(0, "x", "a", ""),
        call(1, "y", "b", ""),
        call(0, arguments='{"n"'),
        call(1, arguments="{}"),
        call(0, arguments=": 1}"),
    ) == [RequestedCall("x", "a", '{"n": 1}'), RequestedCall("y", "b", "{}")]


def test_whole_calls_that_share_an_index_are_told_apart_by_id() -> None:
    assert calls(call(0, "x", "a", "{}"), call(0, "y", "a", "{}")) == [
        RequestedCall("x", "a", "{}"),
        RequestedCall("y", "a", "{}"),
    ]


def test_calls_without_index_are_told_apart_by_id() -> None:
    assert calls(call(None, "x", "a", '{"n"'), call(None, None, None, ": 1}"), call(None, "y", "b", "{}")) == [
        RequestedCall("x", "a", '{"n": 1}'),
        RequestedCall("y", "b", "{}"),
    ]


def test_calls_without_an_id_get_one() -> None:
    assert calls(call(0, None, "a", "{}"), call(1, None, "b", "{}")) == [
        RequestedCall("call_1", "a", "{}"),
        RequestedCall("call_2", "b", "{}"),
    ]


def test_arguments_that_are_an_object_already_stay_one() -> None:
    assert calls(call(0, "x", "a", {"n": 1})) == [RequestedCall("x", "a", {"n": 1})]


def test_the_last_count_of_tokens_is_the_sum() -> None:
    usages = [SimpleNamespace(choices=[], usage=SimpleNamespace(prompt_tokens=3, completion_tokens=n)) for n in (1, 2)]
    assert built(*usages).usage == Usage(3, 2)
    assert built(SimpleNamespace(usage=SimpleNamespace(prompt_tokens=None))).usage == Usage()


def test_what_is_no_chunk_adds_nothing() -> None:
    builder = CompletionBuilder()
    builder.add("text")
    builder.add(SimpleNamespace(choices=None))
    assert builder.received is False
    assert builder.build() == Completion("")
