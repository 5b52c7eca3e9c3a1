"""Questions of servers while a command waits: who reads from the terminal, and how long requests may take."""

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from gaia.cli import terminal, time_limit
from gaia.cli.options import Options
from gaia.cli.questions import Questions
from gaia.mcp.client import ElicitationAnswer, ElicitationRequest
from gaia.mcp.errors import CallCancelled, CallTimeout
from gaia.runtime.cancellation import current_scope
from tests.waiting import PATIENCE

REQUEST = ElicitationRequest(server="it", message="Who?\n\x1b[2J", requested_schema={})


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> Questions:
    """With a person at the terminal."""
    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    return Questions(Options())


class TestWithAPerson:
    def test_the_main_thread_asks_and_the_server_gets_the_answer(
        self, questions: Questions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked_by = []

        def fill_in(request: ElicitationRequest) -> ElicitationAnswer:
            asked_by.append(threading.current_thread())
            return request.accept({})

        monkeypatch.setattr("gaia.cli.questions.fill_in", fill_in)
        pauses = []

        @contextlib.contextmanager
        def quiet() -> Iterator[None]:
            pauses.append("begin")
            yield
            pauses.append("end")

        answer = questions.run(lambda _: questions.on_elicitation(REQUEST), limit=PATIENCE, quiet=quiet)

        assert answer == ElicitationAnswer("accept", {})
        assert asked_by == [threading.main_thread()]
        assert pauses == ["begin", "end"]

    def test_the_request_may_take_its_time_and_that_of_the_person(
        self, questions: Questions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert questions.run(lambda seconds: seconds, limit=30.0) == 630.0
        monkeypatch.setattr(time_limit, "remaining", lambda: 5.0)
        assert questions.run(lambda seconds: seconds, limit=30.0) == 605.0

    def test_a_request_without_an_answer_is_cancelled_when_its_time_has_passed(self, questions: Questions) -> None:
        def request(_: float | None) -> str:
            cancelled = threading.Event()
            scope = current_scope()
            assert scope is not None
            scope.on_cancel(cancelled.set)
            assert cancelled.wait(PATIENCE)
            raise CallCancelled("cancelled together with the work that it was part of")

        with pytest.raises(CallTimeout, match=r"not answered within 0\.01 s"):
            questions.run(request, limit=0.01)
        assert questions.timed_out

    def test_progress_sets_the_end_back(self, questions: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 0.0
        looked = threading.Semaphore(0)

        def monotonic() -> float:
            if threading.current_thread() is threading.main_thread():
                looked.release()
            return now

        monkeypatch.setattr(time, "monotonic", monotonic)

        def request(_: float | None) -> str:
            nonlocal now
            now = 0.009
            questions.progressed()
            # Past the first end, and before the one that was set back.
            now = 0.015
            while looked.acquire(blocking=False):
                pass
            assert [looked.acquire(timeout=PATIENCE) for _ in range(3)] == [True] * 3
            return "answer"

        assert questions.run(request, limit=0.01) == "answer"
        assert not questions.timed_out

    def test_what_the_request_raises_is_raised(self, questions: Questions) -> None:
        def request(_: float | None) -> None:
            raise LookupError("no such resource")

        with pytest.raises(LookupError, match="no such resource"):
            questions.run(request, limit=PATIENCE)

    def test_ctrl_c_cancels_the_question_and_the_request(
        self, questions: Questions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(_: ElicitationRequest) -> ElicitationAnswer:
            raise KeyboardInterrupt

        monkeypatch.setattr("gaia.cli.questions.fill_in", interrupted)
        outcomes = []

        def request(_: float | None) -> None:
            outcomes.append(questions.on_elicitation(REQUEST))

        with pytest.raises(KeyboardInterrupt):
            questions.run(request, limit=PATIENCE)
        assert outcomes == [ElicitationAnswer("cancel")]

    def test_a_question_beside_a_request_is_not_asked(self, questions: Questions) -> None:
        assert questions.on_elicitation(REQUEST) == ElicitationAnswer("cancel")


class TestWithoutAPerson:
    @pytest.mark.parametrize(("can_ask", "json"), [(False, False), (True, True)])
    def test_questions_are_declined_and_the_user_is_told(
        self, can_ask: bool, json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(terminal, "can_ask", lambda: can_ask)
        questions = Questions(Options(json=json))

        assert questions.run(lambda _: questions.on_elicitation(REQUEST), limit=1.0) == ElicitationAnswer("decline")
        said = " ".join(capsys.readouterr().err.split())
        assert "The server 'it' asked a question, which was declined" in said
        assert said.endswith("can be asked: Who?")

    def test_requests_have_the_time_that_was_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(terminal, "can_ask", lambda: False)

        assert Questions(Options()).run(lambda seconds: seconds, limit=30.0) is None
        monkeypatch.setattr(time_limit, "remaining", lambda: 4.0)
        assert Questions(Options()).run(lambda seconds: seconds, limit=30.0) == 4.0
