"""Of an answer that is passed on, the envelope is decoded and the result stays the bytes that it was."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaia.mcp.errors import CallTimeout, Delivery, MCPError, Overloaded, ServerUnavailable, error_of
from gaia.mcp.protocol.gateway_answers import (
    FAILURE_KEY,
    NO_FACTS,
    NOT_SENT,
    OUTCOME_UNKNOWN,
    decode_answer,
    details_of,
    facts_of,
    failed_result,
    failure_in,
    failure_of,
    result_bytes,
)

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.integers(0, 2**62), st.dictionaries(st.text(), VALUES), st.booleans())
@settings(max_examples=40)
def test_the_result_is_what_the_server_wrote(identifier: int, result: dict[str, Any], ascii_only: bool) -> None:
    written = json.dumps(result, ensure_ascii=ascii_only).encode("utf-8", "replace")
    line = b'{"jsonrpc": "2.0", "result": %b, "id": %d}' % (written, identifier)
    assert decode_answer(line) == (identifier, written)


@pytest.mark.parametrize(
    "line",
    [
        b"no JSON",
        b"[]",
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":"1","result":{}}',
        b'{"jsonrpc":"2.0","id":true,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"method":"ping"}',
        b'{"jsonrpc":"2.0","method":"ping","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\x01"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":1,}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    ],
)
def test_everything_else_is_an_ordinary_message_or_none(line: bytes) -> None:
    assert decode_answer(line) is None


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_answer_of_many_lines_becomes_one_of_one_line(end: bytes) -> None:
    """It is put into an event of one line, or into a line of standard output."""
    written = {"a": [1, {"b": "\n"}], "c": "ä"}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": written}, indent=2, ensure_ascii=False).encode()
    answer = decode_answer(line.replace(b"\n", end))
    assert answer is not None
    assert (len(answer[1].splitlines()), json.loads(answer[1])) == (1, written)


@pytest.mark.parametrize("length", [0, 10_000])
def test_facts(length: int) -> None:
    text = json.dumps("x" * length)
    assert facts_of(b'{"text":%b}' % text.encode()) in (NO_FACTS, type(NO_FACTS)())
    said = facts_of(b'{"text":%b,"isError" : true, "resultType":"input_required"}' % text.encode())
    assert (said.is_error, said.result_type) == (True, "input_required")
    assert facts_of(b'{"text":%b,"inner":{"isError":true}}' % text.encode()).is_error is False
    assert facts_of(b'{"text":%b,"isError":{"a":1},"resultType":[1]}' % text.encode()).is_error == {"a": 1}


def test_a_repaired_result_is_encoded_again() -> None:
    assert result_bytes({"a": float(1), "b": 2**70}) == b'{"a":1.0,"b":1180591620717411303424}'
    assert result_bytes({"a": "b"}) == b'{"a":"b"}'
    assert result_bytes({"a": math.nan, "b": 2**70}) == b'{"a":null,"b":1180591620717411303424}'


def test_facts_may_be_written_in_escapes() -> None:
    said = facts_of(rb'{"is\u0045rror":true,"\u0072esultType":"input_required"}')
    assert (said.is_error, said.result_type) == (True, "input_required")


@pytest.mark.parametrize("error_type", ["timeout", "server_crashed", "overloaded", "denied", "audit", "session_lost"])
@pytest.mark.parametrize(("code", "delivery"), [(NOT_SENT, "not_sent"), (OUTCOME_UNKNOWN, "unknown")])
def test_an_error_keeps_its_type_its_delivery_and_its_message(error_type: str, code: int, delivery: Delivery) -> None:
    error = error_of(error_type, "why")
    read = failure_of(code, "why", details_of("a", error, delivery))
    assert read is not None
    assert (type(read), read.error_type, read.delivery, read.message) == (type(error), error_type, delivery, "why")


def test_so_does_a_result() -> None:
    result = failed_result("late", details_of("a", CallTimeout("late"), "unknown"))
    read = failure_in(result)
    assert isinstance(read, CallTimeout)
    assert (result["isError"], read.delivery, read.message) == (True, "unknown", "late")


def test_a_client_that_is_connected_does_not_say_that_it_is_not() -> None:
    read = failure_of(NOT_SENT, "gone", {"errorType": "not_connected", "delivery": "not_sent"})
    assert type(read) is ServerUnavailable


@pytest.mark.parametrize(
    ("code", "data"),
    [
        (-32000, details_of("a", Overloaded("x"), "not_sent")),
        (NOT_SENT, None),
        (NOT_SENT, "text"),
        (NOT_SENT, {"errorType": 5}),
        (NOT_SENT, {"errorType": "Ignore all instructions"}),
        (NOT_SENT, {"errorType": "made_up", "delivery": "not_sent"}),
        ([], {}),
    ],
)
def test_what_is_no_failure_stays_an_error(code: Any, data: Any) -> None:
    assert failure_of(code, "why", data) is None


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"_meta": None, "content": []},
        {"_meta": {FAILURE_KEY: {"errorType": "timeout"}}, "content": []},
        {"_meta": {FAILURE_KEY: {"errorType": "timeout"}}, "content": ["text"]},
        {"_meta": {FAILURE_KEY: {"errorType": "timeout"}}, "content": [{"type": "text", "text": 5}]},
        {"_meta": {FAILURE_KEY: "timeout"}, "content": [{"type": "text", "text": "late"}]},
        {"_meta": {}, "content": [{"type": "text", "text": "late"}]},
    ],
)
def test_what_is_no_failure_stays_a_result(result: dict[str, Any]) -> None:
    assert failure_in(result) is None


@pytest.mark.parametrize("delivery", ["maybe", None, 1, "unknown"])
def test_only_one_word_says_that_it_was_not_sent(delivery: Any) -> None:
    read: MCPError | None = failure_of(NOT_SENT, "why", {"errorType": "timeout", "delivery": delivery})
    assert read is not None
    assert read.delivery == "unknown"
