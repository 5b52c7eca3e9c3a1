"""Requests to the model's endpoint that end before their answer; its failures are shown in `tests/agents`."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gaia.agents.base.llm import (
    LLMError,
    LLMNotConfigured,
    LLMNotInstalled,
    LLMSettings,
    LLMTimeout,
    LLMUnreachable,
    OpenAIChat,
)
from gaia.runtime.cancellation import CancelScope
from tests.servers.scripted_llm import Reply, ScriptedLLM, scripted_llm
from tests.waiting import PATIENCE

HELLO = [{"role": "user", "content": "Hello"}]


class Asking:
    """A model that is asked on a thread of its own."""

    def __init__(self, endpoint: ScriptedLLM) -> None:
        self.model = OpenAIChat(LLMSettings(endpoint.base_url, "scripted"))
        self.scope = CancelScope()
        self.pieces: list[str] = []
        self.text_came = threading.Event()
        self.raised: BaseException | None = None
        self.thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        try:
            with self.scope.entered():
                self.model.complete(HELLO, [], self._take)
        except BaseException as error:  # noqa: BLE001 - what it is, is the subject
            self.raised = error

    def _take(self, text: str) -> None:
        self.pieces.append(text)
        self.text_came.set()


@pytest.fixture
def held() -> Iterator[tuple[ScriptedLLM, Asking]]:
    """An endpoint that has sent a text and then nothing more, and the thread that waits for the rest."""
    with scripted_llm(Reply("One moment", hold_after_text=threading.Event())) as endpoint:
        asking = Asking(endpoint)
        asking.thread.start()
        assert asking.text_came.wait(PATIENCE)
        yield endpoint, asking
        asking.model.close()


def test_a_cancelled_scope_ends_a_request_in_the_middle_of_its_answer(held: tuple[ScriptedLLM, Asking]) -> None:
    endpoint, asking = held
    asking.scope.cancel()
    asking.thread.join(PATIENCE)
    assert not asking.thread.is_alive()
    assert asking.raised is not None
    assert asking.pieces[0] == "One "
    assert len(endpoint.requests) == 1, "it was not tried again"


def test_closing_the_model_ends_its_requests(held: tuple[ScriptedLLM, Asking]) -> None:
    _, asking = held
    asking.model.close()
    asking.thread.join(PATIENCE)
    assert isinstance(asking.raised, LLMUnreachable)


def test_nothing_is_sent_in_a_scope_that_is_cancelled_already() -> None:
    with scripted_llm(Reply("Hi.")) as endpoint:
        asking = Asking(endpoint)
        asking.scope.cancel()
        asking.thread.start()
        asking.thread.join(PATIENCE)
        asking.model.close()
    # Not an Exception: the package would try again.
    assert asking.raised is not None
    assert not isinstance(asking.raised, Exception)
    assert endpoint.requests == []


@pytest.mark.parametrize("stream", [True, False])
def test_a_text_is_told_as_it_comes(stream: bool) -> None:
    pieces: list[str] = []
    with scripted_llm(Reply("one two three")) as endpoint:
        model = OpenAIChat(LLMSettings(endpoint.base_url, "scripted", stream=stream))
        assert model.complete(HELLO, [], pieces.append).text == "one two three"
        model.close()
    assert pieces == (["one ", "two ", "three"] if stream else ["one two three"])


def test_tools_are_only_named_where_there_are_any() -> None:
    definition = {"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}
    with scripted_llm(Reply("Hi."), Reply("Hi.")) as endpoint:
        model = OpenAIChat(LLMSettings(endpoint.base_url, "scripted"))
        model.complete(HELLO, [], lambda text: None)
        model.complete(HELLO, [definition], lambda text: None)
        model.close()
    assert ["tools" in request for request in endpoint.requests] == [False, True]
    assert endpoint.requests[1]["tools"] == [definition]


def test_each_setting_that_is_given_stays_and_only_the_others_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BASE_URL", "MODEL", "API_KEY"):
        monkeypatch.setenv(f"GAIA_LLM_{name}", f"env-{name}")
    settings = LLMSettings(model="mine", timeout=5.0, options={"seed": 1}).resolved()
    assert settings == LLMSettings("env-BASE_URL", "mine", "env-API_KEY", timeout=5.0, options={"seed": 1})
    monkeypatch.setenv("GAIA_LLM_BASE_URL", "")
    with pytest.raises(LLMNotConfigured, match="set GAIA_LLM_BASE_URL"):
        LLMSettings(model="mine").resolved()


ALL = [LLMError, *LLMError.__subclasses__()]


@pytest.mark.parametrize("kind", ALL)
def test_each_has_a_message_and_the_status_if_there_was_one(kind: type[LLMError]) -> None:
    assert isinstance(kind("why"), LLMError)
    assert (str(kind("why")), kind("why").status, kind("why").result) == ("why", None, None)
    assert kind("why", status=418).status == 418


def test_each_says_what_happened_by_its_class_alone() -> None:
    for one in ALL:
        assert [other for other in ALL if issubclass(other, one)] == (ALL if one is LLMError else [one])


@pytest.mark.parametrize(("kind", "builtin"), [(LLMNotInstalled, ImportError), (LLMTimeout, TimeoutError)])
def test_some_are_built_in_errors_too(kind: type[LLMError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin, match="why"):
        raise kind("why")
