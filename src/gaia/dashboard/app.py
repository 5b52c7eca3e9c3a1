"""The routes: a page of three files, and the API behind it."""

from __future__ import annotations

from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gaia.dashboard import responses, servers
from gaia.dashboard.journal import Journal
from gaia.dashboard.logs import LogStore
from gaia.dashboard.span_store import AFTERMATH, SpanStore
from gaia.dashboard.stream import Stream
from gaia.dashboard.timeline import Timeline
from gaia.dashboard.trying import Trying
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.serving.guards import App, Message, Receive, Scope, Send
from gaia.serving.threads import WorkerThreads
from gaia.telemetry import attributes as names

__all__ = ["PAGE", "DashboardApp"]

PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/dashboard.css": ("dashboard.css", "text/css; charset=utf-8"),
    "/dashboard.js": ("dashboard.js", "text/javascript; charset=utf-8"),
}
"""What needs no token: it is the same for everybody, and a browser cannot send one for it."""

_THREADS = 8
_WAITING = 32
_READERS = 16
"""Pages that may watch at once."""


class DashboardApp:
    """The ASGI application without its guard: whoever mounts it elsewhere checks Host, Origin and token there."""

    def __init__(
        self, manager: MCPClientManager, journal: Journal, spans: SpanStore, logs: LogStore, timeline: Timeline
    ) -> None:
        self._manager = manager
        self._spans = spans
        self._logs = logs
        self._timeline = timeline
        self._threads = WorkerThreads(_THREADS, _WAITING)
        self.stream = Stream(journal, self._everything, lambda: servers.statuses(manager), spans.running)
        page = [Route(path, _file(name, kind)) for path, (name, kind) in PAGE.items()]
        api = [
            Route("/api/state", self._state),
            Route("/api/events", self._events),
            Route("/api/server", self._server),
            Route("/api/call", self._call),
            Route("/api/try", Trying(manager, self._threads).answer, methods=["POST"]),
        ]
        self._app: App = _with_headers(Starlette(routes=[*page, *api]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def close(self) -> None:
        """End the streams, and let go of the threads. May be called from any thread."""
        self.stream.close()
        self._threads.close()

    def _everything(self) -> dict[str, Any]:
        return {
            "servers": servers.statuses(self._manager),
            "running": self._spans.running(),
            "calls": self._spans.calls(),
            "events": self._timeline.events(),
        }

    async def _state(self, _request: Request) -> Response:
        return responses.Answer(self._everything())

    async def _events(self, _request: Request) -> Response:
        if self.stream.readers >= _READERS:
            return responses.problem(503, f"{_READERS} pages are watching already")
        return StreamingResponse(self.stream.events(), media_type="text/event-stream")

    async def _server(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        # It may have to ask the server for its tools.
        about = await self._threads.run(lambda: servers.describe(self._manager, name))
        return responses.problem(404, f"There is no server {name!r}") if about is None else responses.Answer(about)

    async def _call(self, request: Request) -> Response:
        trace_id, span_id = (request.query_params.get(key, "") for key in ("trace", "span"))
        spans = self._spans.story(trace_id, span_id)
        call = next((span for span in spans if span["span_id"] == span_id), None)
        if call is None:
            return responses.problem(404, "This call is no longer kept; the page shows the last ones only")
        server = call["attributes"].get(names.SERVER_NAME)
        ended = None if call["seconds"] is None else call["started"] + call["seconds"] + AFTERMATH
        logs = self._logs.of_traces({span["trace_id"] for span in spans}, server, call["started"], ended)
        return responses.Answer({"call": call, "spans": spans, "logs": logs})


def _file(name: str, media_type: str) -> Any:
    content = resources.files("gaia.dashboard").joinpath("static", name).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(content, headers={"content-type": media_type})

    return answer


def _with_headers(app: App) -> App:
    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(responses.HEADERS)
            await send(message)

        await app(scope, receive, send_with_headers)

    return wrapped
