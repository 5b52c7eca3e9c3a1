"""Calls a tool from the page. The client's filters and pins hold here as everywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from opentelemetry import context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.requests import Request
from starlette.responses import Response

from gaia.dashboard import page_requests, responses
from gaia.dashboard.live_updates import UpdateBuffer
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.serving.threads import WorkerThreads

_SECONDS_BETWEEN_REPORTS = 0.1
"""Of progress: a server may report thousands in a second."""
_MAX_MESSAGE = 300
"""Characters of a report of progress."""


class ToolRunner:
    """``POST /api/try``: ``{"server": …, "tool": …, "arguments": {…}, "timeout": seconds or null}``.

    The page may send a ``traceparent`` header. The call is in that trace, and its progress is written into the update
    buffer under the header, so that the page recognises both.
    """

    def __init__(self, manager: MCPClientManager, threads: WorkerThreads, buffer: UpdateBuffer) -> None:
        self._manager = manager
        self._threads = threads
        self._buffer = buffer

    async def answer(self, request: Request) -> Response:
        try:
            fields = page_requests.Fields(await request.body())
            server, tool = fields.name("server"), fields.name("tool")
            arguments, timeout = fields.mapping("arguments"), fields.seconds("timeout")
        except ValueError as error:
            return responses.problem(400, str(error))
        client = self._manager.get_client(server)
        if client is None:
            return responses.problem(404, f"There is no connected server {server!r}")
        if (refusal := client._engine.refusal_of(tool)) is not None:
            return responses.problem(403, refusal.message)
        parent = request.headers.get("traceparent", "")

        def call_tool() -> dict[str, Any]:
            # The thread runs this in a copy of the request's context, so nothing has to be detached.
            context.attach(TraceContextTextMapPropagator().extract({"traceparent": parent}))
            return client.call_tool(tool, arguments, timeout=timeout, on_progress=self._reporter(parent))

        return await page_requests.answer(request, self._threads, call_tool)

    def _reporter(self, parent: str) -> Callable[[Any, Any, Any], None]:
        """Writes the progress of one call into the update buffer. Runs in the thread of the call."""
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


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) else None
