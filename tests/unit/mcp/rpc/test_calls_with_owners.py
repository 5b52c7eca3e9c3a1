"""A call for a client of a gateway, over a connection: its result stays bytes, and all else is as for other calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import Mock

import orjson
import pytest

from gaia.mcp.errors import CallTimeout, InvalidResponse, JsonRpcError, ServerCrashed
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.protocol.gateway_answers import details_of, failed_result
from gaia.mcp.protocol.messages import Request
from gaia.mcp.rpc import call as call_module
from gaia.mcp.rpc.call import Call, OnAnswer
from gaia.mcp.rpc.connection import Connection, ConnectionState
from gaia.testing import FakeClock
from tests.unit.mcp.rpc.test_connection import FakeChannel

Json = dict[str, Any]

STATELESS = NegotiatedProtocol(
    "2026-07-28", {"io.modelcontextprotocol/clientCapabilities": {"sampling": {}}}, server_may_ask=False
)


class Owner:
    client_key = None
    is_away = False

    def __init__(self, log_level: str | None = None) -> None:
        self.capabilities: Mapping[str, Any] = {"roots": {"listChanged": True}, "elicitation": {"form": {}}}
        self.log_level = log_level
        self.logs: list[Json] = []

    def logged(self, params: Json) -> None:
        self.logs.append(params)

    def refusal(self, tool: str) -> None: ...

    def give_way(self) -> None:
        raise NotImplementedError

    def asked(self, method: str, params: Mapping[str, Any], answer: OnAnswer) -> Callable[[], object]:
        raise NotImplementedError


def new_connection(negotiated: NegotiatedProtocol | None = None, **hooks: Any) -> Connection:
    hooks = {"on_notification": lambda _: None, "on_ended": lambda _: None, **hooks}
    connection = Connection("one", 1, FakeClock(), max_pending=10, **hooks)
    connection.channel = FakeChannel()  # type: ignore[assignment]
    connection.move_to(ConnectionState.READY)
    if negotiated is not None:
        connection.negotiated = negotiated
    return connection


def request(identifier: int = 1, method: str = "tools/call", **more: Any) -> Call:
    params = {"name": "a", "arguments": orjson.Fragment(b'{"x":1}')}
    return Call(identifier, method, params, 0.0, 10.0, **{"owner": Owner(), **more})


def submitted(connection: Connection, call: Call) -> Call:
    assert connection.submit(call)
    return call


def answer(connection: Connection, line: bytes | Json, call_id: int | None = None) -> None:
    connection.message_received(line if isinstance(line, bytes) else json.dumps(line).encode(), call_id)


def test_the_frame_has_the_arguments_as_they_came() -> None:
    sent = json.loads(request().frame)
    assert sent == {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "arguments": {"x": 1}}}


def test_a_stateless_server_is_told_of_the_client() -> None:
    call = request(owner=Owner("warning"), negotiated=STATELESS, on_progress=lambda _: None)
    meta = json.loads(call.frame)["params"]["_meta"]
    assert meta == {
        "io.modelcontextprotocol/clientCapabilities": {"roots": {}, "elicitation": {"form": {}}},
        "io.modelcontextprotocol/logLevel": "warning",
        "progressToken": 1,
    }


def test_the_result_stays_bytes_and_is_taken_once() -> None:
    done: list[Call] = []
    connection = new_connection()
    call = submitted(connection, request(on_done=done.append))
    answer(connection, b'{"jsonrpc":"2.0","id":1,"result":{"content": [ ], "isError":true}}')
    assert done == [call]
    assert call.error is None
    assert call.facts.is_error is True
    assert call.take_raw() == b'{"content": [ ], "isError":true}'
    assert call.take_raw() == b"", "what is kept of the call is small"
    assert connection.in_flight == 0


@pytest.mark.parametrize(("method", "counts"), [("tools/call", True), ("resources/read", True), ("tools/list", False)])
@pytest.mark.parametrize("outcome", [{"result": {}}, {"error": {"code": -32602, "message": "not like that"}}])
def test_a_server_that_answers_a_client_works(method: str, counts: bool, outcome: Json) -> None:
    connection = new_connection()
    submitted(connection, request(1, method))
    assert not connection.has_answered
    answer(connection, {"jsonrpc": "2.0", "id": 1, **outcome})
    assert connection.has_answered is counts


def test_the_result_of_another_gateway_may_tell_a_failure() -> None:
    connection = new_connection()
    connection.reads_failures = True
    told, garbled = submitted(connection, request()), submitted(connection, request(2))
    result = failed_result("late", details_of("a", CallTimeout("late"), "unknown"))
    told.written = True
    answer(connection, {"jsonrpc": "2.0", "id": 1, "result": result})
    assert isinstance(told.error, CallTimeout)
    assert (told.error.message, told.error.delivery) == ("late", "unknown")
    answer(connection, b'{"jsonrpc":"2.0","id":2,"result":{"isError":true,"gaia.mcp/failure":1e999}}')
    assert garbled.error is None


def test_an_answer_that_has_to_be_repaired_is_a_result_too() -> None:
    connection = new_connection()
    call = submitted(connection, request())
    answer(connection, b'{"jsonrpc":"2.0","id":"1","result":{"text":"\xff","isError":true}}')
    assert (call.error, call.facts.is_error) == (None, True)
    assert json.loads(call.take_raw()) == {"text": "�", "isError": True}


def test_errors_and_ordinary_calls_are_as_ever() -> None:
    connection = new_connection()
    relayed, ordinary = submitted(connection, request(1)), Call(2, "ping", None, 0.0, 10.0)
    assert connection.submit(ordinary)
    answer(connection, {"jsonrpc": "2.0", "id": 2, "result": {"a": 1}})
    answer(connection, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}})
    assert ordinary.result == {"a": 1}
    assert isinstance(relayed.error, JsonRpcError)
    answer(connection, {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert isinstance(relayed.error, JsonRpcError), "a second answer changes nothing"


def test_results_that_are_none_are_refused() -> None:
    connection = new_connection(STATELESS)
    no_object, unknown = submitted(connection, request(1)), submitted(connection, request(2))
    unfinished, no_rounds = submitted(connection, request(3)), submitted(connection, request(4, "completion/complete"))
    answer(connection, {"jsonrpc": "2.0", "id": 1, "result": []})
    for identifier, kind in ((2, "task"), (3, "input_required"), (4, "input_required")):
        answer(connection, {"jsonrpc": "2.0", "id": identifier, "result": {"resultType": kind}})
    assert isinstance(no_object.error, InvalidResponse)
    assert isinstance(unknown.error, InvalidResponse)
    assert unfinished.error is None
    assert unfinished.facts.result_type == "input_required"
    assert isinstance(no_rounds.error, InvalidResponse)


class TestToWhichCallAMessageBelongs:
    def test_the_one_on_whose_stream_it_came(self) -> None:
        connection = new_connection()
        first, second = submitted(connection, request(1)).owner, submitted(connection, request(2)).owner
        assert connection.owners_of(2) == [second]
        assert connection.owners_of(3) == []
        assert connection.owners_of(None) == [first, second], "there is no stream"

    def test_a_request_of_the_server_says_so(self) -> None:
        asked: list[Request] = []
        connection = new_connection(on_request=lambda request: bool(asked.append(request)) or True)
        submitted(connection, request(1))
        answer(connection, {"jsonrpc": "2.0", "id": 9, "method": "roots/list"}, 1)
        answer(connection, {"jsonrpc": "2.0", "id": 10, "method": "roots/list"})
        assert [one.call_id for one in asked] == [1, None]

    @pytest.mark.parametrize(("call_id", "expected"), [(1, [1, 0]), (None, [0, 0])])
    def test_a_log_message_goes_to_one_or_to_none(self, call_id: int | None, expected: list[int]) -> None:
        connection = new_connection(STATELESS)
        owners = [Owner("info"), Owner("info")]
        for number, owner in enumerate(owners, 1):
            submitted(connection, request(number, owner=owner))
        answer(connection, {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "hi"}}, call_id)
        assert [len(owner.logs) for owner in owners] == expected


def test_an_answer_that_is_lost_by_a_mistake_ends_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = new_connection()
    call = submitted(connection, request())
    monkeypatch.setattr(call_module, "facts_of", Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        connection.message_received(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    assert isinstance(call.error, ServerCrashed)
    assert call.error.delivery == "unknown"


def test_the_result_of_any_other_server_tells_none() -> None:
    connection = new_connection()
    call = submitted(connection, request())
    result = failed_result("log in at my page", details_of("a", CallTimeout("late"), "not_sent"))
    answer(connection, {"jsonrpc": "2.0", "id": 1, "result": result})
    assert call.error is None
    assert json.loads(call.take_raw()) == result
