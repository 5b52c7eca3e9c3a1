"""How many threads there are, whatever waits for servers over HTTP."""

from __future__ import annotations

import asyncio
import threading

from gaia.mcp import MCPClient
from gaia.mcp.aio import AsyncMCPClient
from tests.servers.http_server import MODERN, Exchange, ScriptedServer
from tests.unit.mcp.transports.http.conftest import ERAS, TEXT, Connect, Serve
from tests.waiting import PATIENCE, wait_until

MOST = 8
CALLS = 500


def ours() -> list[str]:
    """The names of all threads of gaia's."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("gaia-", "mcp-"))]


class Slow:
    """Answers no call before it is told to."""

    def __init__(self, server: ScriptedServer) -> None:
        self.go = threading.Event()
        self._server = server
        self._lock = threading.Lock()
        self.waiting = 0
        server.on["tools/call"] = self._answer

    def _answer(self, exchange: Exchange) -> None:
        with self._lock:
            self.waiting += 1
        self.go.wait(PATIENCE)
        self._server.respond(exchange, exchange.answer(TEXT))


@ERAS
def test_submitted_calls_need_no_thread_each(era: str, serve: Serve, connect: Connect) -> None:
    server = serve(era=era, changes={"listChanged": True})
    client, slow = connect(server), Slow(server)
    futures = [client.submit_tool("echo", {}) for _ in range(CALLS)]
    assert wait_until(lambda: slow.waiting == 100), "as many as there may be connections"
    assert len(ours()) <= MOST, ours()
    slow.go.set()
    assert [future.result(PATIENCE) for future in futures] == [TEXT] * CALLS


def test_neither_do_awaited_ones_that_report_progress(serve: Serve) -> None:
    server = serve(answer_in_streams=True)
    most: list[str] = []

    async def main() -> None:
        nonlocal most
        async with AsyncMCPClient.from_config("web", {"url": server.url}) as client:
            slow = Slow(server)
            calls = [
                asyncio.create_task(client.call_tool("echo", {}, on_progress=lambda *_: None)) for _ in range(CALLS)
            ]
            while slow.waiting < 100:
                await asyncio.sleep(0)
            most = ours()
            slow.go.set()
            assert await asyncio.gather(*calls) == [TEXT] * CALLS

    asyncio.run(main())
    assert len(most) <= MOST, most


def test_nor_do_the_streams_and_subscriptions_of_many_servers(serve: Serve, connect: Connect) -> None:

    def stay(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.wait_for_client_to_leave()

    clients: list[MCPClient] = []
    for number in range(30):
        server = serve(era=MODERN, changes={"listChanged": True}) if number % 2 else serve()
        server.on["subscriptions/listen"] = stay
        clients.append(connect(server))
        assert server.wait_for("subscriptions/listen" if number % 2 else "GET")
    supervisors = [name for name in ours() if name.endswith("-supervisor")]
    assert len(supervisors) == len(clients)
    assert len(ours()) - len(supervisors) <= MOST, ours()
