"""The resources and prompts of a server, for the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gaia.dashboard import page_requests, responses
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.serving.threads import WorkerThreads

Json = dict[str, Any]
Ask = Callable[[MCPClient, page_requests.Fields], Callable[[], Any]]
"""From the client and the request's fields to the question; raises ValueError for fields that are wrong."""


class ServerContent:
    """What servers offer besides tools. All are POST requests with ``{"server": …}``.

    - ``/api/resources`` answers ``{"resources": […], "templates": […]}``,
    - ``/api/resource`` reads one: ``"uri"``,
    - ``/api/prompts`` answers ``{"prompts": […]}``,
    - ``/api/prompt`` gets one: ``"prompt"``, and ``"arguments"``, whose values are texts.
    """

    def __init__(self, manager: MCPClientManager, threads: WorkerThreads) -> None:
        self._manager = manager
        self._threads = threads

    async def resources(self, request: Request) -> Response:
        return await self._answer(request, lambda client, _: lambda: _resources(client))

    async def resource(self, request: Request) -> Response:
        def ask(client: MCPClient, fields: page_requests.Fields) -> Callable[[], Any]:
            uri = fields.name("uri")
            return lambda: client.read_resource(uri)

        return await self._answer(request, ask)

    async def prompts(self, request: Request) -> Response:
        return await self._answer(request, lambda client, _: lambda: {"prompts": client.list_prompts()})

    async def prompt(self, request: Request) -> Response:
        def ask(client: MCPClient, fields: page_requests.Fields) -> Callable[[], Any]:
            name, arguments = fields.name("prompt"), fields.texts("arguments")
            return lambda: client.get_prompt(name, arguments)

        return await self._answer(request, ask)

    async def _answer(self, request: Request, ask: Ask) -> Response:
        try:
            fields = page_requests.Fields(await request.body())
            name = fields.name("server")
            client = self._manager.get_client(name)
            if client is None:
                return responses.problem(404, f"There is no connected server {name!r}")
            question = ask(client, fields)
        except ValueError as error:
            return responses.problem(400, str(error))
        return await page_requests.answer(request, self._threads, question)


def _resources(client: MCPClient) -> Json:
    return {"resources": client.list_resources(), "templates": client.list_resource_templates()}
