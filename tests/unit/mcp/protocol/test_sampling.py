"""Questions to a model: reading them, and answers that a server can use."""

from typing import Any

import pytest

from gaia.mcp.protocol.messages import INVALID_PARAMS, Refusal
from gaia.mcp.protocol.server_questions import SamplingRequest, sampling_request, sampling_result

HELLO = {"role": "user", "content": {"type": "text", "text": "Hello"}}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "toolUseId": "t1", "content": []}]}


def read(*, offered: bool = True, **params: Any) -> SamplingRequest:
    return sampling_request("time", {"messages": [HELLO], "maxTokens": 10, **params}, tools=offered)


class TestReading:
    def test_everything_that_a_server_may_say_is_there(self) -> None:
        request = read(
            systemPrompt="Be kind",
            modelPreferences={"hints": [{"name": "small"}]},
            temperature=0,
            stopSequences=["."],
            includeContext="none",
            metadata={"a": 1},
            tools=[{"name": "look"}],
            toolChoice={"mode": "auto"},
        )
        assert request == SamplingRequest(
            server="time",
            messages=[HELLO],
            max_tokens=10,
            system_prompt="Be kind",
            model_preferences={"hints": [{"name": "small"}]},
            temperature=0,
            stop_sequences=["."],
            include_context="none",
            metadata={"a": 1},
            tools=[{"name": "look"}],
            tool_choice={"mode": "auto"},
        )

    @pytest.mark.parametrize("params", [{"tools": [{"name": "look"}]}, {"tools": []}, {"toolChoice": {}}])
    def test_tools_that_are_not_offered_are_refused(self, params: Any) -> None:
        with pytest.raises(Refusal, match="sampling with tools"):
            read(offered=False, **params)

    @pytest.mark.parametrize(
        "params",
        [
            {"messages": None},
            {"messages": "Hello"},
            {"messages": ["Hello"]},
            {"messages": [{"role": "system", "content": {}}]},
            {"messages": [{"role": "user", "content": "Hello"}]},
            {"maxTokens": None},
            {"maxTokens": "10"},
            {"maxTokens": True},
            {"temperature": "hot"},
            {"temperature": True},
            {"systemPrompt": 1},
        ],
    )
    def test_a_malformed_request_is_refused(self, params: Any) -> None:
        with pytest.raises(Refusal) as refused:
            read(**params)
        assert refused.value.code == INVALID_PARAMS


class TestToolResults:
    def test_the_result_follows_the_use(self) -> None:
        assert len(read(messages=[HELLO, USE, RESULT]).messages) == 3

    @pytest.mark.parametrize(
        "messages",
        [
            [HELLO, USE],
            [HELLO, USE, HELLO],
            [HELLO, RESULT],
            [USE, {"role": "user", "content": [*RESULT["content"], HELLO["content"]]}],  # type: ignore[misc]
            [USE, {"role": "user", "content": [{"type": "tool_result", "toolUseId": "t2"}]}],
            [{"role": "assistant", "content": [{"type": "tool_use"}]}],
        ],
        ids=["missing", "something else", "without use", "mixed", "of another use", "without id"],
    )
    def test_anything_else_is_refused(self, messages: Any) -> None:
        with pytest.raises(Refusal, match="messages: ") as refused:
            read(messages=messages)
        assert refused.value.code == INVALID_PARAMS


class TestAnswering:
    def test_a_text_of_a_model_is_a_result(self) -> None:
        assert sampling_result(read().answer("Hi", model="small")) == {
            "role": "assistant",
            "content": {"type": "text", "text": "Hi"},
            "model": "small",
            "stopReason": "endTurn",
        }

    def test_none_is_a_rejection_by_the_user(self) -> None:
        with pytest.raises(Refusal) as refused:
            sampling_result(None)
        assert refused.value.code == -1

    @pytest.mark.parametrize("answer", ["Hi", {}, {"role": "assistant", "model": "m"}, {"content": {}, "role": "user"}])
    def test_anything_else_is_an_error_of_user_code(self, answer: object) -> None:
        with pytest.raises(TypeError, match=r"sampling"):
            sampling_result(answer)
