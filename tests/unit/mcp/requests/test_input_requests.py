"""The inputs of one round trip: asked for at the same time, and ended once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gaia.mcp.errors import CallCancelled, InputMissing, InvalidResponse
from gaia.mcp.protocol.rounds import InputRequest
from gaia.mcp.requests.input_requests import InputRequests
from gaia.mcp.supervision.callbacks import CallbackPool
from gaia.mcp.supervision.client_features import ClientFeatures
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.runtime.deadlines import deadlines_of
from gaia.testing import FakeClock
from tests.unit.mcp.supervision.conftest import FORM, HELLO, LINK, Person
from tests.waiting import PATIENCE, wait_until

TIMEOUT = 600.0
FORM_REQUEST = InputRequest("elicitation/create", FORM)
ANSWER = {"action": "accept", "content": {"name": "Ann"}}

Ask = Callable[..., InputRequests]


@pytest.fixture
def pool() -> Iterator[CallbackPool]:
    pool = CallbackPool("test", "questions")
    yield pool
    pool.close()


@pytest.fixture
def server_requests(pool: CallbackPool, person: Person, fake_clock: FakeClock) -> ServerRequests:
    """A person answers forms; a user rejects sampling."""
    features = ClientFeatures(on_elicitation=person, on_sampling=lambda _: None)
    return ServerRequests("fake", features, pool, fake_clock, TIMEOUT)


@pytest.fixture
def done() -> list[InputRequests]:
    """Those that have ended."""
    return []


@pytest.fixture
def ask(server_requests: ServerRequests, fake_clock: FakeClock, done: list[InputRequests]) -> Iterator[Ask]:
    deadlines = deadlines_of(fake_clock)
    deadlines.hold(fake_clock)

    def started(**requests: InputRequest) -> InputRequests:
        inputs = InputRequests(server_requests, requests, done.append)
        inputs.start()
        deadlines.watch(inputs)
        return inputs

    yield started
    deadlines.let_go(fake_clock)
    deadlines.wait_idle()


def wait_for(inputs: InputRequests, done: list[InputRequests]) -> None:
    assert wait_until(lambda: inputs in done)


class TestAnswers:
    def test_all_are_asked_for_at_once_and_given_together(
        self, ask: Ask, done: list[InputRequests], person: Person
    ) -> None:
        inputs = ask(a=FORM_REQUEST, b=FORM_REQUEST)
        for _ in range(2):
            person.wait_until_asked()
        assert not inputs.ended
        person.may_answer.set()
        wait_for(inputs, done)
        assert (inputs.error, inputs.answers) == (None, {"a": ANSWER, "b": ANSWER})

    def test_where_nothing_is_required_it_ends_at_once(self, ask: Ask, done: list[InputRequests]) -> None:
        inputs = ask()
        wait_for(inputs, done)
        assert (inputs.error, inputs.answers, done) == (None, {}, [inputs])


class TestFailure:
    def test_nothing_is_asked_if_one_was_not_offered(self, ask: Ask, person: Person) -> None:
        inputs = ask(a=FORM_REQUEST, **{"k" * 50: InputRequest("roots/" + "x" * 50, {})})
        assert isinstance(inputs.error, InvalidResponse)
        assert inputs.error.message.startswith(f"inputRequests.{'k' * 40}: the server asks for roots/{'x' * 34}, which")
        assert inputs.error.delivery == "unknown"
        assert person.requests == []

    @pytest.mark.parametrize(
        ("request_", "error"),
        [
            (InputRequest("sampling/createMessage", HELLO), InputMissing),
            (InputRequest("elicitation/create", LINK), InvalidResponse),
        ],
    )
    def test_the_first_that_is_refused_ends_all(
        self, ask: Ask, done: list[InputRequests], person: Person, request_: InputRequest, error: type[Exception]
    ) -> None:
        inputs = ask(a=FORM_REQUEST, b=request_)
        wait_for(inputs, done)
        assert isinstance(inputs.error, error)
        assert inputs.error.message.startswith("inputRequests.b: ")
        assert inputs.error.delivery == "unknown"
        person.may_answer.set()

    def test_one_that_nobody_answers_ends_at_its_deadline(
        self, ask: Ask, done: list[InputRequests], person: Person, fake_clock: FakeClock
    ) -> None:
        inputs = ask(a=FORM_REQUEST)
        person.wait_until_asked()
        assert inputs.deadline == fake_clock.monotonic() + TIMEOUT
        fake_clock.wait_for_waiter(inputs.deadline)
        assert not inputs.ended
        fake_clock.advance(TIMEOUT)
        wait_for(inputs, done)
        assert isinstance(inputs.error, InputMissing)
        assert person.withdrawn.wait(PATIENCE)

    def test_a_client_that_is_disconnected_cancels_them(
        self, ask: Ask, done: list[InputRequests], person: Person, server_requests: ServerRequests
    ) -> None:
        inputs = ask(a=FORM_REQUEST)
        person.wait_until_asked()
        server_requests.withdraw_all()
        wait_for(inputs, done)
        assert isinstance(inputs.error, CallCancelled)
        assert person.withdrawn.wait(PATIENCE)


class TestEnd:
    def test_what_was_given_up_is_not_answered_any_more(self, ask: Ask, person: Person, pool: CallbackPool) -> None:
        inputs = ask(a=FORM_REQUEST)
        person.wait_until_asked()
        error = CallCancelled("no longer wanted")
        assert inputs.cancel(error)
        assert person.withdrawn.wait(PATIENCE)
        person.may_answer.set()
        pool.close()
        assert (inputs.error, inputs.answers) == (error, {})
        assert not inputs.cancel(CallCancelled("again"))
        assert inputs.error is error

    def test_answers_that_are_all_there_cannot_be_given_up(
        self, ask: Ask, done: list[InputRequests], person: Person
    ) -> None:
        person.may_answer.set()
        inputs = ask(a=FORM_REQUEST)
        wait_for(inputs, done)
        assert not inputs.cancel(CallCancelled("too late"))
        inputs.expire()
        assert (inputs.error, inputs.answers) == (None, {"a": ANSWER})

    def test_an_end_that_is_interrupted_is_told_again(self, server_requests: ServerRequests) -> None:
        told: list[InputRequests] = []

        def on_done(inputs: InputRequests) -> None:
            told.append(inputs)
            if len(told) == 1:
                raise KeyboardInterrupt

        inputs = InputRequests(server_requests, {}, on_done)
        with pytest.raises(KeyboardInterrupt):
            inputs.start()
        assert (told, inputs.ended, inputs.error) == ([inputs, inputs], True, None)
