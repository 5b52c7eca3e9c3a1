from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gaia.adapters.calls_in_doubt import CallsInDoubt
from gaia.mcp import MCPTool, ToolResult

UNSAFE = MCPTool("pay", "", {})
SAFE = MCPTool("look", "", {}, annotations={"readOnlyHint": True})
ANSWER = ToolResult({"content": []})
LOST = ToolResult({"error": "lost", "error_type": "server_crashed", "delivery": "unknown"})
NOT_SENT = ToolResult({"error": "down", "error_type": "server_unavailable", "delivery": "not_sent"})


class Server:
    """Gives its results, one for each call."""

    def __init__(self, *results: ToolResult) -> None:
        self.results = list(results)

    async def call(self) -> ToolResult:
        return self.results.pop(0)

    def make_twice(self, tool: MCPTool, second: Any = "request") -> list[ToolResult]:
        async def make() -> list[ToolResult]:
            calls: CallsInDoubt[Any] = CallsInDoubt()
            return [
                await calls.make(tool, request, lambda earlier, request=request: earlier == request, self.call)  # type: ignore[misc]
                for request in ("request", second)
            ]

        return asyncio.run(make())


@pytest.mark.parametrize(
    ("tool", "second", "results"),
    [
        (UNSAFE, "request", [LOST, LOST]),
        (UNSAFE, "request", [ANSWER, ANSWER]),
        (UNSAFE, "request", [NOT_SENT, ANSWER]),
        (SAFE, "request", [LOST, ANSWER]),
        (UNSAFE, "another", [LOST, ANSWER]),
    ],
    ids=["unknown", "answered", "not sent", "safe to repeat", "another request"],
)
def test_only_a_call_whose_outcome_is_not_known_is_not_made_again(
    tool: MCPTool, second: str, results: list[ToolResult]
) -> None:
    assert Server(results[0], ANSWER).make_twice(tool, second) == results


def test_a_call_that_is_cancelled_is_in_doubt() -> None:
    async def cancel_and_make() -> ToolResult:
        calls: CallsInDoubt[str] = CallsInDoubt()
        under_way = asyncio.Event()

        async def call() -> ToolResult:
            under_way.set()
            await asyncio.Event().wait()
            return ANSWER

        first = asyncio.create_task(calls.make(UNSAFE, "request", "request".__eq__, call))
        await under_way.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await calls.make(UNSAFE, "request", "request".__eq__, call)

    result = asyncio.run(cancel_and_make())

    assert (result["error_type"], result["delivery"]) == ("cancelled", "unknown")


def test_a_call_that_blocks_is_not_made_again_either() -> None:
    calls: CallsInDoubt[str] = CallsInDoubt()

    made = [
        calls.make_sync(UNSAFE, "request", lambda earlier: earlier == "request", lambda result=result: result)  # type: ignore[misc]
        for result in (LOST, ANSWER)
    ]

    assert made == [LOST, LOST]


def test_a_call_that_is_interrupted_is_in_doubt() -> None:
    calls: CallsInDoubt[str] = CallsInDoubt()

    def interrupted() -> ToolResult:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calls.make_sync(UNSAFE, "request", lambda _: False, interrupted)

    assert calls.make_sync(UNSAFE, "request", lambda _: True, lambda: ANSWER).get("delivery") == "unknown"
