"""`cancel_on_disconnect`: the calls of a web handler end when its client leaves. By itself the handler goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

_CLIENT_CLOSED = 499
"""The status that nginx has introduced for it. The client is gone, so only logs and middleware see it."""


class HandlersRequest(Protocol):
    """The part of Starlette's and FastAPI's `Request` that is used."""

    async def body(self) -> bytes: ...

    async def receive(self) -> Mapping[str, Any]: ...


@contextlib.asynccontextmanager
async def cancel_on_disconnect(request: HandlersRequest) -> AsyncIterator[None]:
    """Cancel the block when the client of `request` leaves; its calls to MCP servers are then cancelled there, too.

    The body of the request is read first; the handler can read it again. A cancelled block raises Starlette's
    ``HTTPException`` with the status 499, so that no server logs it as a failure.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine of asyncio runs in a task"
    cancelling = task.cancelling()
    with contextlib.suppress(RuntimeError):
        # Raised if the handler has read the body as a stream.
        await request.body()
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (await request.receive())["type"] != "http.disconnect":
            pass
        has_left = True
        task.cancel()

    watcher = asyncio.create_task(watch(), name="mcp-disconnects")
    try:
        yield
    except asyncio.CancelledError:
        # The task may be cancelled for another reason at the same time.
        if has_left and task.uncancel() <= cancelling:
            from starlette.exceptions import HTTPException

            raise HTTPException(_CLIENT_CLOSED, "the client has left") from None
        raise
    finally:
        watcher.cancel()
