"""Calling a tool from the page. Filters are the client's: what is denied is refused here as everywhere."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gaia.cancellation import CancelScope
from gaia.dashboard import responses
from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.errors import MCPError
from gaia.serving.threads import TooManyCalls, WorkerThreads

__all__ = ["Trying"]

_LARGEST_RESULT = 2 * 1024 * 1024
"""Bytes. A page shows no more, however much a server sends."""
_MAX_SECONDS = 3600


class Trying:
    """``POST /api/try``: ``{"server": …, "tool": …, "arguments": {…}, "timeout": seconds or null}``."""

    def __init__(self, manager: MCPClientManager, threads: WorkerThreads) -> None:
        self._manager = manager
        self._threads = threads

    async def answer(self, request: Request) -> Response:
        try:
            wanted = _Wanted(await request.body())
        except ValueError as error:
            return responses.problem(400, str(error))
        client = self._manager.get_client(wanted.server)
        if client is None:
            return responses.problem(404, f"There is no connected server {wanted.server!r}")
        if (refusal := client.refusal_of(wanted.tool)) is not None:
            return responses.problem(403, refusal.message)
        scope = CancelScope()
        call = asyncio.ensure_future(self._threads.run(lambda: _call(client, wanted, scope)))
        # A page that goes away, or cancels, wants the server to stop too.
        gone = asyncio.ensure_future(_disconnected(request))
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
            # For when it is this request that was cancelled: nobody waits for the call any more.
            call.cancel()
            scope.cancel()
        content = responses.encode(result)
        if len(content) > _LARGEST_RESULT:
            content = responses.encode({"error": f"The result has {len(content)} bytes, too many to be shown here."})
        return Response(content, media_type="application/json")


class _Wanted:
    """What the page asks for. Raises ValueError, saying what is wrong."""

    def __init__(self, body: bytes) -> None:
        try:
            document: Any = json.loads(body)
        except (ValueError, RecursionError):
            raise ValueError("The body is not JSON") from None
        if not isinstance(document, dict):
            raise ValueError("The body is not an object")  # noqa: TRY004 - a wrong request, not a wrong type of ours
        self.server = _string(document, "server")
        self.tool = _string(document, "tool")
        self.arguments = document.get("arguments", {})
        if not isinstance(self.arguments, dict):
            raise ValueError("arguments: expected an object")  # noqa: TRY004
        self.timeout = document.get("timeout")
        if self.timeout is not None and not (type(self.timeout) in (int, float) and 0 < self.timeout <= _MAX_SECONDS):
            raise ValueError(f"timeout: expected seconds, more than 0 and up to {_MAX_SECONDS}")


def _string(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key}: expected a name")
    return value


def _call(client: MCPClient, wanted: _Wanted, scope: CancelScope) -> dict[str, Any]:
    with scope.entered():
        return client.call_tool(wanted.tool, wanted.arguments, timeout=wanted.timeout)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
