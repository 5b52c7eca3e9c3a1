"""Calls a tool from the page. The client's filters and pins hold here as everywhere."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from gaia.cancellation import CancelScope
from gaia.dashboard import responses
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.errors import MCPError
from gaia.serving.http import disconnected
from gaia.serving.threads import TooManyCalls, WorkerThreads

__all__ = ["ToolRunner"]

_MAX_RESULT = 2 * 1024 * 1024
"""Bytes. A page shows no more, however much a server sends."""
_MAX_SECONDS = 3600


class ToolRunner:
    """``POST /api/try``: ``{"server": …, "tool": …, "arguments": {…}, "timeout": seconds or null}``."""

    def __init__(self, manager: MCPClientManager, threads: WorkerThreads) -> None:
        self._manager = manager
        self._threads = threads

    async def answer(self, request: Request) -> Response:
        try:
            wanted = _parse(await request.body())
        except ValueError as error:
            return responses.problem(400, str(error))
        client = self._manager.get_client(wanted.server)
        if client is None:
            return responses.problem(404, f"There is no connected server {wanted.server!r}")
        if (refusal := client.refusal_of(wanted.tool)) is not None:
            return responses.problem(403, refusal.message)
        scope = CancelScope()

        def call_tool() -> dict[str, Any]:
            with scope.entered():
                return client.call_tool(wanted.tool, wanted.arguments, timeout=wanted.timeout)

        call = asyncio.ensure_future(self._threads.run(call_tool))
        # When the user leaves the page or cancels, the server is told to stop too.
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
            # If this request itself was cancelled, its call is still running.
            call.cancel()
            scope.cancel()
        content = responses.encode(result)
        if len(content) > _MAX_RESULT:
            content = responses.encode({"error": f"The result has {len(content)} bytes, too many to be shown here."})
        return Response(content, media_type="application/json")


class _ToolRequest(NamedTuple):
    server: str
    tool: str
    arguments: dict[str, Any]
    timeout: float | None


def _parse(body: bytes) -> _ToolRequest:
    """What the page asks for. Raises ValueError, saying what is wrong."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("The body is not JSON") from None
    if not isinstance(document, dict):
        raise ValueError("The body is not an object")  # noqa: TRY004 - a wrong request, not a wrong type of ours
    for key in ("server", "tool"):
        if not (isinstance(document.get(key), str) and document[key]):
            raise ValueError(f"{key}: expected a name")
    arguments, timeout = document.get("arguments", {}), document.get("timeout")
    if not isinstance(arguments, dict):
        raise ValueError("arguments: expected an object")  # noqa: TRY004
    if timeout is not None and not (type(timeout) in (int, float) and 0 < timeout <= _MAX_SECONDS):
        raise ValueError(f"timeout: expected seconds, more than 0 and up to {_MAX_SECONDS}")
    return _ToolRequest(document["server"], document["tool"], arguments, timeout)
