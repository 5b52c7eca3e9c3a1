"""Calls from the page, apart from HTTP: what becomes of one when the server of the page ends."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from starlette.requests import Request

from gaia.cancellation import current_scope
from gaia.dashboard.tool_runner import ToolRunner
from gaia.serving.threads import WorkerThreads

PATIENCE = 10.0


class Client:
    """One whose call lasts until it is cancelled."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.cancelled = threading.Event()

    def refusal_of(self, tool: str) -> None: ...

    def call_tool(self, tool: str, arguments: dict[str, Any], timeout: float | None) -> dict[str, Any]:
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
        runner = ToolRunner(Manager(client), threads)  # type: ignore[arg-type]
        asking = asyncio.ensure_future(runner.answer(request))
        assert await asyncio.to_thread(client.began.wait, PATIENCE)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()

    asyncio.run(ask_and_cancel())
    assert client.cancelled.is_set()
    threads.close(PATIENCE)
