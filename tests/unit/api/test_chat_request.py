"""Which requests for a chat completion are understood."""

from __future__ import annotations

import json
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.api.answers import RequestFailed, checked_messages
from gaia.api.chat_request import ChatRequest, parse

VALUES: list[Any] = [None, True, 0, -1, 1.5, 1e300, "", "text", [], ["text"], [1], [[]], {}, {"a": 1}, {"a": None}]
VALID: dict[str, Any] = {"model": "gaia", "messages": [{"role": "user", "content": "Hi"}]}
FIELDS = [field.name for field in msgspec.structs.fields(ChatRequest)]
MESSAGE_FIELDS = ("role", "content", "name", "tool_call_id", "tool_calls", "function_call", "refusal", "audio")

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def accepted(document: Any) -> ChatRequest | None:
    """The request; None if it was refused with a 400. Any other exception is a failure of the test."""
    refusal = None
    try:
        request = parse(json.dumps(document).encode())
        checked_messages(request.messages)
    except RequestFailed as error:
        refusal = error
    assert refusal is None or (refusal.status == 400 and refusal.message)
    return None if refusal else request


def types_of(field: str) -> tuple[type, ...]:
    """The Python types that a JSON value of a field may have."""
    hint = typing.get_type_hints(ChatRequest)[field]
    origins = [typing.get_origin(each) or each for each in (typing.get_args(hint) or (hint,))]
    return tuple(dict if issubclass(origin, msgspec.Struct) else origin for origin in origins)


def test_what_clients_send_is_understood() -> None:
    request = accepted(
        {
            **VALID,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "top_p": 0.5,
            "stop": ["a"],
            "seed": 1,
            "n": 1,
            "max_tokens": 5,
            "tool_choice": "none",
            "unknown": [1],
        }
    )
    assert request is not None
    assert request.stream
    assert request.stream_options is not None
    assert request.stream_options.include_usage


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_another_type_is_refused(field: str) -> None:
    for value in VALUES:
        request = accepted({**VALID, field: value})
        if request is not None and field != "messages":
            wanted = types_of(field)
            assert value is None or isinstance(value, wanted) or (type(value) is int and float in wanted)


@pytest.mark.parametrize("value", [[], [1], "a", 5, True, {"include_usage": "yes"}, {"include_usage": 1}])
def test_stream_options_are_an_object(value: Any) -> None:
    assert accepted({**VALID, "stream": True, "stream_options": value}) is None


@given(st.sampled_from(FIELDS), anything)
def test_no_value_of_a_field_is_anything_but_understood_or_refused(field: str, value: Any) -> None:
    accepted({**VALID, field: value})


@given(st.sampled_from(MESSAGE_FIELDS), anything)
def test_nor_is_one_of_a_message(field: str, value: Any) -> None:
    message = {"role": "user", "content": "Hi", field: value}
    accepted({**VALID, "messages": [message, {"role": "user", "content": "Hi"}]})


@pytest.mark.parametrize(
    "message",
    [
        {"role": "someone"},
        {"role": "user", "name": []},
        {"role": "assistant", "tool_calls": 5},
        {"role": "assistant", "tool_calls": [5]},
        {"role": "tool", "tool_call_id": {}},
        "Hi",
        None,
    ],
)
def test_messages_with_wrong_fields_are_refused(message: Any) -> None:
    assert accepted({**VALID, "messages": [message, {"role": "user", "content": "Hi"}]}) is None


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"5", b"\xff", b'{"model": NaN}', b"[" * 100_000, b'{"messages": ' + b"[" * 100_000]
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestFailed) as raised:
        parse(body)
    assert raised.value.status == 400
