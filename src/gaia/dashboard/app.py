"""`DashboardApp`: the routes of the page and of its API."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import PurePath
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gaia.dashboard import responses, servers
from gaia.dashboard.actions import Actions
from gaia.dashboard.live_updates import UpdateBuffer, UpdateStream
from gaia.dashboard.servers import GatewayWatch
from gaia.dashboard.stores import SECONDS_AFTER_CALL, LogStore, SpanStore
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.serving.guards import Message, Receive, Scope, Send
from gaia.serving.threads import WorkerThreads
from gaia.telemetry import attributes as names

_STATIC = resources.files("gaia.dashboard").joinpath("static")
_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_PAGE = {"/": "index.html"} | {
    f"/{file.name}": file.name for file in _STATIC.iterdir() if file.name.endswith((".css", ".js"))
}

_MAX_THREADS = 8
_MAX_WAITING = 32
_MAX_READERS = 16


class DashboardApp:
    """The ASGI application without its guard. An application that mounts it must check Host, Origin and token."""

    open_paths = frozenset(_PAGE)
    """Paths without a token: the page is the same for every user, and a browser cannot send a token for it."""

    def __init__(self, manager: MCPClientManager, gateway: GatewayWatch | None = None) -> None:
        """With a `gateway`, the page shows the gateway, and the servers of `manager` are the gateway's servers."""
        self._manager = manager
        self._gateway = gateway
        buffer = UpdateBuffer()
        self._spans = SpanStore(buffer)
        self._logs = LogStore()
        self._timeline = servers.Timeline(buffer)
        self._unsubscribe: Callable[[], None] | None = None
        self._threads = WorkerThreads(_MAX_THREADS, _MAX_WAITING)
        sources = {
            "gateway": lambda: None if gateway is None else gateway.document(),
            "servers": self._rows,
            "running": self._spans.running,
            "calls": self._spans.calls,
            "events": self._timeline.events,
        }
        self.stream = UpdateStream(buffer, sources)
        page = [Route(path, _file(name)) for path, name in _PAGE.items()]
        api = [
            Route("/api/state", self._state),
            Route("/api/events", self._events),
            Route("/api/server", self._server),
            Route("/api/call", self._call),
            *Actions(manager, self._threads, buffer).routes(of_gateway=gateway is not None),
        ]
        self._app = Starlette(routes=[*page, *api])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(responses.HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def collect(self, log_level: int | None) -> None:
        """Start to collect the page's data. `log_level` is set on gaia's logger; None leaves it unchanged."""
        if self._unsubscribe is None:
            if self._gateway is None:
                self._timeline.begin(self._manager)
                self._unsubscribe = self._manager.subscribe(self._timeline)
            else:
                self._unsubscribe = self._gateway.start(self._timeline.add_state)
            self._logs.attach(log_level)
            self._spans.attach()

    def close(self) -> None:
        """Stop collecting, end the streams and release the threads. Any thread may call it, also repeatedly."""
        self.stream.close()
        self._threads.close()
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()
            self._logs.detach()
            self._spans.close()

    def _rows(self) -> list[dict[str, Any]]:
        return servers.statuses(self._manager) if self._gateway is None else self._gateway.rows()

    async def _state(self, _request: Request) -> Response:
        return responses.document(self.stream.snapshot())

    async def _events(self, _request: Request) -> Response:
        if self.stream.readers >= _MAX_READERS:
            return responses.problem(503, f"{_MAX_READERS} pages are watching already")
        return StreamingResponse(self.stream.events(), media_type="text/event-stream")

    async def _server(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        # On a thread, because the client may have to ask the server for its tools.
        about = await self._threads.run(lambda: servers.describe(self._manager, name, self._rows()))
        if about is None:
            return responses.problem(404, f"There is no server {name!r}")
        return responses.document(about)

    async def _call(self, request: Request) -> Response:
        trace_id, span_id = (request.query_params.get(key, "") for key in ("trace", "span"))
        spans = self._spans.related(trace_id, span_id)
        call = next((span for span in spans if span["span_id"] == span_id), None)
        if call is None:
            return responses.problem(404, "This call is no longer kept; the page shows the last ones only")
        server = call["attributes"].get(names.SERVER_NAME)
        ended = None if call["seconds"] is None else call["started"] + call["seconds"] + SECONDS_AFTER_CALL
        logs = self._logs.of_traces({span["trace_id"] for span in spans}, server, call["started"], ended)
        return responses.document({"call": call, "spans": spans, "logs": logs})


def _file(name: str) -> Any:
    content = _STATIC.joinpath(name).read_bytes()
    media_type = f"{_MEDIA_TYPES[PurePath(name).suffix]}; charset=utf-8"

    async def answer(_request: Request) -> Response:
        return Response(content, headers={"content-type": media_type})

    return answer
