"""Agents as models: the unmodified `openai` client uses them."""

from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from gaia.agents.base import ApiAgent
from tests.servers.scripted_llm import Reply, ScriptedLLM, scripted_llm
from tests.serving.served import Served, http_server
from tests.silent_agent import SilentAgent

pytestmark = pytest.mark.slow

USER = {"role": "user", "content": "one two three"}


class PlainAgent(ApiAgent, SilentAgent):
    """Answers with `Agent.run`."""


class FailingAgent(PlainAgent):
    def answer_chat(self, messages: list[dict[str, Any]], emit: Callable[[str], None]) -> str:
        if messages[-1]["content"] == "late":
            emit("a piece")
        raise RuntimeError("the password is hunter2")


AGENTS = ["counting_model:CountingAgent", "tests.serving.test_api:PlainAgent", "tests.serving.test_api:FailingAgent"]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[ScriptedLLM]:
    with scripted_llm(Reply("Hello."), Reply("Hello again."), Reply(status=400, body="{}")) as llm:
        yield llm


@pytest.fixture(scope="module")
def served(starts_programs: None, endpoint: ScriptedLLM) -> Iterator[Served]:
    env = {"GAIA_LLM_BASE_URL": endpoint.base_url, "GAIA_LLM_MODEL": "scripted", "GAIA_SERVE_TOKEN": "secret"}
    with http_server(*AGENTS, group=("api", "serve"), env=env) as server:
        yield server


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served.url, api_key="secret", max_retries=0) as client:
        yield client


def test_the_agents_are_the_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["gaia-counting", "gaia-plain", "gaia-failing"]
    model = client.models.retrieve("gaia-counting")
    assert (model.owned_by, model.to_dict()["max_input_tokens"]) == ("gaia", 8192)


def test_an_answer_comes_whole(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(model="gaia-counting", messages=[USER])
    (choice,) = completion.choices
    assert choice.message.content == "1: one\n2: two\n3: three\n"
    assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")
    assert completion.usage is not None


def test_an_answer_comes_in_the_agents_own_pieces(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="gaia-counting", messages=[USER], stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert [text for text in texts if text] == ["1: one\n", "2: two\n", "3: three\n"]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert len({chunk.id for chunk in chunks}) == 1


def test_an_agent_without_its_own_way_answers_by_running(client: openai.OpenAI, endpoint: ScriptedLLM) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hi!"},
        {"role": "user", "content": [{"type": "text", "text": "How are you?"}]},
    ]
    completion = client.chat.completions.create(model="gaia-plain", messages=messages)  # type: ignore[arg-type]
    assert completion.choices[0].message.content == "Hello."
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (10, 5)
    asked = [(message["role"], message["content"]) for message in endpoint.requests[0]["messages"]]
    assert asked[0][0] == "system"
    assert asked[-4:] == [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hi!"), ("user", "How are you?")]

    stream = client.chat.completions.create(model="gaia-plain", messages=[USER], stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Hello again."

    with pytest.raises(openai.APIStatusError) as failed:
        client.chat.completions.create(model="gaia-plain", messages=[USER])
    assert failed.value.status_code == 502


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_says_nothing_about_its_cause(client: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.InternalServerError) as failed:
        client.chat.completions.create(model="gaia-failing", messages=[USER], stream=stream)
    assert "hunter2" not in str(failed.value)


def test_a_failure_after_the_first_piece_ends_the_stream_with_an_error(client: openai.OpenAI) -> None:
    message = {"role": "user", "content": "late"}
    stream = client.chat.completions.create(model="gaia-failing", messages=[message], stream=True)  # type: ignore[list-item]
    with pytest.raises(openai.APIError, match="The agent failed"):
        list(stream)


def test_what_cannot_be_answered_is_the_clients_own_exception(served: Served, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="There is no model 'nonsense'"):
        client.chat.completions.create(model="nonsense", messages=[USER])
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="gaia-counting", messages=[USER], n=2)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
