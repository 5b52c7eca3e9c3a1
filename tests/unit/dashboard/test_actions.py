"""Calls from the page: which are made, how they are answered, and what becomes of one when the page goes away."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from gaia.dashboard import actions
from gaia.dashboard.actions import Actions, ToolRequest
from gaia.dashboard.live_updates import UpdateBuffer
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
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
        self._engine = self

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

    async def ask_and_cancel() -> None:
        async def receive() -> Any:
            return await asyncio.Event().wait()

        request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        actions = Actions(Manager(client), threads, UpdateBuffer())  # type: ignore[arg-type]
        asking = asyncio.ensure_future(actions.call_tool(request, ToolRequest(server="s", tool="t")))
        assert await asyncio.to_thread(client.began.wait, PATIENCE)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()

    asyncio.run(ask_and_cancel())
    assert client.cancelled.is_set()
    threads.close(PATIENCE)


class TestTrying:
    def test_a_tool_can_be_called_and_a_result_that_is_too_long_is_not_sent_to_the_page(self, demo: Served) -> None:
        answer = demo.request("POST", "/api/try", {"server": "demo", "tool": "add", "arguments": {"a": 1, "b": 2}})
        assert (answer.status, answer.json["structuredContent"]) == (200, {"sum": 3})
        text = "x" * 2_500_000
        answer = demo.request("POST", "/api/try", {"server": "demo", "tool": "echo", "arguments": {"text": text}})
        assert "too many to be shown here" in answer.json["error"]
        assert len(answer.body) < 1000

    def test_a_wrong_request_is_explained(self, demo: Served) -> None:
        wrong: list[tuple[Any, int, str]] = [
            (b"{", 400, "truncated"),
            (b"\xff", 400, "malformed"),
            (b'{"x":' + b"[" * 100_000, 400, "recursion"),
            ([], 400, "Expected `object`"),
            ({"server": "demo", "tool": "counter"}, 403, "denied"),
            ({"tool": "add"}, 400, "required field `server`"),
            ({"server": "", "tool": "add"}, 400, "length >= 1"),
            ({"server": "demo"}, 400, "required field `tool`"),
            ({"server": "demo", "tool": "add", "arguments": []}, 400, "`$.arguments`"),
            ({"server": "demo", "tool": "add", "timeout": -1}, 400, "`$.timeout`"),
            ({"server": "demo", "tool": "add", "timeout": 3601}, 400, "`$.timeout`"),
            ({"server": "demo", "tool": "add", "timeout": True}, 400, "`$.timeout`"),
            ({"server": "nobody", "tool": "add"}, 404, "no connected server 'nobody'"),
        ]
        for body, status, message in wrong:
            answer = demo.request("POST", "/api/try", body)
            assert answer.status == status
            assert message in answer.json["error"]["message"]
        assert demo.get("/api/state")["calls"] == []

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
        report = Actions(None, None, buffer).progress_of(self.PARENT)  # type: ignore[arg-type]
        for number in range(1000):
            report(number, "many", "m" * 10_000)
        found = buffer.read(0)
        assert found is not None
        updates, _ = found

        # One at a time of the clock, however long this took.
        assert len(updates) < 1000
        assert updates[0][1] == {"call": self.PARENT, "progress": 0, "total": None, "message": "m" * 300}


def state_of(served: Served, name: str) -> Any:
    return next(server["state"] for server in served.get("/api/state")["servers"] if server["name"] == name)


def test_a_server_is_stopped_and_started_again(demo: Served) -> None:
    stopped = demo.request("POST", "/api/stop", {"server": "demo"})
    assert (stopped.status, stopped.json) == (
        200,
        {"server": "demo", "state": "closed", "failed": False, "error": None},
    )
    assert state_of(demo, "demo") == "closed"

    started = demo.request("POST", "/api/restart", {"server": "demo"})
    assert (started.status, started.json["state"]) == (200, "ready")
    assert demo.get("/api/server?name=demo")["tools"] != []


def test_a_call_under_way_goes_on(demo: Served) -> None:
    results: list[Any] = []
    calling = threading.Thread(target=lambda: results.append(demo.manager.call_tool("mcp_demo_sleep", {"seconds": 1})))
    calling.start()
    assert wait_until(lambda: bool(demo.get("/api/state")["running"]))

    assert demo.request("POST", "/api/restart", {"server": "demo"}).json["state"] == "ready"
    calling.join()
    assert not results[0].is_error


def test_one_that_fails_again_says_why(serve: Serve, fault_server: Callable[..., Any]) -> None:
    served = serve(bad=fault_server(exit_at_start={"code": 3, "stderr": "no licence"}))
    answer = served.request("POST", "/api/restart", {"server": "bad"})

    assert answer.status == 200
    assert answer.json["state"] != "ready"
    assert "no licence" in answer.json["error"]


def test_one_that_gets_no_fresh_process_goes_on(serve: Serve, fault_server: Callable[..., Any], tmp_path: Path) -> None:
    by_start = {"2": {"exit_at_start": {"code": 3, "stderr": "no licence"}}}
    served = serve(one={**fault_server(state_file=tmp_path / "state", by_start=by_start), "protocol": "handshake"})
    answer = served.request("POST", "/api/restart", {"server": "one"})

    assert (answer.json["state"], answer.json["failed"]) == ("ready", True)
    assert "no licence" in answer.json["error"]


class SlowManager:
    """One whose server becomes ready when `go_on` is set."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.started = threading.Event()

    def restart(self, name: str) -> bool:
        self.begun.set()
        self.go_on.wait(PATIENCE)
        self.started.set()
        return True

    def stop_server(self, name: str) -> None: ...

    def status(self) -> list[ServerStatus]:
        return [ServerStatus(name="it", state=ServerState.STARTING)]


def test_a_slow_start_is_answered_before_it_is_over_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "ANSWER_SECONDS", 0.01)
    manager, threads = SlowManager(), WorkerThreads(1)
    routes = Actions(manager, threads, UpdateBuffer()).routes(of_gateway=False)  # type: ignore[arg-type]
    (restart,) = [route.endpoint for route in routes if route.path == "/api/restart"]

    async def receive() -> Any:
        return {"type": "http.request", "body": b'{"server": "it"}'}

    async def ask() -> bytes:
        answer = await restart(Request({"type": "http", "method": "POST", "headers": []}, receive))
        # It may have been answered before a thread was free.
        assert await asyncio.to_thread(manager.begun.wait, PATIENCE)
        return bytes(answer.body)

    assert json.loads(asyncio.run(ask())) == {"server": "it", "state": "starting", "failed": False, "error": None}
    manager.go_on.set()
    assert manager.started.wait(PATIENCE)
    threads.close(PATIENCE)


def test_what_cannot_be_done_is_explained(serve: Serve) -> None:
    served = serve(off={"command": "x", "disabled": True})
    wrong: list[tuple[str, Any, int, str]] = [
        ("restart", b"{", 400, "truncated"),
        ("stop", {}, 400, "required field `server`"),
        ("restart", {"server": "x"}, 409, "no server 'x' is configured"),
        ("restart", {"server": "off"}, 409, "disabled"),
        ("stop", {"server": "off"}, 409, "nothing to stop"),
    ]
    for action, body, status, message in wrong:
        answer = served.request("POST", f"/api/{action}", body)
        assert answer.status == status
        assert message in answer.json["error"]["message"]


@pytest.fixture
def handbook(serve: Serve, feature_server: dict[str, Any]) -> Served:
    return serve(handbook=feature_server)


def ask(served: Served, what: str, **fields: Any) -> Any:
    answer = served.request("POST", f"/api/{what}", {"server": "handbook", **fields})
    assert answer.status == 200, answer
    return answer.json


def test_resources_are_listed_and_read_and_prompts_listed_and_got_with_arguments(handbook: Served) -> None:
    listed = ask(handbook, "resources")
    assert [resource["uri"] for resource in listed["resources"]] == ["demo://greeting", "demo://about"]
    assert listed["templates"] == []
    (content,) = ask(handbook, "resource", uri="demo://greeting")["contents"]
    assert content["text"] == "Hello from the gaia demo server."
    assert [prompt["name"] for prompt in ask(handbook, "prompts")["prompts"]] == ["greet"]
    (message,) = ask(handbook, "prompt", prompt="greet", arguments={"name": "Ada"})["messages"]
    assert "Greet Ada" in message["content"]["text"]


def test_what_is_wrong_is_explained(handbook: Served) -> None:
    wrong: list[tuple[str, Any, int, str]] = [
        ("resources", b"{", 400, "truncated"),
        ("resources", {"server": "x"}, 404, "no connected server 'x'"),
        ("resource", {"server": "handbook"}, 400, "required field `uri`"),
        ("resource", {"server": "handbook", "uri": "demo://none"}, 409, "not found"),
        (
            "prompt",
            {"server": "handbook", "prompt": "greet", "arguments": {"name": 1}},
            400,
            "Expected `str`, got `int`",
        ),
        ("prompt", {"server": "handbook", "prompt": "greet"}, 409, "name"),
    ]
    for what, body, status, message in wrong:
        answer = handbook.request("POST", f"/api/{what}", body)
        assert answer.status == status, (what, answer)
        assert message in answer.json["error"]["message"]


def test_a_server_without_templates_has_resources_all_the_same(serve: Serve, fault_server: Callable[..., Any]) -> None:
    faults = [
        {"on": "resources/list", "result": {"resources": [{"uri": "a://b", "name": "b"}]}},
        {"on": "resources/templates/list", "error": {"code": -32601, "message": "unknown method"}},
    ]
    served = serve(handbook=fault_server(faults=faults))

    assert ask(served, "resources") == {"resources": [{"uri": "a://b", "name": "b"}], "templates": []}
