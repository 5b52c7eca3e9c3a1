"""Requests for which the server wants something first: any number of rounds, one result."""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, _base
from typing import Any
from unittest.mock import Mock

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.errors import CallTimeout, InputMissing, InvalidResponse, ServerCrashed
from gaia.mcp.requests.submitted_request import CallFuture, SubmittedRequest
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.runtime.cancellation import CancelScope
from gaia.testing import FakeClock
from tests.fake_transport import FakeChannel, FakeTransport, stateless_answers
from tests.interruption import raise_within
from tests.waiting import PATIENCE

Json = dict[str, Any]
Make = Callable[..., "Asked"]

DONE = {"content": [{"type": "text", "text": "done"}]}
FORM = {
    "method": "elicitation/create",
    "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
SAMPLE = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 5},
}
ROOTS = {"method": "roots/list"}
NAMED = {"action": "accept", "content": {"name": "Ann"}}


def required(state: Any = "s-1", **requests: Json) -> Json:
    result: Json = {"resultType": "input_required", "requestState": state}
    return {**result, "inputRequests": requests} if requests else result


class Asked:
    """A client of a stateless server whose tool calls the test answers."""

    def __init__(self, clock: FakeClock, **features: Any) -> None:
        self.clock = clock
        self.transport = FakeTransport(answers=stateless_answers())
        never, steady = 1_000_000.0, RestartPolicy(jitter=0.0)
        self.client = MCPClient(
            "fake",
            self.transport,
            protocol="stateless",
            clock=clock,
            health_interval=never,
            restart_policy=steady,
            **features,
        )
        assert self.client.connect(), self.client.last_error
        self.threads = ThreadPoolExecutor(16, "test-caller")

    @property
    def channel(self) -> FakeChannel:
        return self.transport.channel(self.transport.starts)

    def call(self, tool: str = "echo", **options: Any) -> "Future[Json]":
        """A call in a thread of its own."""
        return self.threads.submit(self.client.call_tool, tool, {"a": 1}, **options)

    def begin(self, *, submitted: bool, **options: Any) -> Any:
        """The future of a call that is `submitted`, or of a request that a thread of its own waits for."""
        if submitted:
            return self.client.submit_tool("echo", **options)
        return self.threads.submit(self.client.request, "tools/call", {"name": "echo"}, **options)

    def round(self, number: int, method: str = "tools/call") -> Json:
        """Wait for the nth request."""
        return self.channel.wait_for(method, number)

    def close(self) -> None:
        self.client.disconnect()
        self.threads.shutdown()


@pytest.fixture
def make(fake_clock: FakeClock) -> Iterator[Make]:
    made: list[Asked] = []

    def make(**features: Any) -> Asked:
        made.append(Asked(fake_clock, **features))
        return made[-1]

    yield make
    for asked in made:
        asked.close()


@pytest.fixture
def asked(make: Make) -> Asked:
    """A client that answers everything at once."""
    return make(
        on_elicitation=lambda request: request.accept({"name": "Ann"}),
        on_sampling=lambda request: request.answer("Hello", model="small"),
        roots=["file:///work"],
    )


class TestRounds:
    def test_the_request_is_sent_again_with_answers_and_state(self, asked: Asked) -> None:
        result = asked.call()
        first = asked.round(1)
        asked.channel.answer(first, required(who=FORM, model=SAMPLE, where=ROOTS))
        second = asked.round(2)
        assert second["id"] != first["id"]
        assert second["params"] == {
            **first["params"],
            "inputResponses": {
                "who": NAMED,
                "model": {
                    "role": "assistant",
                    "content": {"type": "text", "text": "Hello"},
                    "model": "small",
                    "stopReason": "endTurn",
                },
                "where": {"roots": [{"uri": "file:///work"}]},
            },
            "requestState": "s-1",
        }
        asked.channel.answer(second, DONE)
        assert result.result(PATIENCE) == DONE

    def test_parallel_calls_never_mix_their_states(self, asked: Asked) -> None:
        results = {tool: asked.call(tool) for tool in ("one", "two", "three", "four")}
        for number in range(1, 5):
            request = asked.round(number)
            asked.channel.answer(request, required(request["params"]["name"], who=FORM))
        for number in range(5, 9):
            request = asked.round(number)
            assert request["params"]["requestState"] == request["params"]["name"]
            asked.channel.answer(request, {"content": request["params"]["name"]})
        for tool, result in results.items():
            assert result.result(PATIENCE) == {"content": tool}

    def test_submitted_calls_prompts_resources_and_requests_work_alike(self, asked: Asked) -> None:
        client = asked.client
        for method, make in {
            "tools/call": lambda: client.submit_tool("echo").result(PATIENCE),
            "prompts/get": lambda: client.get_prompt("p"),
            "resources/read": lambda: client.read_resource("file:///a"),
        }.items():
            result = asked.threads.submit(make)
            asked.channel.answer(asked.round(1, method), required(who=FORM))
            assert asked.round(2, method)["params"]["inputResponses"] == {"who": NAMED}
            asked.channel.answer(asked.round(2, method), {"seen": method})
            assert result.result(PATIENCE) == {"seen": method}
        result = asked.threads.submit(client.request, "resources/read", {"uri": "file:///b"})
        asked.channel.answer(asked.round(3, "resources/read"), required(who=FORM))
        asked.channel.answer(asked.round(4, "resources/read"), {"seen": "b"})
        assert result.result(PATIENCE) == {"seen": "b"}


class TestResultTypes:
    @pytest.mark.parametrize("kind", ["task", "", 5, None, ["complete"]])
    def test_an_unknown_one_is_an_invalid_response(self, asked: Asked, kind: Any) -> None:
        result = asked.call()
        asked.channel.answer(asked.round(1), {**DONE, "resultType": kind})
        assert result.result(PATIENCE)["error_type"] == "invalid_response"

    def test_in_the_handshake_era_the_word_means_nothing(self, fake_clock: FakeClock) -> None:
        transport = FakeTransport()
        client = MCPClient("fake", transport, protocol="handshake", clock=fake_clock)
        assert client.connect()
        transport.channel().take_over("tools/call")
        future = client.submit_tool("echo")
        transport.channel().answer(transport.channel().wait_for("tools/call"), required())
        assert future.result(PATIENCE) == required()
        client.disconnect()


class TestWithoutAnAnswer:
    @pytest.mark.parametrize("submitted", [False, True])
    @pytest.mark.parametrize(
        ("request_", "complaint"),
        [
            (FORM, "elicitation/create, which it was not offered"),
            (SAMPLE, "sampling/createMessage, which it was not offered"),
            (ROOTS, "roots/list, which it was not offered"),
            ({"method": "ping"}, "ping, which it was not offered"),
            ({}, "expected a method and params"),
            ("who", "expected a method and params"),
        ],
    )
    def test_what_was_not_offered_fails_the_call(
        self, make: Make, request_: Any, complaint: str, submitted: bool
    ) -> None:
        asked = make()
        future = asked.begin(submitted=submitted)
        asked.channel.answer(asked.round(1), required(who=request_))
        error = future.exception(PATIENCE)
        assert isinstance(error, InvalidResponse)
        assert complaint in str(error)
        assert len(asked.channel.requests("tools/call")) == 1

    def test_a_mistake_of_user_code_fails_the_call_and_tells_nothing_of_it(self, make: Make) -> None:
        def fail(_: object) -> None:
            raise ZeroDivisionError("secret")

        asked = make(on_elicitation=fail)
        result = asked.call()
        asked.channel.answer(asked.round(1), required(who=FORM))
        assert result.result(PATIENCE) == {
            "error": "inputRequests.who: the client could not answer",
            "error_type": "input_missing",
            "delivery": "unknown",
        }


class Thinking:
    """A person who takes as long as the test wants."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    def __call__(self, request: Any) -> Any:
        self.asked.set()
        assert self.may_answer.wait(PATIENCE)
        return request.accept({"name": "Ann"})


@pytest.fixture
def person() -> Iterator[Thinking]:
    person = Thinking()
    yield person
    person.may_answer.set()


class TestTime:
    def test_thinking_does_not_count_and_each_round_has_the_whole_timeout(
        self, make: Make, person: Thinking, fake_clock: FakeClock
    ) -> None:
        asked = make(on_elicitation=person)
        result = asked.call(timeout=5.0)
        fake_clock.wait_for_waiter(fake_clock.monotonic() + 5.0)
        fake_clock.advance(4.0)
        asked.channel.answer(asked.round(1), required(who=FORM))
        assert person.asked.wait(PATIENCE)
        fake_clock.wait_for_waiter(fake_clock.monotonic() + 600.0)
        fake_clock.advance(300.0)
        person.may_answer.set()
        asked.round(2)
        fake_clock.wait_for_waiter(fake_clock.monotonic() + 5.0)
        fake_clock.advance(4.0)
        asked.channel.answer(asked.round(2), DONE)
        assert result.result(PATIENCE) == DONE

    @pytest.mark.parametrize("submitted", [False, True])
    def test_a_person_who_never_answers_fails_the_call(
        self, make: Make, person: Thinking, fake_clock: FakeClock, submitted: bool
    ) -> None:
        asked = make(on_elicitation=person, question_timeout=60.0)
        future = asked.begin(submitted=submitted)
        asked.channel.answer(asked.round(1), required(who=FORM))
        assert person.asked.wait(PATIENCE)
        fake_clock.wait_for_waiter(fake_clock.monotonic() + 60.0)
        fake_clock.advance(60.0)
        assert isinstance(future.exception(PATIENCE), InputMissing)

    @pytest.mark.parametrize("submitted", [False, True])
    def test_a_later_round_can_time_out(self, asked: Asked, fake_clock: FakeClock, submitted: bool) -> None:
        future = asked.begin(submitted=submitted, timeout=5.0)
        asked.channel.answer(asked.round(1), required("again"))
        asked.round(2)
        fake_clock.wait_for_waiter(fake_clock.monotonic() + 5.0)
        fake_clock.advance(5.0)
        assert isinstance(future.exception(PATIENCE), CallTimeout)


class TestCancelling:
    def test_and_during_a_later_round(self, asked: Asked) -> None:
        future = asked.client.submit_tool("echo")
        asked.channel.answer(asked.round(1), required("again"))
        request = asked.round(2)
        assert future.cancel()
        assert asked.channel.wait_for("notifications/cancelled")["params"]["requestId"] == request["id"]

    def test_a_scope_cancels_a_call_while_a_person_thinks(self, make: Make, person: Thinking) -> None:
        asked = make(on_elicitation=person)
        scope = CancelScope()

        def call() -> Json:
            with scope.entered():
                return asked.client.call_tool("echo")

        result = asked.threads.submit(call)
        asked.channel.answer(asked.round(1), required(who=FORM))
        assert person.asked.wait(PATIENCE)
        scope.cancel()
        assert result.result(PATIENCE)["error_type"] == "cancelled"


class TestCrashes:
    def test_a_round_that_was_written_to_a_lost_server_is_not_repeated(self, asked: Asked) -> None:
        future = asked.client.submit_tool("echo")
        asked.channel.answer(asked.round(1), required("again"))
        asked.round(2)
        asked.channel.end(exit_code=1)
        assert isinstance(future.exception(PATIENCE), ServerCrashed)

    def test_one_of_a_safe_tool_is(self, asked: Asked) -> None:
        future = asked.client.submit_tool("look")
        first = asked.channel
        first.answer(asked.round(1), required("again"))
        asked.round(2)
        first.end(exit_code=1)
        second = asked.transport.channel(2)
        request = second.wait_for("tools/call")
        assert request["params"]["requestState"] == "again"
        second.answer(request, DONE)
        assert future.result(PATIENCE) == DONE

    def test_answers_found_while_the_server_was_away_go_to_the_next_one(self, make: Make, person: Thinking) -> None:
        asked = make(on_elicitation=person)
        future = asked.client.submit_tool("echo")
        first = asked.channel
        first.answer(asked.round(1), required(who=FORM))
        assert person.asked.wait(PATIENCE)
        first.end(exit_code=1)
        first.wait_until_closing()
        person.may_answer.set()
        second = asked.transport.channel(2)
        request = second.wait_for("tools/call")
        assert request["params"]["inputResponses"] == {"who": NAMED}
        second.answer(request, DONE)
        assert future.result(PATIENCE) == DONE


def test_answers_that_are_told_twice_are_sent_once(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an interruption of the thread that ends the questions."""
    answered = SubmittedRequest._application_answered
    monkeypatch.setattr(
        SubmittedRequest, "_application_answered", lambda self, inputs: [answered(self, inputs) for _ in range(2)]
    )
    future = asked.client.submit_tool("echo")
    asked.channel.answer(asked.round(1), required(who=FORM))
    asked.channel.answer(asked.round(2), DONE)
    assert future.result(PATIENCE) == DONE
    assert len(asked.channel.requests("tools/call")) == 2


def test_an_exception_within_a_method_of_a_future_leaves_it_unlocked() -> None:
    """A signal handler may raise it. The thread that completes the future must not wait for its lock for ever."""
    files = (threading.__file__, _base.__file__)
    for place in itertools.count():
        future = CallFuture(Mock(), lambda _: False)
        where = raise_within(future.done, place, files)
        completing = threading.Thread(target=future._complete, args=(None, {}), daemon=True)
        completing.start()
        completing.join(PATIENCE)
        assert not completing.is_alive(), where
        if not where:
            break
    assert place


@pytest.mark.parametrize("is_posted", [False, True])
def test_an_interruption_when_all_is_answered_neither_loses_nor_repeats_the_next_round(is_posted: bool) -> None:
    class Ending(SubmittedRequest):
        def ended(self) -> None: ...

    tasks: list[Callable[[], None]] = []

    def interrupted(task: Callable[[], None]) -> None:
        if is_posted:
            tasks.append(task)
        raise KeyboardInterrupt

    context, exchange, inputs = Mock(), Mock(), Mock(error=None)
    request = Ending(context, exchange)
    request.under_way = inputs
    context.steps.submit = interrupted
    with pytest.raises(KeyboardInterrupt):
        request._application_answered(inputs)
    context.steps.submit = tasks.append
    # What ends the questions repeats its report.
    request._application_answered(inputs)
    for task in tasks:
        task()
    exchange.input_arrived.assert_called_once_with(inputs.answers)
