"""What becomes of a call is the same for every face, over every wire, in both eras."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.contract.conftest import Situation
from tests.contract.faces import Outcome
from tests.waiting import wait_until


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
        face = situation.connect()
        outcome = face.call("hold", timeout=0.05)
        assert (outcome.error_type, outcome.delivery) == ("timeout", "unknown")
        call = situation.server.wait_for_call("hold")
        assert wait_until(lambda: call.cancelled)
        assert face.call("echo", {"text": "next"}) == Outcome("next")

    @pytest.mark.needs("supervision", "cancels")
    def test_a_cancelled_call_ends_at_once_and_the_server_is_told(self, situation: Situation) -> None:
        face = situation.connect()
        pending = face.begin("hold")
        call = situation.server.wait_for_call("hold")
        pending.cancel()
        outcome = pending.outcome()
        assert outcome.error_type == "cancelled"
        assert outcome.delivery in ("unknown", None)
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
        assert situation.server.generations("echo") == [1, 2]

    @pytest.mark.needs("supervision")
    def test_a_lost_call_of_a_safe_tool_is_repeated_once(self, situation: Situation) -> None:
        face = situation.connect()
        situation.server.crash(tool="look")
        assert face.call("look", {"text": "again"}) == Outcome("again")
        assert situation.server.generations("look") == [1, 2]
        situation.server.crash(tool="look", times=2)
        outcome = face.call("look", {"text": "lost"})
        assert (outcome.error_type, outcome.delivery) == ("server_crashed", "unknown")
        assert situation.server.generations("look") == [1, 2, 2, 3]

    @pytest.mark.needs("supervision")
    def test_a_call_while_the_server_is_down_waits_for_the_next_one(self, situation: Situation) -> None:
        face = situation.connect()
        assert face.call("echo", {"text": "first"}) == Outcome("first")
        situation.server.crash()
        # The tool is safe: the call may still be written to what is left of the first process.
        assert face.call("look", {"text": "second"}) == Outcome("second")
        assert situation.server.generations("look") == [2]

    @pytest.mark.needs("supervision", "own_server")
    def test_a_server_that_is_not_started_again_has_received_nothing(self, situation: Situation) -> None:
        face = situation.connect(restart={"restart": "never"})
        situation.server.crash(tool="echo")
        assert face.call("echo").error_type == "server_crashed"
        outcome = face.call("echo", {"text": "late"})
        assert (outcome.error_type, outcome.delivery) == ("server_unavailable", "not_sent")
        assert situation.server.texts("echo") == [None]

    @pytest.mark.needs("supervision")
    def test_a_call_whose_server_is_lost_while_a_person_answers(self, situation: Situation) -> None:
        """It has acted on the first round; whatever becomes of the next one, that is not taken back."""

        def on_question(request: Any) -> Any:
            situation.server.crash()
            return request.accept({"name": "Ann"})

        face = situation.connect(on_question, restart={"restart": "never"})
        outcome = face.call("ask")
        if situation.is_http and situation.era == "stateless":
            # No connection was lost: the next round goes to whatever answers at the URL.
            assert outcome == Outcome("Ann")
        else:
            assert outcome.error_type in ("server_crashed", "server_unavailable")
            assert outcome.delivery == "unknown"


class TestPressure:
    @pytest.mark.needs("supervision")
    def test_too_many_calls_are_refused_and_the_others_go_on(self, situation: Situation) -> None:
        # Requests of the client itself take places, too.
        face = situation.connect(maxPending=4)
        pending = [face.begin("hold") for _ in range(6)]
        taken = situation.server.generations
        assert wait_until(lambda: len(taken("hold")) + sum(one.done for one in pending) == 6)
        refused = [one.outcome() for one in pending if one.done]
        assert 2 <= len(refused) < 6
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
