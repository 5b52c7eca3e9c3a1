"""Calls that a framework may make again, although the server may have acted on the first one.

Adapters of this package use `CallsInDoubt`; so can those that you write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from gaia.mcp import MCPTool, ToolResult
from gaia.mcp.errors import CallCancelled

__all__ = ["CallsInDoubt"]

Request = TypeVar("Request")
_KEPT = 100
_INTERRUPTED = "the call was interrupted before its answer came"


class CallsInDoubt(Generic[Request]):
    """The last 100 calls whose outcome is not known, of tools that are not safe to repeat. Thread-safe."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Request, ToolResult]] = deque(maxlen=_KEPT)
        """`append` and `copy` are single operations, so no lock is needed."""

    async def make(
        self,
        tool: MCPTool,
        request: Request,
        repeats: Callable[[Request], bool],
        call: Callable[[], Awaitable[ToolResult]],
    ) -> ToolResult:
        """The result of `call`, or that of an earlier one that is in doubt, if this request `repeats` the earlier one.

        `request` is what the framework says of the request. A call that is cancelled is in doubt too.
        """
        if (earlier := self._earlier(repeats)) is not None:
            return earlier
        result = ToolResult.from_error(CallCancelled(_INTERRUPTED, delivery="unknown"))
        try:
            result = await call()
        finally:
            self._keep(tool, request, result)
        return result

    def make_sync(
        self, tool: MCPTool, request: Request, repeats: Callable[[Request], bool], call: Callable[[], ToolResult]
    ) -> ToolResult:
        """Like `make`, for a `call` that blocks. One that an exception ends, such as KeyboardInterrupt, is in doubt."""
        if (earlier := self._earlier(repeats)) is not None:
            return earlier
        result = ToolResult.from_error(CallCancelled(_INTERRUPTED, delivery="unknown"))
        try:
            result = call()
        finally:
            self._keep(tool, request, result)
        return result

    def _earlier(self, repeats: Callable[[Request], bool]) -> ToolResult | None:
        return next((result for earlier, result in self._calls.copy() if repeats(earlier)), None)

    def _keep(self, tool: MCPTool, request: Request, result: ToolResult) -> None:
        if result.get("delivery") == "unknown" and not tool.safe_to_repeat:
            self._calls.append((request, result))
