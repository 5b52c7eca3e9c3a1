"""Requests that the page posts: what they have to contain, and work for them that ends when the page goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gaia.dashboard import responses
from gaia.mcp.errors import MCPError
from gaia.runtime.cancellation import CancelScope
from gaia.serving.guards import disconnected
from gaia.serving.threads import TooManyCalls, WorkerThreads

_MAX_RESULT = 2 * 1024 * 1024
"""Bytes. A page shows no more, however much a server sends."""
_MAX_SECONDS = 3600


class Fields:
    """The JSON object in the body of a request. Each method raises ValueError, saying what is wrong."""

    def __init__(self, body: bytes) -> None:
        try:
            document: Any = json.loads(body)
        except (ValueError, RecursionError):
            raise ValueError("The body is not JSON") from None
        if not isinstance(document, dict):
            raise ValueError("The body is not an object")  # noqa: TRY004 - a wrong request, not a wrong type of ours
        self._document = document

    def name(self, key: str) -> str:
        """A text that is not empty."""
        value = self._document.get(key)
        if not (isinstance(value, str) and value):
            raise ValueError(f"{key}: expected a name")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """An object; an empty one if it is left out."""
        value = self._document.get(key, {})
        if not isinstance(value, dict):
            raise ValueError(f"{key}: expected an object")  # noqa: TRY004
        return value

    def texts(self, key: str) -> dict[str, str]:
        """An object whose values are texts; an empty one if it is left out."""
        value = self.mapping(key)
        if wrong := next((name for name, text in value.items() if not isinstance(text, str)), None):
            raise ValueError(f"{key}: expected a text for {wrong!r}")
        return value

    def seconds(self, key: str) -> float | None:
        value = self._document.get(key)
        if value is not None and not (type(value) in (int, float) and 0 < value <= _MAX_SECONDS):
            raise ValueError(f"{key}: expected seconds, more than 0 and up to {_MAX_SECONDS}")
        return value


async def answer(request: Request, threads: WorkerThreads, ask: Callable[[], Any]) -> Response:
    """What `ask` returns, as JSON. It asks a server, on a thread.

    When the user leaves the page or cancels, the server is told to stop too. Expects that the body has been read.
    """
    scope = CancelScope()

    def asked() -> Any:
        with scope.entered():
            return ask()

    call = asyncio.ensure_future(threads.run(asked))
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
