"""What becomes of a call is the same for every face, over every wire, in both eras."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gaia.runtime import deadlines
from tests.contract.conftest import Situation
from tests.contract.faces import Face, Outcome, Pending
from tests.waiting import PATIENCE, wait_until


class TestAnswers:
    def test_a_result_and_both_kinds_of_error(self, situation: Situation) -> None:
        face = situation.connect()
        assert face.call("echo", {"text": "höre"}) == Outcome("höre")
        assert face.call("fail", {"text": "x"}) == Outcome("failed: x", is_tool_error=True)
        refused = face.call("refuse")
        assert (refused.error_type, refused.code, refused.delivery) == ("jsonrpc", -32050, "unknown")
        assert "refused" in refused.message
        assert [call.tool for call in situation.server.calls] == ["echo", "fail", "refuse"]

    @pytest.mark.needs("supervision")
    def test_calls_at_once_get_their_own_answers(self, situation: Situation) -> None:
        face = situation.connect()
        texts = [str(number) for number in range(20)]
        pending = [face.begin("echo", {"text": text}) for text in texts]
        assert [one.outcome().text for one in pending] == texts
        assert sorted(situation.server.texts("echo")) == sorted(texts)

    def test_a_denied_tool_is_neither_listed_nor_called(self, situation: Situation) -> None:
        face = situation.connect(disabledTools=["den*"])
        assert "echo" in face.tools()
        assert "denied" not in face.tools()
        assert face.call("denied", {"text": "x"}).error_type in ("denied", "unknown_tool", "jsonrpc")
        assert situation.server.calls == []

    @pytest.mark.needs("reports_progress")
    def test_progress_is_reported_in_order_before_the_result(self, situation: Situation) -> None:
        face = situation.connect()
        told: list[Any] = []
        outcome = face.call("count", {"to": 3}, on_progress=lambda *progress: told.append(progress))
        assert outcome == Outcome("3")
        assert wait_until(lambda: len(told) == 3)
        assert told == [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3")]


class TestQuestions:
    @pytest.mark.needs("supervision")
    def test_a_person_answers_one_question_and_two(self, situation: Situation) -> None:
        names = {"Who?": "Cleo", "First?": "Ann", "Second?": "Ben"}
        face = situation.connect(lambda request: request.accept({"name": names[request.message]}))
        assert face.call("ask") == Outcome("Cleo")
        assert face.call("ask_twice") == Outcome("Ann and Ben")

    @pytest.mark.needs("supervision")
    def test_a_person_declines(self, situation: Situation) -> None:
        face = situation.connect(lambda request: request.decline())
        assert face.call("ask") == Outcome("decline")


class TestEnds:
    @pytest.mark.needs("supervision", "takes_timeouts")
    def test_a_deadline_ends_the_call_and_tells_the_server(self, situation: Situation) -> None:
        face, received = situation.connect(), situation.server.generations
        # On a busy machine the first deadline may pass before the server has received the call.
        for timeout in (0.05, 1.0, 5.0):
            outcome = face.call("hold", timeout=timeout)
            assert outcome.error_type == "timeout"
            if outcome.delivery == "unknown" and wait_until(lambda: received("hold") != [], 0.5):
                break
        assert outcome.delivery == "unknown"
        call = situation.server.wait_for_call("hold")
        assert wait_until(lambda: call.cancelled)
        assert face.call("echo", {"text": "next"}) == Outcome("next")

    @pytest.mark.needs("supervision", "cancellation")
    def test_a_cancelled_call_ends_at_once_and_the_server_is_told(self, situation: Situation) -> None:
        face = situation.connect()
        pending = face.begin("hold")
        call = situation.server.wait_for_call("hold")
        pending.cancel()
        outcome = pending.outcome()
        assert outcome.error_type == "cancelled"
        assert outcome.delivery == (None if face.cancels_quietly else "unknown")
        assert wait_until(lambda: call.cancelled)
        assert face.call("echo", {"text": "next"}) == Outcome("next")

    @pytest.mark.needs("supervision")
    def test_disconnecting_cancels_calls_under_way(self, situation: Situation) -> None:
        face = situation.connect()
        pending = face.begin("hold")
        situation.server.wait_for_call("hold")
        face.close()
        assert (pending.outcome().error_type, pending.outcome().delivery) == ("cancelled", "unknown")

    @pytest.mark.needs("supervision", "drains")
    def test_draining_lets_calls_under_way_end_and_takes_no_more(self, situation: Situation) -> None:
        face = situation.connect()
        pending = face.begin("hold")
        situation.server.wait_for_call("hold")
        draining = threading.Thread(target=face.drain, args=(60.0,))
        draining.start()
        # Until draining has begun, further calls are taken.
        late = Outcome("early")
        while late.text == "early":
            late = face.call("echo", {"text": "early"})
        assert (late.error_type, late.delivery) == ("not_connected", "not_sent")
        situation.server.released.set()
        assert pending.outcome() == Outcome("released")
        draining.join()


class TestLosses:
    @pytest.mark.needs("supervision")
    @pytest.mark.parametrize("after", [False, True], ids=["before_running", "after_running"])
    def test_a_lost_call_may_have_been_acted_on_and_is_not_repeated(self, situation: Situation, after: bool) -> None:
        face = situation.connect()
        situation.server.crash(tool="echo", after=after)
        outcome = face.call("echo", {"text": "lost"})
        assert (outcome.error_type, outcome.delivery) == ("server_crashed", "unknown")
        assert face.call("echo", {"text": "next"}) == Outcome("next")
        assert situation.server.texts("echo") == ["lost", "next"]
        situation.check_starts("echo", [1, 2])

    @pytest.mark.needs("supervision")
    def test_a_lost_call_of_a_safe_tool_is_repeated_once(self, situation: Situation) -> None:
        face = situation.connect()
        situation.server.crash(tool="look")
        assert face.call("look", {"text": "again"}) == Outcome("again")
        situation.check_starts("look", [1, 2])
        situation.server.crash(tool="look", times=2)
        outcome = face.call("look", {"text": "lost"})
        assert (outcome.error_type, outcome.delivery) == ("server_crashed", "unknown")
        situation.check_starts("look", [1, 2, 2, 3])

    @pytest.mark.needs("supervision")
    def test_a_call_while_the_server_is_down_waits_for_the_next_one(self, situation: Situation) -> None:
        face = situation.connect()
        assert face.call("echo", {"text": "first"}) == Outcome("first")
        situation.server.crash()
        # The tool is safe: the call may still be written to what is left of the first process.
        assert face.call("look", {"text": "second"}) == Outcome("second")
        situation.check_starts("look", [2])

    @pytest.mark.needs("supervision", "own_server")
    def test_a_server_that_is_not_started_again_has_received_nothing(self, situation: Situation) -> None:
        face = situation.connect(restart={"restart": "never"})
        situation.server.crash(tool="echo")
        assert face.call("echo").error_type == "server_crashed"
        outcome = face.call("echo", {"text": "late"})
        assert (outcome.error_type, outcome.delivery) == ("server_unavailable", "not_sent")
        assert situation.server.texts("echo") == [None]


def deliveries(situation: Situation, face: Face) -> set[str]:
    """What may be said of a call that waits for its server: it may have been sent to a gateway that lies between."""
    return {"not_sent", "unknown"} if face.is_gateway or situation.wire == "placed" else {"not_sent"}


def lose_for_long(situation: Situation) -> None:
    """The server ends, and does not start the next time; the next attempt is far away."""
    situation.server.fail_starts()
    starts = situation.server.starts
    situation.server.crash()
    assert wait_until(lambda: situation.server.starts > starts)


FAR = {"initialDelay": 1000, "maxDelay": 1000}
"""A restart policy that tries once at once, and then not for long."""


@pytest.mark.needs("supervision", "own_server")
class TestWaitingForAServer:
    """Calls that no server has received."""

    @pytest.mark.needs("takes_timeouts")
    def test_the_deadline_passes(self, situation: Situation) -> None:
        face = situation.connect(restart=FAR)
        assert face.call("echo", {"text": "first"}) == Outcome("first")
        lose_for_long(situation)
        outcome = face.call("echo", {"text": "late"}, timeout=0.05)
        assert outcome.error_type == "timeout"
        assert outcome.delivery in deliveries(situation, face)
        assert situation.server.texts("echo") == ["first"]

    @pytest.mark.needs("cancellation")
    def test_it_is_cancelled(self, situation: Situation) -> None:
        face = situation.connect(restart=FAR)
        assert face.call("echo", {"text": "first"}) == Outcome("first")
        lose_for_long(situation)
        pending = face.begin("echo", {"text": "late"})
        pending.cancel()
        outcome = pending.outcome()
        assert outcome.error_type == "cancelled"
        assert outcome.delivery in ((None,) if face.cancels_quietly else ("not_sent", "unknown")[: 1 + face.is_gateway])

    def test_the_client_is_disconnected(self, situation: Situation) -> None:
        face = situation.connect(restart=FAR)
        assert face.call("echo", {"text": "first"}) == Outcome("first")
        lose_for_long(situation)
        pending = face.begin("echo", {"text": "late"})
        face.close()
        try:
            outcome = pending.outcome()
        except RuntimeError:
            return  # It came after the end.
        assert outcome.error_type in ("cancelled", "not_connected", "server_unavailable")
        assert outcome.delivery in deliveries(situation, face)


@pytest.mark.needs("supervision", "own_server", "stateless")
class TestBetweenRounds:
    """The server has acted on the first round, has asked, and is lost: whatever comes next, that is not taken back."""

    def asked(self, situation: Situation, **keys: Any) -> tuple[Face, threading.Event]:
        """A face, and what is set when a person has been asked, the server lost and the answer given."""
        answered = threading.Event()

        def on_question(request: Any) -> Any:
            lose_for_long(situation)
            answered.set()
            return request.accept({"name": "Ann"})

        return situation.connect(on_question, **{"restart": FAR, **keys}), answered

    @pytest.mark.needs("takes_timeouts")
    def test_the_deadline_passes(self, situation: Situation) -> None:
        face, answered = self.asked(situation)
        outcome = face.call("ask", timeout=0.5)
        assert answered.is_set()
        assert (outcome.error_type, outcome.delivery) == ("timeout", "unknown")

    @pytest.mark.needs("cancellation")
    def test_it_is_cancelled(self, situation: Situation) -> None:
        face, answered = self.asked(situation)
        pending = face.begin("ask")
        assert answered.wait(PATIENCE)
        pending.cancel()
        outcome = pending.outcome()
        assert (outcome.error_type, outcome.delivery) == ("cancelled", None if face.cancels_quietly else "unknown")

    def test_the_client_is_disconnected(self, situation: Situation) -> None:
        face, answered = self.asked(situation)
        pending = face.begin("ask")
        assert answered.wait(PATIENCE)
        face.close()
        assert (pending.outcome().error_type, pending.outcome().delivery) == ("cancelled", "unknown")

    def test_the_server_is_not_started_again(self, situation: Situation) -> None:
        def on_question(request: Any) -> Any:
            situation.server.crash()
            return request.accept({"name": "Ann"})

        face = situation.connect(on_question, restart={"restart": "never"})
        outcome = face.call("ask")
        # The next round may still be written to what is left of the process.
        assert outcome.error_type in ("server_unavailable", "server_crashed")
        assert outcome.delivery == "unknown"

    def test_too_many_calls_wait(self, situation: Situation) -> None:
        waiting: list[Pending] = []

        def on_question(request: Any) -> Any:
            lose_for_long(situation)
            waiting.extend(face.begin("echo") for _ in range(5))
            assert wait_until(lambda: any(one.done for one in waiting))
            return request.accept({"name": "Ann"})

        face = situation.connect(on_question, restart=FAR, maxPending=3)
        outcome = face.call("ask")
        assert (outcome.error_type, outcome.delivery) == ("overloaded", "unknown")
        face.close()
        assert {one.outcome().error_type for one in waiting} == {"overloaded", "cancelled"}


@pytest.mark.needs("supervision", "cancellation")
@pytest.mark.parametrize("how", ["cancelled", "disconnected"])
def test_a_call_that_ends_while_a_person_is_asked(
    situation: Situation, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Disconnecting does not wait for the deadline of the question, which is minutes away.
    monkeypatch.setattr(deadlines, "_JOIN_SECONDS", 10 * PATIENCE)
    asked, may_answer = threading.Event(), threading.Event()

    def on_question(request: Any) -> Any:
        asked.set()
        assert may_answer.wait(PATIENCE)
        return request.accept({"name": "Ann"})

    face = situation.connect(on_question)
    pending = face.begin("ask")
    assert asked.wait(PATIENCE)
    # Closing waits for the application's callback, for some seconds.
    ending = threading.Thread(target=pending.cancel if how == "cancelled" else face.close)
    ending.start()
    outcome = pending.outcome()
    may_answer.set()
    ending.join()
    is_quiet = how == "cancelled" and face.cancels_quietly
    assert (outcome.error_type, outcome.delivery) == ("cancelled", None if is_quiet else "unknown")


@pytest.mark.needs("supervision", "handshake")
def test_a_question_of_a_server_that_is_lost_meanwhile(situation: Situation) -> None:
    def on_question(request: Any) -> Any:
        situation.server.crash()
        return request.accept({"name": "Ann"})

    face = situation.connect(on_question)
    outcome = face.call("ask")
    assert (outcome.error_type, outcome.delivery) == ("server_crashed", "unknown")
    situation.check_starts("ask", [1])


class TestPressure:
    @pytest.mark.needs("supervision")
    def test_too_many_calls_are_refused_and_the_others_go_on(self, situation: Situation) -> None:
        # Requests of the client itself take places, too.
        face = situation.connect(maxPending=4)
        # Two replicas have 4 calls each, and 4 wait for either.
        count = 14 if situation.wire == "replicas" else 6
        pending = [face.begin("hold") for _ in range(count)]
        taken = situation.server.generations
        assert wait_until(
            lambda: (
                len(taken("hold")) + sum(one.done for one in pending)
                >= count - (4 if situation.wire == "replicas" else 0)
            )
        )
        refused = [one.outcome() for one in pending if one.done]
        assert 2 <= len(refused) < count
        assert {(one.error_type, one.delivery) for one in refused} == {("overloaded", "not_sent")}
        waiting = [one for one in pending if not one.done]
        situation.server.released.set()
        assert [one.outcome() for one in waiting] == [Outcome("released")] * len(waiting)

    @pytest.mark.needs("supervision")
    def test_a_tool_that_comes_later_can_be_called(self, situation: Situation) -> None:
        face = situation.connect()
        assert "new" not in face.tools()

        def new() -> str:
            return "new"

        situation.server.tools.add(new)
        assert wait_until(lambda: "new" in face.tools())
        assert face.call("new") == Outcome("new")
