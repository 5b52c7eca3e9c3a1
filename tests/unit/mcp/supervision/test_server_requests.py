"""What servers ask while they run: who answers, on which thread, and when nobody does."""

from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from gaia.mcp.supervision.client_features import ClientFeatures, Roots
from gaia.mcp.supervision.events import ElicitationCompleted
from tests.fake_transport import FakeChannel
from tests.supervised import Supervised
from tests.unit.mcp.supervision.conftest import FORM, HELLO, LINK, Person
from tests.waiting import PATIENCE

Offer = Callable[..., FakeChannel]


@pytest.fixture
def offer(supervise: Callable[..., Supervised]) -> Offer:
    """Start a server to which these features are offered."""

    def start(**features: Any) -> FakeChannel:
        server = supervise(features=ClientFeatures(**features)).started()
        channel = server.transport.channel()
        channel.supervised = server  # type: ignore[attr-defined]
        return channel

    return start


@pytest.fixture
def asking(offer: Offer, person: Person) -> FakeChannel:
    """The channel of a server that has asked the person, who thinks."""
    channel = offer(on_elicitation=person)
    channel.ask("elicitation/create", FORM)
    person.wait_until_asked()
    return channel


def server_of(channel: FakeChannel) -> Supervised:
    server: Supervised = channel.supervised  # type: ignore[attr-defined]
    return server


def error_of(channel: FakeChannel, identifier: int | str = "q-1") -> tuple[int, str]:
    error = channel.wait_for_response(identifier)["error"]
    return error["code"], error["message"]


class TestAnswering:
    def test_a_form_is_answered_by_user_code_on_a_thread_of_its_own(self, offer: Offer, person: Person) -> None:
        channel = offer(on_elicitation=person)
        channel.ask("elicitation/create", FORM)
        person.may_answer.set()
        assert channel.wait_for_response()["result"] == {"action": "accept", "content": {"name": "Ann"}}
        assert person.threads == ["mcp-test-server-requests-1"]
        assert person.requests[0].server == "fake"

    def test_calls_and_pings_go_on_while_a_person_thinks(self, asking: FakeChannel, person: Person) -> None:
        asking.ask("ping", identifier="ping")
        assert asking.wait_for_response("ping")["result"] == {}
        assert server_of(asking).is_answered_by(1)
        assert asking.responses == [{"jsonrpc": "2.0", "id": "ping", "result": {}}]

    def test_several_questions_wait_at_once(self, offer: Offer, person: Person) -> None:
        channel = offer(on_elicitation=person)
        for number in range(3):
            channel.ask("elicitation/create", FORM, number)
            person.wait_until_asked()
        person.may_answer.set()
        for number in range(3):
            assert channel.wait_for_response(number)["result"]["action"] == "accept"

    def test_a_model_answers(self, offer: Offer) -> None:
        channel = offer(on_sampling=lambda request: request.answer(f"{request.max_tokens}", model="small"))
        channel.ask("sampling/createMessage", HELLO)
        assert channel.wait_for_response()["result"]["content"] == {"type": "text", "text": "10"}

    def test_roots_may_come_from_a_function(self, offer: Offer) -> None:
        channel = offer(roots=Roots(lambda: ["file:///now"]))
        channel.ask("roots/list")
        assert channel.wait_for_response()["result"] == {"roots": [{"uri": "file:///now"}]}

    def test_a_url_is_handed_to_the_user_and_nothing_else_is_done_with_it(self, offer: Offer) -> None:
        channel = offer(on_elicitation=lambda request: request.accept(), elicitation_modes=("url",))
        channel.ask("elicitation/create", LINK)
        assert channel.wait_for_response()["result"] == {"action": "accept"}


class TestRefusing:
    @pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list", "nonsense"])
    def test_what_is_not_offered_is_not_found(self, offer: Offer, method: str) -> None:
        channel = offer()
        channel.ask(method, FORM)
        assert error_of(channel) == (METHOD_NOT_FOUND, f"the client does not offer {method}")

    def test_a_mode_that_is_not_offered_is_an_invalid_parameter(self, offer: Offer, person: Person) -> None:
        channel = offer(on_elicitation=person)
        channel.ask("elicitation/create", LINK)
        assert error_of(channel)[0] == INVALID_PARAMS
        assert person.requests == []

    def test_so_are_tools_that_are_not_offered(self, offer: Offer) -> None:
        channel = offer(on_sampling=lambda _: None)
        channel.ask("sampling/createMessage", {**HELLO, "tools": []})
        assert error_of(channel)[0] == INVALID_PARAMS

    def test_a_rejection_by_the_user_has_a_code_of_its_own(self, offer: Offer) -> None:
        channel = offer(on_sampling=lambda _: None)
        channel.ask("sampling/createMessage", HELLO)
        assert error_of(channel) == (-1, "User rejected sampling request")

    @pytest.mark.parametrize("mistake", [ZeroDivisionError("secret"), SystemExit("secret")])
    def test_exceptions_of_user_code_stay_inside(
        self, offer: Offer, mistake: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(_: object) -> None:
            raise mistake

        channel = offer(on_elicitation=fail)
        channel.ask("elicitation/create", FORM)
        assert error_of(channel) == (INTERNAL_ERROR, "the client could not answer")
        server_of(channel).server_request_threads.close()
        assert "secret" in caplog.text

    @pytest.mark.parametrize("answer", ["yes", {"action": "accept", "content": {"name": 5}}, {"action": "maybe"}])
    def test_so_do_answers_that_make_no_sense(self, offer: Offer, answer: Any) -> None:
        channel = offer(on_elicitation=lambda _: answer)
        channel.ask("elicitation/create", FORM)
        assert error_of(channel) == (INTERNAL_ERROR, "the client could not answer")

    def test_so_do_answers_that_are_no_json(self, offer: Offer) -> None:
        channel = offer(on_sampling=lambda request: {**request.answer("", model="m"), "extra": object()})
        channel.ask("sampling/createMessage", HELLO)
        assert error_of(channel) == (INTERNAL_ERROR, "the client could not answer")

    def test_more_questions_than_anybody_can_answer_are_refused(self, offer: Offer, person: Person) -> None:
        channel = offer(on_elicitation=person)
        for number in range(101):
            channel.ask("elicitation/create", FORM, number)
        assert error_of(channel, 100) == (INTERNAL_ERROR, "100 requests wait already; ask again later")
        person.may_answer.set()
        assert channel.wait_for_response(99)["result"]["action"] == "accept"

    def test_questions_that_are_too_long_together_are_refused(self, offer: Offer, person: Person) -> None:
        channel = offer(on_elicitation=person, on_sampling=lambda request: request.answer("", model="m"))
        for number in range(4):
            channel.ask("elicitation/create", {**FORM, "message": "?" * 10_000_000}, number)
        assert error_of(channel, 3) == (
            INTERNAL_ERROR,
            "the request is too long, together with those that wait already",
        )
        person.may_answer.set()
        assert channel.wait_for_response(2)["result"]["action"] == "accept"

    def test_questions_that_were_withdrawn_count_until_user_code_has_returned(
        self, offer: Offer, person: Person
    ) -> None:
        channel = offer(on_elicitation=person)
        for number in range(100):
            channel.ask("elicitation/create", FORM, number)
        for _ in range(4):
            person.wait_until_asked()
        for number in range(100):
            channel.notify("notifications/cancelled", {"requestId": number})
        channel.ask("elicitation/create", FORM, "one more")
        assert error_of(channel, "one more")[0] == INTERNAL_ERROR
        person.may_answer.set()
        server_of(channel).server_request_threads.close()
        channel.ask("elicitation/create", FORM, "later")
        assert channel.wait_for_response("later")["result"]["action"] == "accept"

    def test_an_id_that_is_in_use_is_refused(self, asking: FakeChannel, person: Person) -> None:
        asking.ask("elicitation/create", FORM)
        assert error_of(asking)[0] == INVALID_REQUEST


class TestNobodyWaits:
    def test_a_question_that_nobody_answers_expires(self, asking: FakeChannel, person: Person) -> None:
        server_of(asking).pass_time(600.0)
        assert error_of(asking) == (INTERNAL_ERROR, "not answered within 600 s")
        assert person.withdrawn.wait(PATIENCE)

    def test_a_question_that_the_server_cancels_is_not_answered(self, asking: FakeChannel, person: Person) -> None:
        asking.notify("notifications/cancelled", {"requestId": "q-1"})
        assert person.withdrawn.wait(PATIENCE)
        person.may_answer.set()
        server_of(asking).server_request_threads.close()
        assert asking.responses == []

    @pytest.mark.parametrize("identifier", ["q-2", 1, None, [1], {}])
    def test_cancelling_what_was_not_asked_changes_nothing(
        self, asking: FakeChannel, person: Person, identifier: Any
    ) -> None:
        asking.notify("notifications/cancelled", {"requestId": identifier})
        person.may_answer.set()
        assert asking.wait_for_response()["result"]["action"] == "accept"

    def test_an_answer_for_a_server_that_crashed_is_dropped(self, asking: FakeChannel, person: Person) -> None:
        server = server_of(asking)
        asking.end(exit_code=1)
        assert person.withdrawn.wait(PATIENCE)
        person.may_answer.set()
        assert server.transport.channel(2).wait_for("initialize")
        server.server_request_threads.close()
        assert asking.responses == server.transport.channel(2).responses == []

    def test_so_is_one_for_a_server_that_was_disconnected(self, asking: FakeChannel, person: Person) -> None:
        server_of(asking).supervisor.stop()
        assert person.withdrawn.wait(PATIENCE)
        person.may_answer.set()
        server_of(asking).server_request_threads.close()
        assert asking.responses == []


class TestUrls:
    def test_the_end_of_what_was_to_be_done_at_a_url_is_an_event(self, offer: Offer) -> None:
        channel = offer(on_elicitation=lambda request: request.accept(), elicitation_modes=("url",))
        channel.ask("elicitation/create", LINK)
        channel.wait_for_response()
        channel.notify("notifications/elicitation/complete", {"elicitationId": "e-1"})
        assert server_of(channel).wait_for(ElicitationCompleted) == ElicitationCompleted("fake", "e-1")

    @pytest.mark.parametrize("params", [{"elicitationId": "e-2"}, {"elicitationId": 5}, {}, {"elicitationId": []}])
    def test_of_unknown_ones_nothing_is_said(self, offer: Offer, params: Any) -> None:
        channel = offer(on_elicitation=lambda request: request.accept(), elicitation_modes=("url",))
        channel.ask("elicitation/create", LINK)
        channel.wait_for_response()
        channel.notify("notifications/elicitation/complete", params)
        server_of(channel).settle()
        assert not [event for event in server_of(channel).events if isinstance(event, ElicitationCompleted)]
