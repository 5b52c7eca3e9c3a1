"""`CallsInDoubt`: calls that a framework may repeat, although the server may have acted on them.

Applications may use it for adapters of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from gaia.mcp import MCPTool, ToolResult
from gaia.mcp.errors import CallCancelled

__all__ = ["CallsInDoubt"]

Request = TypeVar("Request")
_KEPT = 100
_INTERRUPTED = "the call was interrupted before its answer came"


class CallsInDoubt(Generic[Request]):
    """The last 100 calls with an unknown outcome whose tools are not safe to repeat. Thread-safe."""

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
        """The result of `call`, or of an earlier call in doubt that this request `repeats`.

        `request` is the framework's description of the request. A cancelled call is in doubt too.
        """
        if (earlier := self._earlier(repeats)) is not None:
            return earlier
        with self._noted(tool, request) as results:
            results.append(await call())
        return results[-1]

    def make_sync(
        self, tool: MCPTool, request: Request, repeats: Callable[[Request], bool], call: Callable[[], ToolResult]
    ) -> ToolResult:
        """Like `make`, for a blocking `call`.

        A call that ends with an exception such as KeyboardInterrupt is in doubt.
        """
        if (earlier := self._earlier(repeats)) is not None:
            return earlier
        with self._noted(tool, request) as results:
            results.append(call())
        return results[-1]

    def _earlier(self, repeats: Callable[[Request], bool]) -> ToolResult | None:
        return next((result for earlier, result in self._calls.copy() if repeats(earlier)), None)

    @contextmanager
    def _noted(self, tool: MCPTool, request: Request) -> Iterator[list[ToolResult]]:
        """Remember the call if its last result leaves the outcome unknown."""
        results = [ToolResult.from_error(CallCancelled(_INTERRUPTED, delivery="unknown"))]
        try:
            yield results
        finally:
            if results[-1].get("delivery") == "unknown" and not tool.safe_to_repeat:
                self._calls.append((request, results[-1]))
