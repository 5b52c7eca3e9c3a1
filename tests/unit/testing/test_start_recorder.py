"""What of a server's traffic belongs to which request, message by message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gaia.mcp.errors import AnswerLost, CallCancelled, InvalidResponse, StartFailed
from gaia.mcp.protocol.eras import SUBSCRIPTION_ID
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.channel import Ending, Frame
from gaia.mcp.rpc.connection import Connection
from gaia.testing import FakeClock
from gaia.testing.cassette import RecordedEnding, RecordedExchange, Start, Step
from gaia.testing.start_recorder import Recording, StartRecorder
from tests.fake_transport import FakeChannel

TOOLS = {"capabilities": {"tools": {}}}


class Server:
    """A recorder between a connection and a channel of which the test says everything."""

    def __init__(self) -> None:
        self.state = Recording()
        self.recorder = StartRecorder(self.state)
        # The test answers the server's requests.
        self.connection = Connection(
            "s",
            1,
            FakeClock(),
            max_pending=100,
            on_notification=lambda _: None,
            on_ended=lambda _: None,
            on_request=lambda _: True,
        )
        self.listener = self.recorder.listener(self.connection)
        self.inner = FakeChannel(self.listener, 1, {})
        self.channel = self.connection.channel = self.recorder.channel(self.inner)

    def send(self, identifier: int, method: str, params: dict[str, Any] | None = None) -> Call:
        call = Call(identifier, method, params, 0.0, 100.0)
        assert self.channel.send(call)
        return call

    def greet(self) -> None:
        self.send(1, "initialize", {"clientInfo": {"version": "7"}})
        self.answer(1, TOOLS)
        self.send(2, "tools/list")
        self.answer(2, {"tools": []})

    def answer(self, identifier: int | str, result: Any) -> None:
        self.hear(id=identifier, result=result)

    def hear(self, **members: Any) -> None:
        self.listener.message_received(json.dumps({"jsonrpc": "2.0", **members}).encode())

    def start(self) -> Start:
        start = self.recorder.start(str)
        assert start is not None
        return start

    def calls(self) -> list[RecordedExchange]:
        return self.start().exchanges[2:]


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.greet()
    yield server
    server.inner.let_close()
    server.channel.close(0.0)


def test_requests_with_their_results(server: Server) -> None:
    server.send(3, "tools/call", {"name": "a", "_meta": {"progressToken": 3}})
    # Some servers send ids back as texts.
    server.answer("3", {"content": []})
    assert server.calls() == [RecordedExchange(request="tools/call", params={"name": "a"}, result={"content": []})]
    greeting, listing = server.start().exchanges[:2]
    assert greeting == RecordedExchange(request="initialize", result=TOOLS)
    assert listing.result == {"tools": []}


def test_a_request_that_was_never_written(server: Server) -> None:
    call = Call(3, "tools/call", None, 0.0, 100.0)
    call.finish(error=CallCancelled("before"))
    assert server.channel.send(call)
    assert server.calls() == []


def test_a_request_that_did_not_leave_after_all(server: Server) -> None:
    call = server.send(3, "tools/call", {"name": "a"})
    server.recorder.unwritten(call)
    server.recorder.unwritten(call)
    assert server.calls() == []


def test_what_comes_of_timing_is_left_out(server: Server) -> None:
    server.send(3, "ping")
    server.send(4, "tools/list")
    server.answer(4, {"tools": []})
    server.send(5, "tools/list")
    assert [exchange.request for exchange in server.start().exchanges] == ["initialize", "tools/list"]


def test_an_answer_after_the_client_gave_up(server: Server) -> None:
    call = server.send(3, "tools/call", {"name": "a"})
    call.finish(error=CallCancelled("enough"))
    server.answer(3, {"content": []})
    assert server.calls() == [RecordedExchange(request="tools/call", params={"name": "a"}, unanswered=True)]


def test_rounds_of_questions(server: Server) -> None:
    """The state is the server's alone, and answers come in any order."""
    server.send(3, "tools/call", {"name": "a"})
    server.answer(3, {"resultType": "input_required", "requestState": "v1.17"})
    answers = {"b": {"roots": [{"uri": "b", "name": "a"}]}, "a": {}}
    server.send(4, "tools/call", {"name": "a", "inputResponses": answers, "requestState": "v1.17"})
    first, second = server.calls()
    assert first.result == {"resultType": "input_required", "requestState": "***"}
    assert second.params["requestState"] == "***"
    assert json.dumps(second.params["inputResponses"]) == '{"a": {}, "b": {"roots": [{"name": "a", "uri": "b"}]}}'


def test_a_second_answer(server: Server) -> None:
    server.send(3, "tools/call", {"name": "a"})
    server.answer(3, {"content": [1]})
    server.answer(3, {"content": [2]})
    assert server.calls()[0].result == {"content": [1]}


def test_errors(server: Server) -> None:
    server.send(3, "tools/call", {"name": "a"})
    server.hear(id=3, error={"code": -1, "message": "no"})
    server.send(4, "tools/call", {"name": "b"})
    server.listener.request_failed(4, AnswerLost("the stream broke"))
    answered, failed = server.calls()
    assert answered.error == {"code": -1, "message": "no"}
    assert failed.failed is not None
    assert (failed.failed.type, failed.failed.message) == ("AnswerLost", "the stream broke")


def test_progress_belongs_to_its_token(server: Server) -> None:
    for number in (3, 4):
        server.send(number, "tools/call", {"name": str(number)})
    server.hear(method="notifications/progress", params={"progressToken": 4, "progress": 1})
    server.hear(method="notifications/progress", params={"progressToken": 9, "progress": 1})
    first, second = server.calls()
    assert first.meanwhile == []
    assert second.meanwhile == [Step(notification="notifications/progress", params={"progress": 1})]


def test_notifications_belong_to_the_call_that_waits_or_the_last_one(server: Server) -> None:
    server.hear(method="notifications/message", params={"data": 0})
    server.send(3, "tools/call", {"name": "a"})
    server.hear(method="notifications/message", params={"data": 1})
    server.answer(3, {})
    server.hear(method="notifications/message", params={"data": 2})
    start = server.start()
    (call,) = start.exchanges[2:]
    found = [start.meanwhile, call.meanwhile, call.afterwards]
    assert [[step.params["data"] for step in steps] for steps in found] == [[0], [1], [2]]


def test_notifications_of_a_subscription(server: Server) -> None:
    server.send(3, "subscriptions/listen")
    for method in ("notifications/subscriptions/acknowledged", "notifications/tools/list_changed"):
        server.hear(method=method, params={"_meta": {SUBSCRIPTION_ID: 3}})
    server.hear(method="notifications/resources/updated", params={"uri": "a", "_meta": {SUBSCRIPTION_ID: 3, "x": 1}})
    start = server.start()
    assert start.meanwhile == [
        Step(notification="notifications/tools/list_changed", subscribed=True),
        Step(notification="notifications/resources/updated", params={"uri": "a", "_meta": {"x": 1}}, subscribed=True),
    ]
    assert len(start.exchanges) == 2


def test_questions_and_their_answers(server: Server) -> None:
    server.send(3, "tools/call", {"name": "a"})
    for number, method in enumerate(("elicitation/create", "roots/list", "sampling/createMessage", "ping")):
        server.hear(id=f"q-{number}", method=method, params={})
    for number in range(2):
        answer = {"jsonrpc": "2.0", "id": f"q-{number}", "result": {"number": number}}
        assert server.channel.send(Frame(json.dumps(answer).encode()))
    (call,) = server.calls()
    assert call.meanwhile == [
        Step(request="elicitation/create", answer={"result": {"number": 0}}),
        # Its answer is of this machine, and the next one has none.
        Step(request="roots/list"),
        Step(request="sampling/createMessage"),
    ]


def test_an_end_of_its_own(server: Server) -> None:
    server.send(3, "tools/call", {"name": "a"})
    server.inner.end(exit_code=3, stderr="at 12:30")
    server.send(4, "tools/call", {"name": "b"})
    assert server.channel.ending(0.0) == Ending(3, None, "at 12:30")
    server.channel.close(0.0)
    assert server.start().end == RecordedEnding(exit_code=3)
    assert [call.crashed for call in server.calls()] == [True, True]


def test_a_server_that_only_closes_its_output(server: Server) -> None:
    server.inner.end()
    assert server.start().end == RecordedEnding()


def test_an_end_by_the_client(server: Server) -> None:
    server.send(3, "tools/call", {"name": "a"})
    server.channel.close(0.0)
    server.inner.end(signal="SIGTERM")
    start = server.start()
    assert start.end is None
    assert start.exchanges[2].unanswered


def test_an_end_at_the_end_of_its_input_is_one_by_the_client(server: Server) -> None:
    server.channel.stop_writing()
    server.inner.end(exit_code=0)
    server.channel.close(0.0)
    assert server.start().end is None


def test_a_start_that_fails() -> None:
    recorder = StartRecorder(Recording())
    recorder.failed(StartFailed("no such file: secret"))
    assert recorder.start(lambda text: text.replace("secret", "***")) == Start(failed="no such file: ***")


@pytest.mark.parametrize(
    "answers", [[], [("server/discover", None)], [("initialize", TOOLS)], [("initialize", TOOLS), ("tools/list", None)]]
)
def test_a_greeting_that_was_interrupted_is_left_out(answers: list[tuple[str, Any]]) -> None:
    server = Server()
    for number, (method, result) in enumerate(answers):
        server.send(number, method)
        if result is not None:
            server.answer(number, result)
    server.channel.close(0.0)
    assert server.recorder.start(str) is None


def test_nothing_is_recorded_once_it_is_stopped(server: Server) -> None:
    server.send(3, "tools/call", {"name": "a"})
    server.state.stopped = True
    server.send(4, "tools/call", {"name": "b"})
    server.answer(3, {})
    server.listener.request_failed(3, AnswerLost("late"))
    server.inner.end(exit_code=1)
    start = server.start()
    assert start.end is None
    assert [exchange.unanswered for exchange in start.exchanges[2:]] == [True]


def test_junk_is_left_out(server: Server) -> None:
    server.listener.message_received(b"Listening on port 80")
    assert server.calls() == []


def test_everything_is_passed_on(server: Server) -> None:
    assert server.channel.pid == server.inner.pid
    assert server.channel.memory() is None
    assert server.channel.redact("text") == "text"
    assert server.connection.session_id is None
    assert [message["method"] for message in server.inner.received] == ["initialize", "tools/list"]


@pytest.mark.parametrize(
    ("result", "words"), [(5, "the result of tools/call is not an object"), ('{"a":' * 300 + "1" + "}" * 300, "nested")]
)
def test_an_answer_that_is_unusable_has_failed(server: Server, result: int | str, words: str) -> None:
    server.send(3, "tools/call", {"name": "a"})
    server.listener.message_received(f'{{"jsonrpc": "2.0", "id": 3, "result": {result}}}'.encode())
    (exchange,) = server.calls()
    assert exchange.failed is not None
    again = exchange.failed.error()
    assert isinstance(again, InvalidResponse)
    assert words in again.message
    assert not exchange.unanswered
