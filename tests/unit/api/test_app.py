"""The routes, in this process and without a network; whole servers and OpenAI's own client are in `tests/serving`."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from gaia.agents.base import ApiAgent
from gaia.agents.base.llm import LLMNotConfigured, LLMOverloaded
from gaia.api import app as app_module
from gaia.api.app import create_app
from gaia.runtime.cancellation import current_scope
from tests.silent_agent import SilentAgent
from tests.waiting import PATIENCE

Emit = Callable[[str], None]
Way = Callable[[Emit], Any]

HELLO = [{"role": "user", "content": "Hello"}]


class Scripted(ApiAgent, SilentAgent):
    """Answers in the way that the test gives it."""

    def __init__(self, way: Way) -> None:
        super().__init__(silent_mode=True)
        self.way = way

    def answer_chat(self, messages: list[dict[str, Any]], emit: Emit) -> Any:
        return self.way(emit)


@asynccontextmanager
async def served(way: Way = lambda emit: "Hi.", **limits: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app([Scripted(way)], **limits)
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


def asked(way: Way = lambda emit: "Hi.", content: bytes | None = None, **body: Any) -> httpx2.Response:
    """The response to a chat."""

    async def ask() -> httpx2.Response:
        request = {"model": "gaia-scripted", "messages": HELLO, **body}
        async with served(way) as client:
            return await client.post("/v1/chat/completions", content=content or json.dumps(request).encode())

    return asyncio.run(ask())


def events(response: httpx2.Response) -> list[Any]:
    """What was streamed: documents, comments and the end."""
    lines = [line for line in response.text.split("\n\n") if line]
    return [json.loads(line[6:]) if line.startswith("data: {") else line for line in lines]


def pieces(response: httpx2.Response) -> list[str]:
    documents = [event for event in events(response) if isinstance(event, dict)]
    deltas = [choice["delta"] for document in documents for choice in document.get("choices", ())]
    return [delta["content"] for delta in deltas if delta.get("content")]


def raising(error: BaseException) -> Way:
    def way(emit: Emit) -> Any:
        raise error

    return way


async def test_models_are_listed_and_looked_up() -> None:
    async with served() as client:
        listed = (await client.get("/v1/models")).json()
        assert [one["id"] for one in listed["data"]] == ["gaia-scripted"]
        assert (await client.get("/v1/models/gaia-scripted")).json() == listed["data"][0]
        missing = await client.get("/v1/models/of/another/vendor")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        *(({"content": content}, 400, None) for content in (b"{broken", b"[]", b"7", b"\xff")),
        *(({"model": model}, 404, "model_not_found") for model in ("gpt", None)),
        *(
            (body, 400, "unsupported_parameter")
            for body in ({"tools": [{}]}, {"functions": [{}]}, {"audio": {"voice": "a"}}, {"n": 2})
        ),
        *(
            ({"stream": True, "stream_options": options}, 400, None)
            for options in ([], [1], ["include_usage"], "text", 5, True, {"include_usage": "yes"}, {"include_usage": 1})
        ),
    ],
    ids=str,
)
def test_what_is_no_request_or_would_change_the_meaning_is_refused_before_any_work(
    body: dict[str, Any], status: int, code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaia.api.app.answer", lambda *_: pytest.fail("the agent was asked"))
    response = asked(**body)
    assert response.status_code == status
    assert code in (None, response.json()["error"]["code"])


@pytest.mark.parametrize("body", [{"tools": []}, {"n": 1}, {"temperature": 0, "seed": 7}])
def test_what_changes_little_is_ignored(body: dict[str, Any]) -> None:
    assert asked(**body).json()["choices"][0]["message"]["content"] == "Hi."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("the password is hunter2"), 500),
        (LLMOverloaded("hunter2", status=429), 502),
        (LLMNotConfigured("hunter2"), 503),
    ],
)
def test_a_failure_has_its_status_and_not_its_words(
    error: Exception, status: int, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    response = asked(raising(error), stream=stream)
    assert (response.status_code, response.json()["error"]["type"]) == (status, "server_error")
    assert "hunter2" not in response.text
    assert "hunter2" in caplog.text


class TestStreams:
    def test_the_agents_pieces_come_first_and_the_reason_and_the_end_last(self) -> None:
        def way(emit: Emit) -> str:
            emit("one ")
            emit("two")
            return "one two"

        response = asked(way, stream=True, stream_options={"include_usage": True})
        assert response.headers["content-type"].startswith("text/event-stream")
        assert pieces(response) == ["one ", "two"]
        *_, reason, usage, end = events(response)
        assert reason["choices"][0]["finish_reason"] == "stop"
        assert usage["usage"]["completion_tokens"] == 0
        assert end == "data: [DONE]"

    def test_an_agent_that_emits_nothing_answers_in_one_piece_or_none(self) -> None:
        assert pieces(asked(stream=True)) == ["Hi."]
        response = asked(lambda emit: "", stream=True)
        assert pieces(response) == []
        assert events(response)[-1] == "data: [DONE]"

    def test_a_failure_after_the_first_piece_is_the_last_event(self) -> None:
        def way(emit: Emit) -> str:
            emit("one")
            raise RuntimeError("hunter2")

        response = asked(way, stream=True)
        assert (response.status_code, pieces(response)) == (200, ["one"])
        assert events(response)[-1]["error"]["message"] == "The agent failed"
        assert "[DONE]" not in response.text

    def test_a_silent_agent_keeps_the_connection_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(app_module, "KEEP_ALIVE_SECONDS", 0.001)
        commented = threading.Event()

        def way(emit: Emit) -> str:
            assert commented.wait(PATIENCE)
            return "Hi."

        async def ask() -> list[bytes]:
            sent: list[bytes] = []

            async def send(message: Any) -> None:
                sent.append(message.get("body", b""))
                if b"still at work" in sent[-1]:
                    commented.set()

            await request(create_app([Scripted(way)]), send, stream=True)
            return sent

        assert b"".join(asyncio.run(ask())).endswith(b"data: [DONE]\n\n")


async def request(app: Any, send: Any, gone: asyncio.Event | None = None, **body: Any) -> None:
    """Make a request by hand; the client leaves when `gone` is set."""
    content = json.dumps({"model": "gaia-scripted", "messages": HELLO, **body}).encode()
    messages = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    path = "/v1/chat/completions"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    async with app.router.lifespan_context(app):
        await app({**scope, "headers": [], "http_version": "1.1", "root_path": "", "scheme": "http"}, receive, send)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_the_agents_work(stream: bool) -> None:
    cancelled = threading.Event()

    async def leave() -> None:
        loop, gone = asyncio.get_running_loop(), asyncio.Event()

        def way(emit: Emit) -> str:
            scope = current_scope()
            assert scope is not None
            scope.on_cancel(cancelled.set)
            emit("one")
            loop.call_soon_threadsafe(gone.set)
            assert cancelled.wait(PATIENCE)
            return ""

        async def send(message: Any) -> None: ...

        await request(create_app([Scripted(way)]), send, gone, stream=stream)

    asyncio.run(leave())
    assert cancelled.is_set()


async def test_requests_beyond_the_limit_are_told_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(app_module.WorkerThreads):
        def __init__(self, limit: int) -> None:
            super().__init__(limit, waiting=0)

    monkeypatch.setattr(app_module, "WorkerThreads", Full)
    begun, let_go = threading.Event(), threading.Event()

    def way(emit: Emit) -> str:
        begun.set()
        assert let_go.wait(PATIENCE)
        return "Hi."

    body = {"model": "gaia-scripted", "messages": HELLO}
    async with served(way, max_threads=1) as client:
        first = asyncio.create_task(client.post("/v1/chat/completions", json=body))
        await asyncio.to_thread(begun.wait, 10)
        second = await client.post("/v1/chat/completions", json=body)
        assert (second.status_code, second.json()["error"]["type"]) == (429, "rate_limit_error")
        let_go.set()
        assert (await first).status_code == 200


def test_the_end_of_the_server_cancels_what_is_under_way() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    def way(emit: Emit) -> str:
        scope = current_scope()
        assert scope is not None
        scope.on_cancel(cancelled.set)
        begun.set()
        assert cancelled.wait(PATIENCE)
        return ""

    async def ask() -> None:
        body = {"model": "gaia-scripted", "messages": HELLO}
        app = create_app([Scripted(way)])
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            async with app.router.lifespan_context(app):
                under_way = asyncio.create_task(client.post("/v1/chat/completions", json=body))
                await asyncio.to_thread(begun.wait, 10)
            assert (await under_way).status_code == 499

    asyncio.run(ask())
    assert cancelled.is_set()
