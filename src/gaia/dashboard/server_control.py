"""Starts and stops servers for the page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from gaia.dashboard import page_requests, responses
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.serving.threads import TooManyCalls, WorkerThreads

ANSWER_SECONDS = 20.0
"""How long a request waits for a start or a stop, which goes on after that."""


class ServerControl:
    """``POST /api/restart`` and ``POST /api/stop``: ``{"server": …}``.

    The answer is ``{"server", "state", "failed", "error"}``. `state` is that of the server when the request is
    answered. `failed` says that it has no fresh process, and `error` what went wrong with it last, or None.
    """

    def __init__(self, manager: MCPClientManager, threads: WorkerThreads) -> None:
        self._manager = manager
        self._threads = threads

    async def restart(self, request: Request) -> Response:
        return await self._change(request, self._manager.restart)

    async def stop(self, request: Request) -> Response:
        return await self._change(request, self._manager.stop_server)

    async def _change(self, request: Request, change: Callable[[str], object]) -> Response:
        try:
            name = page_requests.Fields(await request.body()).name("server")
        except ValueError as error:
            return responses.problem(400, str(error))
        outcome: object = None
        try:
            # A page that goes away does not undo it, nor does an answer that comes before a thread was free for it.
            changing = asyncio.ensure_future(self._threads.run(lambda: change(name)))
            changing.add_done_callback(_look_at)
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
        answer = {"server": name, "state": status.state.value, "failed": outcome is False, "error": status.last_error}
        return responses.document(answer)


def _look_at(change: asyncio.Future[object]) -> None:
    """What it raises after its request was answered is in the server's status; asyncio would warn of it."""
    if not change.cancelled():
        change.exception()
