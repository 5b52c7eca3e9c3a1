"""A handler whose client leaves: in a real uvicorn, with a real connection, its call is cancelled at the MCP server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gaia.mcp import MCPClient
from gaia.mcp.aio import AsyncMCPClient, cancel_on_disconnect
from tests.fake_transport import FakeTransport
from tests.gateway.running import serving
from tests.waiting import PATIENCE

DONE = {"content": [{"type": "text", "text": "done"}]}
CALL = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi"


@pytest.fixture
def client() -> Iterator[MCPClient]:
    client = MCPClient("fake", FakeTransport(), protocol="handshake")
    assert client.connect()
    yield client
    client.disconnect()


def application(client: MCPClient, ends: list[BaseException | None], ended: threading.Event) -> Starlette:
    async def call(request: Request) -> JSONResponse:
        try:
            async with cancel_on_disconnect(request):
                result = await AsyncMCPClient.over(client).call_tool("echo", {"text": (await request.body()).decode()})
        except BaseException as error:
            ends.append(error)
            raise
        finally:
            ended.set()
        ends.append(None)
        return JSONResponse(dict(result))

    return Starlette(routes=[Route("/", call, methods=["POST"])])


def channel_of(client: MCPClient) -> Any:
    return client.transport.channel(1)  # type: ignore[attr-defined]


def test_a_client_that_leaves_cancels_the_call(client: MCPClient, caplog: pytest.LogCaptureFixture) -> None:
    ends: list[BaseException | None] = []
    ended = threading.Event()

    async def main() -> None:
        async with serving(application(client, ends, ended)) as url:
            _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
            writer.write(CALL)
            call = await asyncio.to_thread(channel_of(client).wait_for, "tools/call")
            assert call["params"]["arguments"] == {"text": "hi"}
            writer.close()
            notice = await asyncio.to_thread(channel_of(client).wait_for, "notifications/cancelled")
            assert notice["params"]["requestId"] == call["id"]
            assert await asyncio.to_thread(ended.wait, PATIENCE)

    asyncio.run(main())
    assert isinstance(ends[0], HTTPException)
    assert ends[0].status_code == 499
    assert "Exception in ASGI application" not in caplog.text


def test_a_client_that_stays_gets_its_answer(client: MCPClient) -> None:
    ends: list[BaseException | None] = []

    async def main() -> None:
        async with serving(application(client, ends, threading.Event())) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
            writer.write(CALL)
            call = await asyncio.to_thread(channel_of(client).wait_for, "tools/call")
            channel_of(client).answer(call, DONE)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 OK")
            writer.close()

    asyncio.run(main())
    assert ends == [None]


class Arriving:
    """A request whose client leaves when the test says so."""

    def __init__(self) -> None:
        self.leaves = asyncio.Event()

    async def body(self) -> bytes:
        raise RuntimeError("Stream consumed")

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}


def test_another_cancellation_stays_one() -> None:
    async def handle(request: Arriving) -> None:
        async with cancel_on_disconnect(request):
            await asyncio.Event().wait()

    async def main() -> None:
        request = Arriving()
        task = asyncio.create_task(handle(request))
        await asyncio.sleep(0)
        request.leaves.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) <= 2

    asyncio.run(main())


def test_outside_of_asyncio_the_error_names_the_next_step(client: MCPClient) -> None:
    """As in trio, whose tasks are coroutines without an event loop of asyncio."""
    call = AsyncMCPClient.over(client).call_tool("echo")
    with pytest.raises(RuntimeError, match=r"needs a running event loop of asyncio.*trio\.to_thread\.run_sync"):
        call.send(None)
