"""From the messages of a chat completion to what the agent is asked, and from its answer to the client's."""

import json
import typing
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaia.agents.base import AgentResult, ApiAgent
from gaia.agents.base.agent_result import Usage
from gaia.api.chat_completions import (
    Answer,
    ChatRequest,
    Reply,
    RequestFailed,
    answer,
    checked_messages,
    event,
    model_document,
    parse,
)
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
    def test_contents_become_text_a_developer_the_system_and_the_clients_messages_stay(self) -> None:
        parts = [{"type": "text", "text": "How "}, {"type": "text", "text": "are you?"}]
        messages = [said(None, "assistant") | {"name": "a"}, said([]), said([parts[0]], "developer"), said(parts)]
        assert checked_messages(messages) == [
            {"role": "assistant", "content": "", "name": "a"},
            said(""),
            said("How ", "system"),
            said("How are you?"),
        ]
        assert messages[2] == {"role": "developer", "content": [{"type": "text", "text": "How "}]}

    @pytest.mark.parametrize(
        ("messages", "why"),
        [
            ([], "messages must be a list"),
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


VALUES: list[Any] = [None, True, 0, -1, 1.5, 1e300, "", "text", [], ["text"], [1], [[]], {}, {"a": 1}, {"a": None}]
VALID: dict[str, Any] = {"model": "gaia", "messages": [{"role": "user", "content": "Hi"}]}
FIELDS = [field.name for field in msgspec.structs.fields(ChatRequest)]
MESSAGE_FIELDS = ("role", "content", "name", "tool_call_id", "tool_calls", "function_call", "refusal", "audio")

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def accepted(document: Any) -> ChatRequest | None:
    """The request; None if it was refused with a 400. Any other exception is a failure of the test."""
    refusal = None
    try:
        request = parse(json.dumps(document).encode())
        checked_messages(request.messages)
    except RequestFailed as error:
        refusal = error
    assert refusal is None or (refusal.status == 400 and refusal.message)
    return None if refusal else request


def types_of(field: str) -> tuple[type, ...]:
    """The Python types that a JSON value of a field may have."""
    hint = typing.get_type_hints(ChatRequest)[field]
    origins = [typing.get_origin(each) or each for each in (typing.get_args(hint) or (hint,))]
    return tuple(dict if issubclass(origin, msgspec.Struct) else origin for origin in origins)


def test_what_clients_send_is_understood() -> None:
    request = accepted(
        {
            **VALID,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "top_p": 0.5,
            "stop": ["a"],
            "seed": 1,
            "n": 1,
            "max_tokens": 5,
            "tool_choice": "none",
            "unknown": [1],
        }
    )
    assert request is not None
    assert request.stream
    assert request.stream_options is not None
    assert request.stream_options.include_usage


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_another_type_is_refused(field: str) -> None:
    for value in VALUES:
        request = accepted({**VALID, field: value})
        if request is not None and field != "messages":
            wanted = types_of(field)
            assert value is None or isinstance(value, wanted) or (type(value) is int and float in wanted)


@given(st.sampled_from(FIELDS), st.sampled_from(MESSAGE_FIELDS), anything)
@settings(max_examples=50)
def test_no_value_of_a_field_or_a_message_is_anything_but_understood_or_refused(
    field: str, field_of_message: str, value: Any
) -> None:
    accepted({**VALID, field: value})
    message = {"role": "user", "content": "Hi", field_of_message: value}
    accepted({**VALID, "messages": [message, {"role": "user", "content": "Hi"}]})


@pytest.mark.parametrize(
    "message",
    [
        {"role": "someone"},
        {"role": "user", "name": []},
        {"role": "assistant", "tool_calls": 5},
        {"role": "assistant", "tool_calls": [5]},
        {"role": "tool", "tool_call_id": {}},
        "Hi",
        None,
    ],
)
def test_messages_with_wrong_fields_are_refused(message: Any) -> None:
    assert accepted({**VALID, "messages": [message, {"role": "user", "content": "Hi"}]}) is None


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"5", b"\xff", b'{"model": NaN}', b"[" * 100_000, b'{"messages": ' + b"[" * 100_000]
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestFailed) as raised:
        parse(body)
    assert raised.value.status == 400


def read(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    document: dict[str, Any] = orjson.loads(event.removeprefix(b"data: "))
    return document


def test_all_documents_of_one_answer_share_an_id_and_no_two_answers_do() -> None:
    first, second = Reply("m"), Reply("m")
    documents = [
        first.whole(Answer("a", Usage(), "stop")),
        read(first.chunk({"content": "a"})),
        read(first.usage(Usage())),
    ]
    assert len({(one["id"], one["created"], one["model"]) for one in documents}) == 1
    assert documents[0]["id"].startswith("chatcmpl-")
    assert read(second.chunk({}))["id"] != documents[0]["id"]


def test_a_whole_answer_has_its_text_its_reason_and_its_tokens() -> None:
    document = Reply("m").whole(Answer("ä", Usage(3, 4), "length"))
    assert document["object"] == "chat.completion"
    (choice,) = document["choices"]
    assert (choice["index"], choice["finish_reason"]) == (0, "length")
    assert choice["message"] == {"role": "assistant", "content": "ä"}
    assert {"prompt_tokens": 3, "completion_tokens": 4}.items() <= document["usage"].items()


def test_a_chunk_has_a_piece_or_the_reason_or_the_count_of_tokens() -> None:
    (piece,) = read(Reply("m").chunk({"content": "a"}))["choices"]
    (end,) = read(Reply("m").chunk({}, "stop"))["choices"]
    assert (piece["delta"], piece["finish_reason"]) == ({"content": "a"}, None)
    assert (end["delta"], end["finish_reason"]) == ({}, "stop")
    document = read(Reply("m").usage(Usage(1, 2)))
    assert (document["object"], document["choices"]) == ("chat.completion.chunk", [])
    assert document["usage"]["completion_tokens"] == 2
    assert event({"text": "a\n\ndata: forged"}).count(b"\n") == 2


def test_a_model_tells_of_itself_and_cannot_take_the_name_of_another() -> None:
    class Boasting(ApiAgent, SilentAgent):
        def get_model_info(self) -> dict[str, Any]:
            return {"max_input_tokens": 5, "id": "gpt", "owned_by": "somebody else"}

    assert model_document(Boasting()) == {
        "id": "gaia-boasting",
        "object": "model",
        "created": 0,
        "owned_by": "gaia",
        "max_input_tokens": 5,
    }


@pytest.mark.parametrize("code", [None, "model_not_found"])
def test_an_error_has_the_form_that_clients_look_for(code: str | None) -> None:
    failed = RequestFailed(404, "There is no model", code=code)
    assert failed.document() == {
        "error": {"message": "There is no model", "type": "invalid_request_error", "param": None, "code": code}
    }
