"""Servers that are restarted and stopped from the page."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from gaia.dashboard import server_control
from gaia.dashboard.server_control import ServerControl
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.serving.threads import WorkerThreads
from tests.served_dashboard import Served
from tests.waiting import PATIENCE, wait_until

Serve = Callable[..., Served]


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
    monkeypatch.setattr(server_control, "ANSWER_SECONDS", 0.01)
    manager, threads = SlowManager(), WorkerThreads(1)
    control = ServerControl(manager, threads)  # type: ignore[arg-type]

    async def receive() -> Any:
        return {"type": "http.request", "body": b'{"server": "it"}'}

    async def ask() -> bytes:
        answer = await control.restart(Request({"type": "http", "method": "POST", "headers": []}, receive))
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
        ("restart", b"{", 400, "not JSON"),
        ("stop", {}, 400, "server: expected a name"),
        ("restart", {"server": "x"}, 409, "no server 'x' is configured"),
        ("restart", {"server": "off"}, 409, "disabled"),
        ("stop", {"server": "off"}, 409, "nothing to stop"),
    ]
    for action, body, status, message in wrong:
        answer = served.request("POST", f"/api/{action}", body)
        assert answer.status == status
        assert message in answer.json["error"]["message"]
