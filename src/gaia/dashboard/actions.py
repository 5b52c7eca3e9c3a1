"""The page's requests to servers: call a tool, show resources and prompts, restart, stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from opentelemetry import context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gaia.dashboard import responses
from gaia.dashboard.live_updates import UpdateBuffer
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.errors import MCPError
from gaia.runtime.cancellation import CancelScope
from gaia.serving.guards import disconnected
from gaia.serving.threads import TooManyCalls, WorkerThreads

ANSWER_SECONDS = 20.0
"""How long a request waits for a restart or a stop, which continues afterwards."""
_MAX_RESULT = 2 * 1024 * 1024
_SECONDS_BETWEEN_REPORTS = 0.1
"""Between two reports of progress, because a server may report thousands in a second."""
_MAX_MESSAGE = 300

_Name = Annotated[str, msgspec.Meta(min_length=1)]


class PageRequest(msgspec.Struct):
    server: _Name


class ToolRequest(PageRequest):
    tool: _Name
    arguments: dict[str, Any] = {}
    timeout: Annotated[float, msgspec.Meta(gt=0, le=3600)] | None = None


class ResourceRequest(PageRequest):
    uri: _Name


class PromptRequest(PageRequest):
    prompt: _Name
    arguments: dict[str, str] = {}


AskedT = TypeVar("AskedT", bound=PageRequest)


class Actions:
    """The endpoints ``POST /api/<action>``.

    - ``try`` calls a tool, see `ToolRequest`. The client's filters and pins apply. The call is in the trace of the
      header ``traceparent``. Its progress goes into the update buffer under that header, by which the page recognises
      both.
    - ``resources`` answers ``{"resources": […], "templates": […]}``, and ``resource`` reads one.
    - ``prompts`` answers ``{"prompts": […]}``, and ``prompt`` gets one.
    - ``restart`` and ``stop`` answer ``{"server", "state", "failed", "error"}``. `state` is the server's state when the
      request is answered. `failed` says that it has no fresh process, and `error` is its last error.
    """

    def __init__(self, manager: MCPClientManager, threads: WorkerThreads, buffer: UpdateBuffer) -> None:
        self._manager = manager
        self._threads = threads
        self._buffer = buffer

    def routes(self, *, of_gateway: bool) -> list[Route]:
        """The routes. A gateway's operators own its servers, so this page cannot restart or stop them."""
        endpoints = {
            "try": _endpoint(ToolRequest, self.call_tool),
            "resources": self._question(PageRequest, _resources),
            "resource": self._question(ResourceRequest, lambda client, asked: client.read_resource(asked.uri)),
            "prompts": self._question(PageRequest, lambda client, _: {"prompts": client.list_prompts()}),
            "prompt": self._question(PromptRequest, lambda client, it: client.get_prompt(it.prompt, it.arguments)),
        }
        if not of_gateway:
            for name, change in (("restart", self._manager.restart), ("stop", self._manager.stop_server)):
                endpoints[name] = self._change(change)
        return [Route(f"/api/{name}", endpoint, methods=["POST"]) for name, endpoint in endpoints.items()]

    async def call_tool(self, request: Request, asked: ToolRequest) -> Response:
        client = self._manager.get_client(asked.server)
        if client is None:
            return _not_connected(asked)
        if (refusal := client._engine.refusal_of(asked.tool)) is not None:
            return responses.problem(403, refusal.message)
        parent = request.headers.get("traceparent", "")

        def call_tool() -> dict[str, Any]:
            # The thread runs this in a copy of the request's context, so nothing has to be detached.
            context.attach(TraceContextTextMapPropagator().extract({"traceparent": parent}))
            return client.call_tool(
                asked.tool, asked.arguments, timeout=asked.timeout, on_progress=self.progress_of(parent)
            )

        return await self._answer(request, call_tool)

    def progress_of(self, parent: str) -> Callable[[Any, Any, Any], None]:
        """A function that writes one call's progress into the update buffer. It runs in the call's thread."""
        next_at = 0.0

        def report(progress: Any, total: Any, message: Any) -> None:
            nonlocal next_at
            now = time.monotonic()
            if now < next_at:
                return
            next_at = now + _SECONDS_BETWEEN_REPORTS
            text = message[:_MAX_MESSAGE] if isinstance(message, str) else None
            self._buffer.write(
                "progress", {"call": parent, "progress": _number(progress), "total": _number(total), "message": text}
            )

        return report

    def _question(self, kind: type[AskedT], ask: Callable[[MCPClient, AskedT], Any]) -> Endpoint:
        async def handle(request: Request, asked: AskedT) -> Response:
            client = self._manager.get_client(asked.server)
            if client is None:
                return _not_connected(asked)
            return await self._answer(request, lambda: ask(client, asked))

        return _endpoint(kind, handle)

    async def _answer(self, request: Request, ask: Callable[[], Any]) -> Response:
        """Answer with the result of `ask`, as JSON. `ask` requests it from a server on a thread.

        If the user leaves the page or cancels, the server's request is cancelled too. The request's body must have been
        read before.
        """
        scope = CancelScope()

        def asked() -> Any:
            with scope.entered():
                return ask()

        call = asyncio.ensure_future(self._threads.run(asked))
        gone = asyncio.ensure_future(disconnected(request.receive))
        try:
            await asyncio.wait({call, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                scope.cancel()
            result = await call
        except TooManyCalls:
            return responses.problem(503, "Too many calls are under way")
        except (MCPError, ValueError) as error:
            return responses.problem(409, str(error))
        finally:
            gone.cancel()
            # If this request itself was cancelled, its call still runs.
            call.cancel()
            scope.cancel()
        content = responses.encode(result)
        if len(content) > _MAX_RESULT:
            content = responses.encode({"error": f"The result has {len(content)} bytes, too many to be shown here."})
        return Response(content, media_type="application/json")

    def _change(self, change: Callable[[str], object]) -> Endpoint:
        async def handle(_request: Request, asked: PageRequest) -> Response:
            name = asked.server
            outcome: object = None
            try:
                # The change continues if the page goes away, or if this handler answers before a thread was free.
                changing = asyncio.ensure_future(self._threads.run(lambda: change(name)))
                changing.add_done_callback(_retrieve_error)
                outcome = await asyncio.wait_for(asyncio.shield(changing), ANSWER_SECONDS)
            except TimeoutError:
                pass
            except TooManyCalls:
                return responses.problem(503, "Too many calls are under way")
            except ValueError as error:
                return responses.problem(409, str(error))
            status = next((status for status in self._manager.status() if status.name == name), None)
            if status is None:
                return responses.problem(404, f"Server {name!r} was removed meanwhile")
            state, failed = status.state.value, outcome is False
            return responses.document({"server": name, "state": state, "failed": failed, "error": status.last_error})

        return _endpoint(PageRequest, handle)


Endpoint = Callable[[Request], Awaitable[Response]]


def _endpoint(kind: type[AskedT], handle: Callable[[Request, AskedT], Awaitable[Response]]) -> Endpoint:
    """An endpoint that decodes the body as `kind` for `handle`, and answers other bodies with an error."""

    async def endpoint(request: Request) -> Response:
        try:
            asked = msgspec.json.decode(await request.body(), type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            return responses.problem(400, f"The body cannot be used: {error}")
        return await handle(request, asked)

    return endpoint


def _resources(client: MCPClient, _: PageRequest) -> dict[str, Any]:
    return {"resources": client.list_resources(), "templates": client.list_resource_templates()}


def _not_connected(asked: PageRequest) -> Response:
    return responses.problem(404, f"There is no connected server {asked.server!r}")


def _retrieve_error(change: asyncio.Future[object]) -> None:
    """Retrieve the exception, so that asyncio does not warn. The server's status shows the error."""
    if not change.cancelled():
        change.exception()


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) else None
