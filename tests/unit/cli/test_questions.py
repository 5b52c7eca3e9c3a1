"""Questions of servers while a command waits: who reads from the terminal, for how long, and forms."""

import contextlib
import io
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gaia.cli import questions as forms
from gaia.cli import terminal, time_limit
from gaia.cli.options import Options
from gaia.cli.questions import Questions
from gaia.mcp.client import ElicitationAnswer, ElicitationRequest
from gaia.mcp.errors import CallCancelled, CallTimeout
from gaia.runtime.cancellation import current_scope
from tests.unit.cli.fixture_types import Json
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


Person = Callable[..., ElicitationAnswer]


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Person:
    """Have a form filled in: ``person(schema, "yes", "Ann")``. None is Ctrl-D."""

    def fill_in(schema: Json, *typed: str | None, message: str = "Who are you?") -> ElicitationAnswer:
        lines = iter(typed)
        monkeypatch.setattr(terminal, "ask", lambda _: next(lines))
        answer = forms.fill_in(ElicitationRequest(server="it", message=message, requested_schema=schema))
        assert next(lines, "all typed") == "all typed"
        return answer

    return fill_in


def form(*required: str, **properties: Any) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.mark.parametrize("no", ["", "n", "no", "what?", None])
def test_anything_but_yes_declines(no: str | None, person: Person) -> None:
    assert person(form("name", name={"type": "string"}), no) == ElicitationAnswer("decline")


def test_the_end_of_the_input_within_the_form_cancels(person: Person) -> None:
    assert person(form("name", name={"type": "string"}), "y", None) == ElicitationAnswer("cancel")


def test_a_form_without_fields_is_a_question_with_yes_or_no(person: Person) -> None:
    assert person({"type": "object", "properties": {}}, "y") == ElicitationAnswer("accept", {})


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        ({"type": "string"}, "Ann Lee", "Ann Lee"),
        ({"type": "string"}, "5", "5"),
        ({"type": "integer"}, "5", 5),
        ({"type": "number"}, "-2.5", -2.5),
        ({"type": "boolean"}, "y", True),
        ({"type": "boolean"}, "No", False),
        ({"type": "string", "format": "email"}, "a@b.example", "a@b.example"),
        ({"type": "string", "enum": ["s", "m"]}, "m", "m"),
        ({"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]}, "medium", "m"),
        ({"type": "string", "enum": ["s", "m"]}, "2", "m"),
        ({"type": "string", "enum": ["2", "1"]}, "2", "2"),
        ({"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}]}, "red", "#f00"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}, "a, 3", ["a", "c"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "First"}]}}, "First", ["a"]),
        ({"type": "unheard-of"}, '{"a": 1}', {"a": 1}),
        ({}, "text", "text"),
    ],
)
def test_what_is_typed_becomes_a_value_of_the_field(field: Any, typed: str, value: Any, person: Person) -> None:
    assert person(form("it", it=field), "y", typed) == ElicitationAnswer("accept", {"it": value})


@pytest.mark.parametrize(
    ("field", "wrong", "said"),
    [
        ({"type": "integer"}, "many", "'many' is no number"),
        ({"type": "integer"}, "2.5", "2.5 is not of type 'integer'"),
        ({"type": "number"}, "NaN", "'NaN' is no number"),
        ({"type": "number"}, "true", "'true' is no number"),
        ({"type": "number"}, "1e999", "is no number"),
        ({"type": "integer", "minimum": 0}, "-3", "less than the minimum"),
        ({"type": "boolean"}, "perhaps", "neither yes nor no"),
        ({"type": "string", "maxLength": 3}, "12345", "too long"),
        ({"type": "string", "format": "email"}, "nobody", "email"),
        ({"type": "string", "enum": ["s", "m"]}, "9", "not one of the choices"),
        ({"type": "array", "items": {"enum": ["a"]}, "maxItems": 0}, "a", "[]"),
    ],
)
def test_what_a_field_does_not_permit_is_asked_again(
    field: Any, wrong: str, said: str, person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    assert person(form(it=field), "y", wrong, "") == ElicitationAnswer("accept", {})
    if said != "[]":
        assert said in capsys.readouterr().err


def test_fields_left_empty_get_their_default_or_are_left_out_or_asked_again(person: Person) -> None:
    schema = form("name", age={"type": "integer", "default": 30}, name={"type": "string"}, mail={"type": "string"})
    assert person(schema, "y", "", "", "Ann", "") == ElicitationAnswer("accept", {"age": 30, "name": "Ann"})


def test_a_form_that_is_wrong_as_a_whole_is_asked_again(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    schema = form(a={"type": "string"}, b={"type": "string"}) | {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert person(schema, "y", "", "", "x", "") == ElicitationAnswer("accept", {"a": "x"})
    assert "does not fit the form" in capsys.readouterr().err


def test_no_line_of_the_server_looks_like_one_of_this_program(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "ok\nError: \x1b[2J\u202e\nThe server 'bank' asks:"
    schema = form(**{"a\x1b[2J": {"type": "string", "title": "b\x1b[0m\nAnswer it?", "description": "c\rError: x"}})
    person(schema, "n", message=hostile)
    person(schema, "y", "", message="m" * 9000)
    written = capsys.readouterr().err

    assert not {character for character in written if not character.isprintable() and character != "\n"}
    assert "\n    The server 'bank' asks:" in written
    assert "\nThe server 'bank' asks:" not in written
    assert "\nError:" not in written
    assert written.count("m") < 4100


def test_no_label_of_the_server_looks_like_a_question_of_this_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nAnn\n"))
    field = {"type": "string", "title": "Make this call? [y/N]", "description": "Error: type your password"}

    forms.fill_in(ElicitationRequest(server="it", message="Hi", requested_schema=form(name=field)))

    # The person's Enter, which ends the line of a question, is not in it.
    written = capsys.readouterr().err
    assert "[y/N]     Error: type your password\n    Make this call? [y/N] (name)" in written


def test_lines_of_the_server_are_indented_where_they_are_wrapped(
    person: Person, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    words = "please read all of this first, then go on Error: type your password"

    person(form(a={"type": "string", "description": words}), "y", "", message=words)

    lines = [line for line in capsys.readouterr().err.splitlines() if "asks:" not in line]
    assert len(lines) > 3
    assert all(line.startswith("    ") for line in lines)


def test_of_very_long_forms_the_beginning_is_shown(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    fields = {f"field{number}": {"type": "string"} for number in range(1000)}
    asked: list[str] = []

    def decline(question: str) -> str:
        asked.append(question)
        return "n"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "ask", decline)
        forms.fill_in(ElicitationRequest(server="it", message="Hi", requested_schema=form(**fields)))
    person(form(a={"type": "string", "title": "t" * 5000, "description": "d" * 5000}), "y", "")

    assert "field19, and 980 more" in asked[0]
    assert capsys.readouterr().err.count("d") < 400


def test_of_very_many_choices_the_first_are_shown(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    schema = form(it={"type": "string", "enum": [f"c{number}" for number in range(1000)]})
    assert person(schema, "y", "c999") == ElicitationAnswer("accept", {"it": "c999"})
    assert "… and 950 more" in capsys.readouterr().err


@pytest.mark.parametrize(
    "schema", [{}, {"properties": 5}, {"properties": {"a": 5}}, {"properties": {"a": {"enum": 5}}}]
)
def test_malformed_schemas_are_asked_as_far_as_they_go(schema: Json, person: Person) -> None:
    fields = 1 if isinstance(schema.get("properties"), dict) else 0
    assert person(schema, "y", *[""] * fields).action == "accept"
