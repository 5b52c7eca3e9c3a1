"""Of an answer that is passed on, the envelope is decoded and the result stays the bytes that it was."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.protocol.gateway_answers import NO_FACTS, decode_answer, facts_of, result_bytes

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.integers(0, 2**62), st.dictionaries(st.text(), VALUES), st.booleans())
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
