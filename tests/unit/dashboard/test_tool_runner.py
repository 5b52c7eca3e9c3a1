"""Calls from the page: which are made, how they are answered, and what becomes of one when the page goes away."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from gaia.dashboard.live_updates import UpdateBuffer
from gaia.dashboard.tool_runner import ToolRunner
from gaia.runtime.cancellation import current_scope
from gaia.serving.threads import WorkerThreads
from tests.served_dashboard import Served
from tests.waiting import PATIENCE, wait_until

Serve = Callable[..., Served]


class Client:
    """One whose call lasts until it is cancelled."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.cancelled = threading.Event()

    def refusal_of(self, tool: str) -> None: ...

    def call_tool(
        self, tool: str, arguments: dict[str, Any], timeout: float | None, on_progress: Any
    ) -> dict[str, Any]:
        scope = current_scope()
        assert scope is not None
        scope.on_cancel(self.cancelled.set)
        self.began.set()
        self.cancelled.wait(PATIENCE)
        return {}


class Manager:
    def __init__(self, client: Client) -> None:
        self.client = client

    def get_client(self, name: str) -> Client:
        return self.client


def test_a_request_that_is_cancelled_cancels_its_call() -> None:
    client = Client()
    threads = WorkerThreads(1)
    body = json.dumps({"server": "s", "tool": "t"}).encode()

    async def ask_and_cancel() -> None:
        messages = iter([{"type": "http.request", "body": body}])

        async def receive() -> Any:
            message = next(messages, None)
            return message if message is not None else await asyncio.Event().wait()

        request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        runner = ToolRunner(Manager(client), threads, UpdateBuffer())  # type: ignore[arg-type]
        asking = asyncio.ensure_future(runner.answer(request))
        assert await asyncio.to_thread(client.began.wait, PATIENCE)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()

    asyncio.run(ask_and_cancel())
    assert client.cancelled.is_set()
    threads.close(PATIENCE)


class TestTrying:
    def test_a_tool_can_be_called(self, demo: Served) -> None:
        answer = demo.request("POST", "/api/try", {"server": "demo", "tool": "add", "arguments": {"a": 1, "b": 2}})

        assert answer.status == 200
        assert answer.json["structuredContent"] == {"sum": 3}

    def test_a_denied_tool_cannot(self, demo: Served) -> None:
        answer = demo.request("POST", "/api/try", {"server": "demo", "tool": "counter"})

        assert answer.status == 403
        assert "denied" in answer.json["error"]["message"]
        assert demo.get("/api/state")["calls"] == []

    def test_a_wrong_request_is_explained(self, demo: Served) -> None:
        wrong: list[tuple[Any, int, str]] = [
            (b"{", 400, "not JSON"),
            ([], 400, "not an object"),
            ({"tool": "add"}, 400, "server: expected a name"),
            ({"server": "demo"}, 400, "tool: expected a name"),
            ({"server": "demo", "tool": "add", "arguments": []}, 400, "arguments: expected an object"),
            ({"server": "demo", "tool": "add", "timeout": -1}, 400, "timeout: expected seconds"),
            ({"server": "demo", "tool": "add", "timeout": True}, 400, "timeout: expected seconds"),
            ({"server": "nobody", "tool": "add"}, 404, "no connected server 'nobody'"),
        ]
        for body, status, message in wrong:
            answer = demo.request("POST", "/api/try", body)
            assert answer.status == status
            assert message in answer.json["error"]["message"]

    def test_a_page_that_goes_away_cancels_its_call(self, demo: Served) -> None:
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", demo.port, timeout=PATIENCE)
        body = json.dumps({"server": "demo", "tool": "sleep", "arguments": {"seconds": 60}, "timeout": 120})
        headers = {"Authorization": f"Bearer {demo.dashboard.token}", "Content-Type": "application/json"}
        connection.request("POST", "/api/try", body, headers)
        assert wait_until(lambda: bool(demo.get("/api/state")["running"]))
        connection.close()

        assert wait_until(lambda: bool(demo.get("/api/state")["calls"]))
        (call,) = demo.get("/api/state")["calls"]
        assert call["error_type"] == "cancelled"

    def test_a_result_that_is_too_long_is_not_sent_to_the_page(self, demo: Served) -> None:
        text = "x" * 2_500_000
        answer = demo.request("POST", "/api/try", {"server": "demo", "tool": "echo", "arguments": {"text": text}})

        assert "too many to be shown here" in answer.json["error"]
        assert len(answer.body) < 1000

    def test_what_orjson_cannot_say_reaches_the_page(self, serve: Serve, fault_server: Any) -> None:
        faults = [{"tool": "echo", "result": {"content": [], "big": 2**80}}]
        served = serve(it=fault_server(faults=faults))

        answer = served.request("POST", "/api/try", {"server": "it", "tool": "echo", "arguments": {"text": ""}})
        assert answer.status == 200


class TestProgress:
    TRACE = "0123456789abcdef0123456789abcdef"
    PARENT = f"00-{TRACE}-0123456789abcdef-01"

    def test_a_call_is_in_the_trace_of_the_page_and_its_progress_is_told(self, demo: Served) -> None:
        stream = demo.stream()
        assert next(stream)[0] == "snapshot"
        body = {"server": "demo", "tool": "sleep", "arguments": {"seconds": 1.2}}
        answer = demo.request("POST", "/api/try", body, traceparent=self.PARENT)
        assert answer.status == 200
        told = []
        running = []
        for kind, data in stream:
            if kind == "progress":
                told.append(data)
            elif kind == "running":
                running += data
            elif kind == "call":
                break
        stream.close()

        assert data["trace_id"] == self.TRACE
        assert all(report["call"] == self.PARENT and report["total"] == 1.2 for report in told)
        assert 0 < told[-1]["progress"] <= 1.2
        assert {row["trace_id"] for row in running} <= {self.TRACE}

    def test_what_is_no_trace_is_ignored(self, demo: Served) -> None:
        body = {"server": "demo", "tool": "echo", "arguments": {"text": "x"}}

        assert demo.request("POST", "/api/try", body, traceparent="nonsense").status == 200
        assert len(demo.get("/api/state")["calls"][0]["trace_id"]) == 32

    def test_a_flood_of_it_is_thinned_out_and_cut(self) -> None:
        buffer = UpdateBuffer()
        report = ToolRunner(None, None, buffer)._reporter(self.PARENT)  # type: ignore[arg-type]
        for number in range(1000):
            report(number, "many", "m" * 10_000)
        found = buffer.read(0)
        assert found is not None
        updates, _ = found

        # One at a time of the clock, however long this took.
        assert len(updates) < 1000
        assert updates[0].data == {"call": self.PARENT, "progress": 0, "total": None, "message": "m" * 300}
