"""A fake server behind a URL, and the faults on the way to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gaia.agents.base.mcp_context import MCPContext
from gaia.mcp import MCPClientManager
from gaia.testing import FakeServer, FakeTool
from gaia.testing.fake_http import FakeHttp

REVISIONS = ["2025-11-25", "2026-07-28"]


def sell(item: str) -> str:
    return f"sold {item}"


def read() -> str:
    return "ten hats"


def steps(context: MCPContext) -> str:
    context.report_progress(1, 2)
    context.report_progress(2, 2)
    return "done"


def ask(context: MCPContext) -> str:
    answer = context.elicit("How many?", {"type": "object", "properties": {"nights": {"type": "integer"}}})
    return f"{answer['content']['nights']} nights"


@pytest.fixture(params=REVISIONS)
def server(request: pytest.FixtureRequest) -> FakeServer:
    safe = FakeTool(read, annotations={"readOnlyHint": True})
    return FakeServer("shop", tools=[sell, safe, steps, ask], protocol=request.param)


@pytest.fixture
def endpoint(server: FakeServer) -> Iterator[FakeHttp]:
    with server.over_http() as endpoint:
        yield endpoint


@pytest.fixture
def manager(endpoint: FakeHttp) -> Iterator[MCPClientManager]:
    entry: dict[str, Any] = {"url": endpoint.url, "restart": {"initialDelay": 0.01}}
    with MCPClientManager({"shop": entry}, on_elicitation=lambda request: request.accept({"nights": 3})) as manager:
        manager.require()
        yield manager


def test_calls_with_progress_and_questions_work_over_http(server: FakeServer, manager: MCPClientManager) -> None:
    reports: list[Any] = []

    assert manager.call_tool("mcp_shop_sell", {"item": "hat"}).text == "sold hat"
    assert manager.call_tool("mcp_shop_steps", on_progress=lambda *report: reports.append(report)).text == "done"
    assert manager.call_tool("mcp_shop_ask").text == "3 nights"
    assert reports == [(1, 2, None), (2, 2, None)]
    assert [call.tool for call in server.calls][:2] == ["sell", "steps"]


def test_a_status_is_an_error_and_the_server_is_not_asked(
    server: FakeServer, endpoint: FakeHttp, manager: MCPClientManager
) -> None:
    endpoint.status(503, tool="sell", nth=2)

    results = [manager.call_tool("mcp_shop_sell", {"item": str(number)}) for number in range(3)]

    assert [result.is_error for result in results] == [False, True, False]
    assert "503" in (results[1].error or "")
    assert [call.arguments["item"] for call in server.calls] == ["0", "2"]


def test_a_broken_answer_leaves_the_outcome_unknown(
    server: FakeServer, endpoint: FakeHttp, manager: MCPClientManager
) -> None:
    endpoint.break_stream(tool="sell")
    endpoint.break_stream(tool="read")

    sold = manager.call_tool("mcp_shop_sell", {"item": "hat"})

    assert (sold.is_error, sold["delivery"]) == (True, "unknown")
    # A call that is safe is made once more.
    assert manager.call_tool("mcp_shop_read").text == "ten hats"
    assert [call.tool for call in server.calls] == ["sell", "read", "read"]


def test_a_broken_stream_of_events_leaves_the_outcome_unknown(endpoint: FakeHttp, manager: MCPClientManager) -> None:
    endpoint.break_stream(tool="steps")

    result = manager.call_tool("mcp_shop_steps", on_progress=lambda *_: None)

    assert (result.is_error, result["delivery"]) == (True, "unknown")


def test_a_slow_head_is_a_timeout(endpoint: FakeHttp, manager: MCPClientManager) -> None:
    endpoint.slow_head(60, tool="sell")

    assert manager.call_tool("mcp_shop_sell", {"item": "hat"}, timeout=0.2)["error_type"] == "timeout"
    assert manager.call_tool("mcp_shop_sell", {"item": "hat"}).text == "sold hat"


def test_a_redirect_is_followed_on_the_same_host(endpoint: FakeHttp, manager: MCPClientManager) -> None:
    endpoint.redirect(endpoint.url.replace("/mcp", "/other"), tool="sell")

    assert manager.call_tool("mcp_shop_sell", {"item": "hat"}).text == "sold hat"


def test_a_dropped_connection_and_a_crash_are_recovered_from(
    server: FakeServer, endpoint: FakeHttp, manager: MCPClientManager
) -> None:
    endpoint.drop(tool="read")
    assert manager.call_tool("mcp_shop_read").text == "ten hats"

    server.crash(tool="sell")
    crashed = manager.call_tool("mcp_shop_sell", {"item": "hat"})
    assert (crashed.is_error, crashed["delivery"]) == (True, "unknown")
    assert manager.call_tool("mcp_shop_sell", {"item": "hat"}).text == "sold hat"


def test_faults_may_be_forgotten_and_concern_any_method(endpoint: FakeHttp, server: FakeServer) -> None:
    endpoint.status(500, method="tools/call", times=3)
    endpoint.clear_faults()
    greeting = "initialize" if server._state.revision == REVISIONS[0] else "server/discover"
    endpoint.drop(method=greeting)

    with MCPClientManager({"shop": {"url": endpoint.url, "restart": {"initialDelay": 0.01}}}) as manager:
        manager.require()
        assert manager.call_tool("mcp_shop_read").text == "ten hats"
    with pytest.raises(ValueError, match="nth, times: must be 1 or more"):
        endpoint.drop(nth=0)
