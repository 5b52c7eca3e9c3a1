"""JSON-RPC messages to and from bytes: what counts as a message, what is repaired, and what never leaves."""

from __future__ import annotations

import contextlib
import json
import math
import tracemalloc
from types import SimpleNamespace
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaia.mcp.protocol import messages
from gaia.mcp.protocol.messages import (
    MAX_DEPTH,
    ErrorResponse,
    Message,
    NestedTooDeep,
    NotAMessage,
    Notification,
    Request,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    loads,
    says_safe_to_repeat,
    value_size,
)
from gaia.mcp.supervision.events import ServerLog, ToolsChanged

SURROGATES = st.characters(categories=["Cs"])
HOSTILE_TEXT = st.text(st.characters() | SURROGATES | st.sampled_from('\n\r\u2028\u2029\x85\x00"\\'))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | HOSTILE_TEXT,
    lambda values: st.lists(values, max_size=4) | st.dictionaries(HOSTILE_TEXT, values, max_size=4),
    max_leaves=10,
)


def line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


class TestDecode:
    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (line(id=1, result={"a": 1}), Response(1, {"a": 1})),
            (line(id="one", result={}), Response("one", {})),
            (line(id=0, result={}), Response(0, {})),
            (line(id=1, result=None), Response(1, None)),
            (line(id=1, error={"code": -32601, "message": "no"}), ErrorResponse(1, {"code": -32601, "message": "no"})),
            (line(id=None, error={"code": -32700}), ErrorResponse(None, {"code": -32700})),
            (line(error={"code": -32700}), ErrorResponse(None, {"code": -32700})),
            (line(id="s-1", method="ping"), Request("s-1", "ping", {})),
            (line(id=5, method="roots/list", params={"a": 1}), Request(5, "roots/list", {"a": 1})),
            (line(method="notifications/message", params={}), Notification("notifications/message", {})),
            (line(id=None, method="notifications/message"), Notification("notifications/message", {})),
            # Sloppy servers always write both members, or an empty object as PHP does.
            (line(id=1, result={}, error=None), Response(1, {})),
            (line(id=1, result=None, error={"code": 1}), ErrorResponse(1, {"code": 1})),
            (line(method="notifications/message", params=[]), Notification("notifications/message", {})),
            (line(id=1, method="ping", params=None), Request(1, "ping", {})),
        ],
    )
    def test_each_kind_of_message(self, data: bytes, message: Message) -> None:
        assert decode(data) == message

    def test_messages_cannot_be_changed(self) -> None:
        message = decode(line(id=1, result={}))
        assert isinstance(message, Response)
        with pytest.raises(AttributeError):
            message.id = 2  # type: ignore[misc]

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"Server started on port 8080",
            b'{"jsonrpc":"2.0","id":1,"result":{}',
            b'{"jsonrpc":"2.0","id":1,"result":{}}}',
            b"{}",
            b"[]",
            b"null",
            b"1",
            b'"text"',
            b"\x00\xff\xfe",
            b'{"id":1,"result":{}}',
            b'{"jsonrpc":"1.0","id":1,"result":{}}',
            b'{"jsonrpc":2.0,"id":1,"result":{}}',
            line(),
            line(id=1),
            line(result={}),
            line(id=None, result={}),
            line(id=True, result={}),
            line(id=1.5, result={}),
            line(id=[1], result={}),
            line(id={}, error={}),
            line(method=5),
            line(method=None, id=1),
            line(method="x", params=[1]),
            line(method="x", params="text"),
        ],
    )
    def test_everything_else_is_not_a_message(self, data: bytes) -> None:
        with pytest.raises(NotAMessage):
            decode(data)

    @given(st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()))
    def test_nothing_makes_it_crash(self, data: bytes) -> None:
        with contextlib.suppress(NotAMessage):
            decode(data)

    @pytest.mark.parametrize(
        ("begin", "end"),
        [
            *((b"[" * depth, b"]" * depth) for depth in (990, 1030, 100_000)),
            *((b'["\xff",' + b"[" * depth, b"]" * depth + b"]") for depth in (990, 1030, 100_000)),
            (b'["\xff",' + b"9" * 10_000, b"]"),
        ],
        ids=lambda value: f"{len(value)} bytes",
    )
    def test_neither_do_deep_nesting_or_thousands_of_digits(self, begin: bytes, end: bytes) -> None:
        with contextlib.suppress(NotAMessage):
            decode(b'{"jsonrpc":"2.0","id":1,"result":{"a":%b%b}}' % (begin, end))


class TestRepair:
    @pytest.mark.parametrize(
        ("data", "result"),
        [
            (b'{"caf\xe9":"\xff!"}', {"caf\ufffd": "\ufffd!"}),
            (rb'{"\udc00":["\ud800 \ud83d\ude00 \\ud800"]}', {"\ufffd": ["\ufffd \U0001f600 \\ud800"]}),
        ],
        ids=["bytes that are not UTF-8", "lone surrogates"],
    )
    def test_what_is_no_text_becomes_replacement_characters(self, data: bytes, result: Any) -> None:
        assert decode(b'{"jsonrpc":"2.0","id":1,"result":%b}' % data) == Response(1, result)

    @given(JSON)
    def test_whatever_a_server_writes_can_be_encoded_again(self, value: Any) -> None:
        message = decode(line(id=1, result={"value": value}))
        assert isinstance(message, Response)
        assert msgspec.json.encode(message.result)

    def test_numbers_beyond_json_are_understood(self) -> None:
        message = decode(b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN,"b":Infinity,"c":-Infinity}}')
        assert isinstance(message, Response)
        assert math.isnan(message.result["a"])
        assert message.result["b"] == math.inf
        assert message.result["c"] == -math.inf


class TestBatch:
    def test_a_batch_is_the_list_of_its_messages_without_the_junk(self) -> None:
        batch = b"[1, %b, {}, %b, null]" % (line(id=1, result={}), line(method="ping", id=7))
        assert decode(batch) == [Response(1, {}), Request(7, "ping", {})]

    @pytest.mark.parametrize("data", [b"[]", b"[1, 2]", b"[[%b]]" % line(id=1, result={})])
    def test_a_batch_without_a_message_is_not_a_message(self, data: bytes) -> None:
        with pytest.raises(NotAMessage):
            decode(data)


class TestEncode:
    @pytest.mark.parametrize(
        ("frame", "message"),
        [
            (encode_request(1, "ping", None), {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
            (encode_request(2, "m", {}), {"jsonrpc": "2.0", "id": 2, "method": "m", "params": {}}),
            (encode_notification("n"), {"jsonrpc": "2.0", "method": "n"}),
            (encode_notification("n", {"a": 1}), {"jsonrpc": "2.0", "method": "n", "params": {"a": 1}}),
            (encode_result("s", {}), {"jsonrpc": "2.0", "id": "s", "result": {}}),
            (encode_error(3, -32601, "no"), {"jsonrpc": "2.0", "id": 3, "error": {"code": -32601, "message": "no"}}),
        ],
    )
    def test_each_kind_of_message(self, frame: bytes, message: dict[str, Any]) -> None:
        assert json.loads(frame) == message

    @given(HOSTILE_TEXT, st.dictionaries(HOSTILE_TEXT, JSON, max_size=4))
    def test_a_frame_is_one_line_whatever_is_in_it(self, method: str, params: dict[str, Any]) -> None:
        for frame in (
            encode_request(1, method, params),
            encode_notification(method, params),
            encode_result(method, params),
            encode_error(method, -32603, method),
        ):
            assert frame.endswith(b"\n")
            assert frame.count(b"\n") == 1
            assert b"\r" not in frame
            assert frame.decode("utf-8")

    @given(st.dictionaries(HOSTILE_TEXT, JSON, max_size=4))
    def test_what_is_sent_is_what_was_meant(self, params: dict[str, Any]) -> None:
        assert json.loads(encode_request(1, "m", params))["params"] == params

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (2**64, "18446744073709551616"),
            (-(2**70), "-1180591620717411303424"),
            ({1: "a", None: "b", False: "c"}, '{"1":"a","null":"b","false":"c"}'),
            ("\ud800", r'"\ud800"'),
            ((1, 2), "[1,2]"),
            (math.nan, "null"),
        ],
        ids=str,
    )
    def test_what_json_can_express_is_sent(self, value: Any, text: str) -> None:
        assert encode_request(1, "m", {"value": value}) == (
            b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"value":%b}}\n' % text.encode()
        )

    @pytest.mark.parametrize("value", [object, b"bytes", {1, 2}, {(1, 2): 3}, 1j, [2**64, math.nan]], ids=repr)
    def test_what_json_cannot_express_is_refused(self, value: object) -> None:
        with pytest.raises(ValueError, match="cannot be sent as JSON"):
            encode_request(1, "m", {"value": value})

    def test_json_that_is_only_passed_on_may_stand_beside_it(self) -> None:
        params = {"raw": orjson.Fragment(b'{"a":[1,18446744073709551616]}'), "value": 2**64}
        assert json.loads(encode_request(1, "m", params))["params"] == {"raw": {"a": [1, 2**64]}, "value": 2**64}

    def test_deep_nesting_is_sent_or_refused_and_never_crashes(self) -> None:
        deep: list[Any] = []
        for _ in range(300):
            deep = [deep]
        assert encode_request(1, "m", {"value": deep}).count(b"[") == 301
        for _ in range(200_000):
            deep = [deep]
        circle: list[Any] = []
        circle.append(circle)
        for value in (deep, circle):
            with pytest.raises(ValueError, match="cannot be sent as JSON"):
                encode_request(1, "m", {"value": value})


class TestNesting:
    """What is deeper than anybody's program can write out again is stopped before it is anybody's."""

    @staticmethod
    def nested(levels: int, **members: Any) -> bytes:
        return line(**members)[:-1] + b', "x": ' + b"[" * levels + b"]" * levels + b"}"

    @pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 1, 1000, 100_000])
    @pytest.mark.parametrize("text", ["x", "x" * 20_000], ids=["short text", "long text"])
    def test_too_deep_an_answer_names_its_request(self, levels: int, text: str) -> None:
        with pytest.raises(NestedTooDeep) as raised:
            decode(self.nested(levels, id=7, result={"text": text}))
        assert raised.value.identifier == 7

    def test_a_request_of_the_server_answers_nothing(self) -> None:
        with pytest.raises(NestedTooDeep) as raised:
            decode(self.nested(1000, id=7, method="ping"))
        assert raised.value.identifier is None

    @pytest.mark.parametrize("levels", [MAX_DEPTH - 3, MAX_DEPTH - 2, MAX_DEPTH - 1])
    @pytest.mark.parametrize("text", ["x", "x" * 20_000], ids=["short text", "long text"])
    def test_what_is_deep_enough_for_everybody_is_read(self, levels: int, text: str) -> None:
        assert isinstance(decode(self.nested(levels, id=7, result={"text": text})), Response)

    def test_a_wide_message_is_not_a_deep_one(self) -> None:
        wide = {"id": 7, "result": {"content": [{"type": "text"}] * 1000, "number": 2**70}}
        assert decode(line(**wide)) == Response(7, wide["result"])


def test_an_id_or_a_method_that_no_log_should_repeat_is_none() -> None:
    assert isinstance(decode(line(id="x" * 1024, method="x" * 1024)), Request)
    with pytest.raises(NotAMessage):
        decode(line(id="x" * 1025, method="ping"))
    for identifier in ({}, {"id": 1}):
        with pytest.raises(NotAMessage, match="the method has 1025 characters"):
            decode(line(**identifier, method="x" * 1025))


VALUES: list[Any] = [
    "x" * 1_000_000,
    {f"key {number}": number for number in range(10_000)},
    [[] for _ in range(20_000)],
    [{"text": f"some text {number}", "more": [number / 7, None, True]} for number in range(5_000)],
]


@pytest.mark.parametrize("value", VALUES, ids=["text", "mapping", "empty lists", "nested"])
def test_it_is_about_what_the_value_takes_when_it_is_decoded(value: Any) -> None:
    encoded = orjson.dumps(value)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        decoded = orjson.loads(encoded)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # It counts keys that occur several times, and small numbers, each time.
    assert 0.6 * (after - before) <= value_size(decoded) <= 3 * (after - before)


def test_events_are_as_large_as_what_is_in_them_however_nested() -> None:
    assert value_size(ServerLog("s", "info", None, {"text": "x" * 50_000})) > 50_000
    assert value_size(ToolsChanged("s", added=("x" * 50_000,))) > 50_000
    assert value_size(ToolsChanged("s")) < 1_000
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert value_size(value) > 100_000
    while value:
        value = value.pop()


@pytest.mark.parametrize(
    ("annotations", "is_safe"),
    [
        ({}, False),
        ({"readOnlyHint": True}, True),
        ({"idempotentHint": True, "readOnlyHint": False}, True),
        ({"readOnlyHint": "false"}, False),
        ({"idempotentHint": 1}, False),
    ],
)
def test_only_a_plain_true_is_a_promise(annotations: dict[str, Any], is_safe: bool) -> None:
    assert says_safe_to_repeat(annotations) is is_safe


LONG = "x" * 100_000


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of what orjson was given."""
    lengths: list[int] = []
    noting = SimpleNamespace(loads=lambda data: (lengths.append(len(data)), orjson.loads(data))[1])
    monkeypatch.setattr(messages, "orjson", noting)
    return lengths


@pytest.mark.parametrize(
    "value",
    [
        {"id": 1, "result": {"content": [{"type": "image", "data": LONG}]}},
        {"result": {"content": [{"text": LONG}, {"text": f"{LONG}é€😀"}], "structuredContent": {"text": LONG}}},
        [LONG],
        [[LONG, 1, None, [LONG, ""]], {"a": {"b": [LONG]}}],
    ],
)
def test_they_never_pass_the_decoder(decoded: list[int], value: Any) -> None:
    assert loads(orjson.dumps(value)) == value
    (length,) = decoded
    assert length < 1000


@pytest.mark.parametrize(
    "value",
    [
        LONG,
        {LONG: 1},
        {LONG: LONG},
        {"text": LONG + "\n"},
        {"text": "a\nb", "data": LONG},
        {"data": LONG, "numbers": list(range(2000))},
        {"many": [str(number) for number in range(100)], "data": LONG},
        ["short", *["y" * 1000] * 100],
    ],
)
def test_what_is_not_that_simple_is_left_to_the_decoder(decoded: list[int], value: Any) -> None:
    line = orjson.dumps(value)
    assert loads(line) == value
    assert decoded[-1] == len(line)


def test_of_a_key_that_comes_twice_the_last_value_counts() -> None:
    assert loads(b'{"a": "%s", "a": "%s"}' % (LONG.encode(), LONG.upper().encode())) == {"a": LONG.upper()}


@pytest.mark.parametrize(
    "form", [b'{"a": "%s"', b'{"a": "%s}', b'{"a": "%s" "b"}', b'{"a": "%s\xff"}', b'{"a": "%s", "b": NaN}', b"%s"]
)
def test_what_is_no_json_is_refused(form: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(form % LONG.encode())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=20) | st.text("ab", min_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    )
)
@settings(max_examples=40)
def test_it_agrees_with_the_decoder(value: Any) -> None:
    line = orjson.dumps(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "LONG", 4)
        assert loads(line) == value
