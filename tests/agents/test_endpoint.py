"""The model's endpoint: how it is configured, and what an agent says when it fails."""

from __future__ import annotations

import re
import socket
import sys
import threading
from typing import Any

import pytest

from gaia.agents.base.agent_result import Usage
from gaia.agents.base.chat import Completion
from gaia.agents.base.llm import (
    LLMAuthenticationFailed,
    LLMError,
    LLMInvalidResponse,
    LLMNotConfigured,
    LLMNotInstalled,
    LLMOverloaded,
    LLMRequestRefused,
    LLMServerFailed,
    LLMSettings,
    LLMTimeout,
    LLMUnreachable,
    OpenAIChat,
)
from gaia.runtime.extras import install_command
from tests.servers.scripted_llm import Reply, scripted_llm

KEY = "sk-very-secret"


def ask(base_url: str, **settings: Any) -> Completion:
    model = OpenAIChat(LLMSettings(base_url, "scripted", **{"api_key": KEY, "max_retries": 0, **settings}))
    try:
        return model.complete([{"role": "user", "content": "Hello"}], [], lambda text: None)
    finally:
        model.close()


class TestConfiguration:
    @pytest.fixture(autouse=True)
    def _clean_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("BASE_URL", "MODEL", "API_KEY"):
            monkeypatch.delenv(f"GAIA_LLM_{name}", raising=False)

    def test_without_any_it_says_what_to_set(self) -> None:
        with pytest.raises(LLMNotConfigured, match=r"GAIA_LLM_BASE_URL .* and GAIA_LLM_MODEL .*GAIA_LLM_API_KEY"):
            OpenAIChat()

    def test_with_half_of_it_it_says_what_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GAIA_LLM_BASE_URL", "http://localhost/v1")
        with pytest.raises(LLMNotConfigured, match="set GAIA_LLM_MODEL"):
            OpenAIChat()

    def test_the_environment_is_used_where_the_settings_say_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in (("BASE_URL", "http://localhost/v1"), ("MODEL", "env-model"), ("API_KEY", "env-key")):
            monkeypatch.setenv(f"GAIA_LLM_{name}", value)
        assert LLMSettings().resolved() == LLMSettings("http://localhost/v1", "env-model", "env-key")
        assert LLMSettings("http://other/v1", "m", "k").resolved() == LLMSettings("http://other/v1", "m", "k")

    def test_a_missing_package_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "openai", None)
        with pytest.raises(LLMNotInstalled, match=re.escape(install_command("llm"))) as raised:
            OpenAIChat(LLMSettings("http://localhost/v1", "m"))
        assert isinstance(raised.value, ImportError)

    def test_the_key_is_not_shown(self) -> None:
        assert KEY not in repr(LLMSettings(api_key=KEY))

    def test_the_endpoint_gets_the_key_and_nothing_of_the_environments_for_openai(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
            monkeypatch.setenv(name, "of-openai")
        with scripted_llm(Reply("Hi."), Reply("Hi.")) as endpoint:
            ask(endpoint.base_url)
            ask(endpoint.base_url, api_key=None)
        with_key, without_key = endpoint.headers
        assert with_key["authorization"] == f"Bearer {KEY}"
        assert not [value for headers in endpoint.headers for value in headers.values() if "of-openai" in value]
        assert KEY not in str(without_key)

    def test_options_become_parameters_of_the_request(self) -> None:
        with scripted_llm(Reply("Hi.")) as endpoint:
            ask(endpoint.base_url, options={"temperature": 0, "max_tokens": 7})
        assert (endpoint.requests[0]["temperature"], endpoint.requests[0]["max_tokens"]) == (0, 7)


def error_body(message: str) -> str:
    return f'{{"error": {{"message": "{message}"}}}}'


class TestFailures:
    @pytest.mark.parametrize("stream", [True, False])
    @pytest.mark.parametrize(
        ("status", "kind", "word"),
        [
            (400, LLMRequestRefused, "refused the request for model 'scripted'"),
            (401, LLMAuthenticationFailed, "check GAIA_LLM_API_KEY"),
            (403, LLMAuthenticationFailed, "check GAIA_LLM_API_KEY"),
            (404, LLMRequestRefused, "the reason"),
            (429, LLMOverloaded, "too many requests"),
            (500, LLMServerFailed, "the reason"),
            (503, LLMServerFailed, "the reason"),
        ],
    )
    def test_a_status_is_an_error_of_its_kind(
        self, status: int, kind: type[LLMError], word: str, *, stream: bool
    ) -> None:
        reply = Reply(status=status, body=error_body(f"the reason, with {KEY}"))
        with scripted_llm(reply) as endpoint, pytest.raises(kind) as raised:
            ask(endpoint.base_url, stream=stream)
        assert raised.value.status == status
        assert word in str(raised.value)
        assert "the reason" in str(raised.value)
        assert KEY not in str(raised.value)

    @pytest.mark.parametrize("status", [429, 500])
    def test_what_may_pass_is_tried_again(self, status: int) -> None:
        refusal = Reply(status=status, body=error_body("not now"), headers={"retry-after-ms": "1"})
        with scripted_llm(refusal, refusal, Reply("Hi.")) as endpoint:
            assert ask(endpoint.base_url, max_retries=2).text == "Hi."
        assert len(endpoint.requests) == 3

    def test_nobody_listens(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        with pytest.raises(LLMUnreachable, match=rf"127\.0\.0\.1:{port}/v1.*Is it running\?"):
            ask(f"http://127.0.0.1:{port}/v1")

    def test_nobody_answers(self) -> None:
        with (
            scripted_llm(Reply("Late", hold=threading.Event())) as endpoint,
            pytest.raises(LLMTimeout, match=r"within 0\.05 s"),
        ):
            ask(endpoint.base_url, timeout=0.05)

    def test_the_connection_breaks_in_the_middle(self) -> None:
        with scripted_llm(Reply("I am", break_off=True)) as endpoint, pytest.raises(LLMUnreachable):
            ask(endpoint.base_url)

    def test_an_error_in_the_stream(self) -> None:
        body = f"data: {error_body('out of memory')}\n\n"
        reply = Reply(body=body, headers={"Content-Type": "text/event-stream"})
        with scripted_llm(reply) as endpoint, pytest.raises(LLMServerFailed, match="out of memory"):
            ask(endpoint.base_url)

    @pytest.mark.parametrize("stream", [True, False])
    @pytest.mark.parametrize(
        ("body", "content_type"),
        [
            ("<html>Welcome</html>", "text/html"),
            ("{}", "application/json"),
            ('{"choices": []}', "application/json"),
            ("data: {broken\n\n", "text/event-stream"),
            ("data: [DONE]\n\n", "text/event-stream"),
            ("", "text/event-stream"),
        ],
    )
    def test_what_is_no_completion_is_an_error(self, body: str, content_type: str, *, stream: bool) -> None:
        reply = Reply(body=body, headers={"Content-Type": content_type})
        with scripted_llm(reply) as endpoint, pytest.raises(LLMInvalidResponse):
            ask(endpoint.base_url, stream=stream)

    def test_a_base_url_without_its_path_is_found_out(self) -> None:
        with scripted_llm(Reply("Hi.")) as endpoint, pytest.raises(LLMRequestRefused, match="here"):
            ask(endpoint.base_url.removesuffix("/v1"))

    def test_all_errors_can_be_caught_as_one_and_as_runtime_errors(self) -> None:
        for kind in LLMError.__subclasses__():
            assert issubclass(kind, RuntimeError)


def test_a_completion_is_the_same_in_pieces_and_as_a_whole() -> None:
    reply = Reply("I  call\nboth.", [("a", {"x": [1, "ü"]}), ("b", {})], usage=(3, 4))
    with scripted_llm(reply, reply) as endpoint:
        pieces, whole = ask(endpoint.base_url, stream=True), ask(endpoint.base_url, stream=False)
    assert pieces.text == whole.text == "I  call\nboth."
    assert pieces.usage == whole.usage == Usage(3, 4)
    assert pieces.finish_reason == whole.finish_reason == "tool_calls"
    for one, other in zip(pieces.tool_calls, whole.tool_calls, strict=True):
        assert (one.name, one.arguments) == (other.name, other.arguments)


class TestWhatIsRead:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gaia.agents.base.llm._MAX_RESPONSE_BYTES", 50_000)

    @pytest.mark.parametrize("stream", [True, False])
    def test_an_answer_has_a_limit(self, stream: bool) -> None:
        with scripted_llm(Reply("x" * 100_000)) as endpoint, pytest.raises(LLMError, match="longer than 50000 bytes"):
            ask(endpoint.base_url, stream=stream)
