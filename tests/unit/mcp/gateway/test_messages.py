"""Messages of clients: decoding, errors, results as bytes, and log levels."""

import json

import msgspec
import orjson
import pytest

from gaia.mcp.gateway.messages import (
    COMPLETE,
    RequestRefused,
    cacheable_result,
    decode_message,
    encode_error,
    encode_response,
    fragment,
    has_result_type,
    is_wanted,
    may_have,
    member,
    with_members,
)
from gaia.mcp.protocol.messages import INVALID_PARAMS


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b'"\xff"', -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32600),
        (b'{"jsonrpc":"2.0","id":"' + 2000 * b"a" + b'","method":"ping"}', -32600),
    ],
)
def test_what_is_no_message_is_refused(body: bytes, code: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        decode_message(body)
    assert refused.value.code == code
    assert refused.value.status == 400


def test_params_stay_bytes_until_they_are_looked_at() -> None:
    message = decode_message('{"jsonrpc":"2.0","id":"ä","method":"m","params":{"a":{"b": 1},"c":"ü"}}'.encode())
    assert message.id == "ä"
    assert message.params is not None
    assert bytes(message.params["a"]) == b'{"b": 1}'
    assert member(message.params, "c", str) == "ü"
    assert member(message.params, "d", str) is None
    with pytest.raises(RequestRefused, match="c: "):
        member(message.params, "c", int)


def test_what_is_passed_on_has_no_line_ends() -> None:
    raw = msgspec.Raw(b'{\n  "text": "a\\nb",\r\n  "n": 1.50\n}')
    assert orjson.dumps(fragment(raw)) == b'{"text":"a\\nb","n":1.50}'
    assert orjson.dumps(fragment(msgspec.Raw(b'{"a": 1}'))) == b'{"a": 1}', "as it came"


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (b"{}", {"resultType": "complete"}),
        (b" { }", {"resultType": "complete"}),
        (b'{"a":1}', {"resultType": "complete", "a": 1}),
        (b'{"resultType":"input_required"}', {"resultType": "input_required"}),
        (b'{"a":"\\"resultType\\""}', {"resultType": "complete", "a": '"resultType"'}),
        (b'{"\\u0072esultType":"input_required"}', {"resultType": "input_required"}),
        (b'{"a":{"resultType":"x"}}', {"resultType": "complete", "a": {"resultType": "x"}}),
    ],
)
def test_results_of_the_stateless_era_have_a_type(result: bytes, expected: object) -> None:
    members = b"" if has_result_type(result) else COMPLETE
    assert json.loads(encode_response(1, result, members))["result"] == expected


def test_a_result_that_does_not_say_how_long_it_may_be_kept_may_not() -> None:
    assert json.loads(cacheable_result(b'{"contents":[]}')) == {"contents": [], "ttlMs": 0, "cacheScope": "private"}
    kept = b'{"ttlMs":5,"cacheScope":"public"}'
    assert cacheable_result(kept) == kept


def test_answers_carry_the_id_as_it_came() -> None:
    assert json.loads(encode_response('"', b'{"a":1}')) == {"jsonrpc": "2.0", "id": '"', "result": {"a": 1}}
    error = json.loads(encode_error(None, -32700, "no", {"x": 1}))
    assert error == {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no", "data": {"x": 1}}}


@pytest.mark.parametrize(
    ("level", "least", "expected"),
    [
        ("warning", "info", True),
        ("info", "info", True),
        ("debug", "info", False),
        ("emergency", None, False),
        ("no such word", "info", True),
        (17, "warning", False),
    ],
)
def test_a_client_gets_what_is_as_severe_as_it_wants(level: object, least: str | None, expected: bool) -> None:
    assert is_wanted(level, least) is expected


def test_a_refusal_is_what_clients_get_and_not_an_error_of_http() -> None:
    refused = RequestRefused(INVALID_PARAMS, "name: missing")
    assert (refused.code, str(refused), refused.status) == (INVALID_PARAMS, "name: missing", 200)
    assert refused.data == {"errorType": "jsonrpc", "delivery": "not_sent"}


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [(b'{"a":1}', True), (b'{"b":1}', False), (rb'{"\u0061":1}', True), (b'{"b":"' + 10_000 * b"x" + b'"}', True)],
)
def test_a_name_may_be_written_in_escapes_and_long_results_are_not_searched(encoded: bytes, expected: bool) -> None:
    assert may_have(encoded, b'"a"') is expected


@pytest.mark.parametrize(
    ("result", "expected"), [(b"{}", b'{"a":1}'), (b" { } ", b'{"a":1} '), (b'{ "b":2 }', b'{"a":1,"b":2 }')]
)
def test_members_are_put_in_front(result: bytes, expected: bytes) -> None:
    assert with_members(result, b'"a":1') == expected
