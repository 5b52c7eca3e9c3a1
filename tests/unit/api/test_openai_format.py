"""The documents, as OpenAI's clients read them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gaia.agents.base import ApiAgent
from gaia.agents.base.agent_result import Usage
from gaia.api.answers import Answer, RequestFailed
from gaia.api.openai_format import Reply, error, event, model
from tests.silent_agent import SilentAgent


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


def test_a_chunk_has_a_piece_or_the_reason() -> None:
    (piece,) = read(Reply("m").chunk({"content": "a"}))["choices"]
    (end,) = read(Reply("m").chunk({}, "stop"))["choices"]
    assert (piece["delta"], piece["finish_reason"]) == ({"content": "a"}, None)
    assert (end["delta"], end["finish_reason"]) == ({}, "stop")


def test_the_count_of_tokens_comes_in_a_chunk_without_choices() -> None:
    document = read(Reply("m").usage(Usage(1, 2)))
    assert (document["object"], document["choices"]) == ("chat.completion.chunk", [])
    assert document["usage"]["completion_tokens"] == 2


def test_an_event_is_one_line_whatever_is_in_it() -> None:
    assert event({"text": "a\n\ndata: forged"}).count(b"\n") == 2


def test_a_model_tells_of_itself_and_cannot_take_the_name_of_another() -> None:
    class Boasting(ApiAgent, SilentAgent):
        def get_model_info(self) -> dict[str, Any]:
            return {"max_input_tokens": 5, "id": "gpt", "owned_by": "somebody else"}

    assert model(Boasting()) == {
        "id": "gaia-boasting",
        "object": "model",
        "created": 0,
        "owned_by": "gaia",
        "max_input_tokens": 5,
    }


@pytest.mark.parametrize("code", [None, "model_not_found"])
def test_an_error_has_the_form_that_clients_look_for(code: str | None) -> None:
    failed = RequestFailed(404, "There is no model", code=code)
    assert error(failed) == {
        "error": {"message": "There is no model", "type": "invalid_request_error", "param": None, "code": code}
    }
