"""From the messages of a chat completion to what the agent is asked, and from its answer to the client's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gaia.agents.base import AgentResult, ApiAgent
from gaia.agents.base.agent_result import Usage
from gaia.api.answers import Answer, RequestFailed, answer, checked_messages
from tests.silent_agent import SilentAgent

Message = dict[str, Any]


def said(text: Any, role: str = "user") -> Message:
    return {"role": role, "content": text}


class Echo(ApiAgent, SilentAgent):
    """Answers with its prompt; remembers the history."""

    stop_reason: Any = "answer"

    def run(self, prompt: str, *, history: Any = (), max_steps: int | None = None) -> AgentResult:
        self.history = list(history)
        return AgentResult(f"echo {prompt}", (), Usage(3, 4), self.stop_reason)


class TestMessages:
    def test_contents_become_text_and_the_rest_stays(self) -> None:
        parts = [{"type": "text", "text": "How "}, {"type": "text", "text": "are you?"}]
        assert checked_messages([said(None, "assistant") | {"name": "a"}, said([]), said(parts)]) == [
            {"role": "assistant", "content": "", "name": "a"},
            said(""),
            said("How are you?"),
        ]

    def test_a_developer_is_the_system(self) -> None:
        assert checked_messages([said("Be brief.", "developer"), said("Hi")])[0] == said("Be brief.", "system")

    @pytest.mark.parametrize(
        ("messages", "why"),
        [
            (None, "messages must be a list"),
            ({}, "messages must be a list"),
            ([], "messages must be a list"),
            (["Hi"], "an object with a role"),
            ([{"content": "Hi"}], "an object with a role"),
            ([{"role": 1, "content": "Hi"}], "an object with a role"),
            ([said("Hi", "assistant")], "the last message must be the user's"),
            ([said(7)], "content must be a text"),
            ([said([{"type": "image_url"}])], "only parts of type text"),
            ([said([{"type": "text", "text": None}])], "only parts of type text"),
            ([said(["Hi"])], "only parts of type text"),
        ],
    )
    def test_what_is_none_of_the_forms_is_refused(self, messages: Any, why: str) -> None:
        with pytest.raises(RequestFailed) as raised:
            checked_messages(messages)
        assert raised.value.status == 400
        assert why in raised.value.message

    def test_the_clients_messages_are_not_changed(self) -> None:
        messages = [said([{"type": "text", "text": "Hi"}], "developer"), said("Hi")]
        checked_messages(messages)
        assert messages[0] == {"role": "developer", "content": [{"type": "text", "text": "Hi"}]}


class TestAnswers:
    def test_an_agent_is_run_with_the_last_message_and_the_others_before_it(self) -> None:
        agent = Echo()
        assert answer(agent, [said("a"), said("b", "assistant"), said("c")], lambda text: None) == Answer(
            "echo c", Usage(3, 4), "stop"
        )
        assert agent.history == [said("a"), said("b", "assistant")]

    @pytest.mark.parametrize(
        ("stop_reason", "finish_reason"),
        [("step_limit", "length"), ("length", "length"), ("content_filter", "content_filter"), ("cancelled", "stop")],
    )
    def test_it_says_why_it_ended_in_openais_words(self, stop_reason: Any, finish_reason: str) -> None:
        agent = Echo()
        agent.stop_reason = stop_reason
        assert answer(agent, [said("a")], lambda text: None).finish_reason == finish_reason

    @pytest.mark.parametrize(
        ("own", "expected"),
        [
            ("text", Answer("text", Usage(), "stop")),
            (7, Answer("7", Usage(), "stop")),
            (AgentResult("a", (), Usage(1, 2), "length"), Answer("a", Usage(1, 2), "length")),
        ],
    )
    def test_an_agent_may_answer_in_its_own_way(self, own: Any, expected: Answer) -> None:
        class Own(Echo):
            def answer_chat(self, messages: list[Message], emit: Callable[[str], None]) -> Any:
                emit(messages[-1]["content"])
                return own

        pieces: list[str] = []
        assert answer(Own(), [said("a")], pieces.append) == expected
        assert pieces == ["a"]

    def test_what_an_agent_raises_passes_on(self) -> None:
        class Broken(Echo):
            def answer_chat(self, messages: list[Message], emit: Callable[[str], None]) -> Any:
                raise LookupError("no such thing")

        with pytest.raises(LookupError, match="no such thing"):
            answer(Broken(), [said("a")], lambda text: None)
