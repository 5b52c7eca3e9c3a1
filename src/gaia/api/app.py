"""The routes of OpenAI's API for agents: ``/v1/models`` and ``/v1/chat/completions``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gaia.agents.base import ApiAgent
from gaia.agents.base.llm import LLMError, LLMNotConfigured, LLMNotInstalled
from gaia.api.chat_completions import (
    Answer,
    Reply,
    RequestFailed,
    answer,
    checked_messages,
    event,
    model_document,
    parse,
)
from gaia.runtime.cancellation import CancelScope
from gaia.runtime.log import exception_text, get_logger
from gaia.serving.guards import disconnected
from gaia.serving.http import run_http
from gaia.serving.options import HttpOptions
from gaia.serving.threads import TooManyCalls, WorkerThreads

logger = get_logger(__name__)

PATH = "/v1"

KEEP_ALIVE_SECONDS = 15.0
"""Seconds of silence after which a streaming client gets a comment, so that no proxy closes the connection."""


class _Work:
    def __init__(self, threads: WorkerThreads, agent: ApiAgent, messages: list[dict[str, Any]]) -> None:
        loop = asyncio.get_running_loop()
        self.scope = CancelScope()
        self.pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def emit(text: str) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.pieces.put_nowait, text)

        def work() -> Answer:
            with self.scope.entered():
                return answer(agent, messages, emit)

        self.task = asyncio.create_task(threads.run(work))
        self.task.add_done_callback(lambda _: self.pieces.put_nowait(None))

    def cancel(self) -> None:
        self.scope.cancel()
        self.task.cancel()

    def failure(self) -> RequestFailed | None:
        """The error of finished work. The client gets a general message, and the log the cause."""
        error = None if self.task.cancelled() else self.task.exception()
        if error is None:
            return None
        if isinstance(error, TooManyCalls):
            return RequestFailed(429, "Too many requests at once", "rate_limit_error")
        logger.error("agent_failed", error=exception_text(error))
        if isinstance(error, (LLMNotConfigured, LLMNotInstalled)):
            return RequestFailed(503, "The agent has no model to work with", "server_error")
        if isinstance(error, LLMError):
            return RequestFailed(502, "The agent's model failed", "server_error")
        return RequestFailed(500, "The agent failed", "server_error")


class Api:
    def __init__(self, agents: Iterable[ApiAgent], threads: WorkerThreads) -> None:
        self._threads = threads
        self._agents = {agent.get_model_id(): agent for agent in agents}
        self._working: set[_Work] = set()

    async def models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model_document(agent) for agent in self._agents.values()]})

    async def model(self, request: Request) -> Response:
        return JSONResponse(model_document(self._agent(request.path_params["model"])))

    async def chat(self, request: Request) -> Response:
        try:
            wanted = parse(await request.body())
        except ClientDisconnect:
            return Response(status_code=499)
        agent = self._agent(wanted.model)
        messages = checked_messages(wanted.messages)
        reply = Reply(agent.get_model_id())
        work = _Work(self._threads, agent, messages)
        self._working.add(work)
        work.task.add_done_callback(lambda _: self._working.discard(work))
        if wanted.stream:
            # Wait for the first piece or the end, so that an early failure still has an HTTP status of its own.
            first = await _next_piece(work)
            if first is None and (failed := work.failure()):
                raise failed
            with_usage = bool(wanted.stream_options and wanted.stream_options.include_usage)
            return StreamingResponse(_stream(work, reply, first, with_usage), media_type="text/event-stream")
        gone = asyncio.create_task(disconnected(request.receive))
        try:
            await asyncio.wait({gone, work.task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not work.task.done():
                work.cancel()
        if not work.task.done() or work.task.cancelled():
            return Response(status_code=499)
        if failed := work.failure():
            raise failed
        return JSONResponse(reply.whole(work.task.result()))

    def stop(self) -> None:
        for work in tuple(self._working):
            work.cancel()

    def _agent(self, name: str | None) -> ApiAgent:
        agent = None if name is None else self._agents.get(name)
        if agent is None:
            raise RequestFailed(404, f"There is no model {name!r}", code="model_not_found")
        return agent


async def _next_piece(work: _Work) -> str | None:
    """A piece of the answer; an empty piece after some seconds of silence; None at the end."""
    try:
        return await asyncio.wait_for(work.pieces.get(), KEEP_ALIVE_SECONDS)
    except TimeoutError:
        return ""


async def _stream(work: _Work, reply: Reply, piece: str | None, with_usage: bool) -> AsyncIterator[bytes]:
    emitted = False
    try:
        yield reply.chunk({"role": "assistant", "content": ""})
        while piece is not None:
            emitted |= bool(piece)
            yield reply.chunk({"content": piece}) if piece else b": still at work\n\n"
            piece = await _next_piece(work)
        if failed := work.failure():
            yield event(failed.document())
            return
        answered = work.task.result()
        if answered.text and not emitted:
            yield reply.chunk({"content": answered.text})
        yield reply.chunk({}, answered.finish_reason)
        if with_usage:
            yield reply.usage(answered.usage)
        yield b"data: [DONE]\n\n"
    finally:
        # Also when the client has disconnected.
        work.cancel()


async def _failed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestFailed)
    return JSONResponse(error.document(), error.status)


def create_app(agents: Iterable[ApiAgent], *, max_threads: int = 32) -> Starlette:
    """The ASGI application without its guard. At most `max_threads` requests run at once."""
    threads = WorkerThreads(max_threads)
    api = Api(agents, threads)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        api.stop()
        threads.close()

    return Starlette(
        routes=[
            Route(f"{PATH}/models", api.models),
            Route(PATH + "/models/{model:path}", api.model),
            Route(f"{PATH}/chat/completions", api.chat, methods=["POST"]),
        ],
        exception_handlers={RequestFailed: _failed},
        lifespan=lifespan,
    )


def serve(
    agents: Iterable[ApiAgent],
    options: HttpOptions | None = None,
    started: Callable[[str], None] | None = None,
    **limits: Any,
) -> None:
    """Serve `agents` until SIGTERM or SIGINT. `limits` go to `create_app`."""
    options = options or HttpOptions()
    app = create_app(agents, **limits)
    run_http(app, options, None if started is None else lambda url: started(url + PATH))
