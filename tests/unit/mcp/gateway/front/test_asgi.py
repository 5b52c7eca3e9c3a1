"""The endpoint as an ASGI application."""

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.clients_file import ClientsFile
from gaia.serving.options import HttpOptions
from gaia.testing import FakeServer
from tests.gateway.lines import OPENING
from tests.waiting import PATIENCE

Message = MutableMapping[str, Any]


class Client:
    """What an ASGI server gives to the application, and what it takes."""

    def __init__(self, *bodies: bytes, ends: bool = True) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        for number, body in enumerate(bodies, 1):
            more = number < len(bodies) or not ends
            self.incoming.put_nowait({"type": "http.request", "body": body, "more_body": more})
        self.sent: list[Message] = []

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def run(self, gateway: Gateway, path: str = "/mcp", root: str = "") -> None:
        headers = [(b"accept", b"application/json, text/event-stream")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "root_path": root,
            "headers": headers,
            "client": ("127.0.0.1", 1),
        }
        await asyncio.wait_for(gateway(scope, self.incoming.get, self.send), PATIENCE)


BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": OPENING}).encode()


@pytest.mark.parametrize("root", ["", "/tools"])
async def test_a_body_may_come_in_parts_and_the_application_may_be_mounted(root: str) -> None:
    async with Gateway({}) as gateway:
        client = Client(BODY[:10], BODY[10:])
        await client.run(gateway, f"{root}/mcp", root)
        start, body = client.sent
        assert start["status"] == 200
        assert dict(start["headers"])[b"content-length"] == str(len(body["body"])).encode()
        assert json.loads(body["body"])["result"]["protocolVersion"] == "2025-11-25"


async def test_lifespan_starts_and_stops_it() -> None:
    server = FakeServer("a")
    gateway = Gateway({"a": server})
    client = Client()
    client.incoming.put_nowait({"type": "lifespan.startup"})
    running = asyncio.create_task(gateway({"type": "lifespan"}, client.incoming.get, client.send))
    async with asyncio.timeout(PATIENCE):
        while not client.sent:
            await asyncio.sleep(0.005)
    assert await asyncio.to_thread(gateway.manager.wait_ready, PATIENCE)
    client.incoming.put_nowait({"type": "lifespan.shutdown"})
    await asyncio.wait_for(running, PATIENCE)
    assert [message["type"] for message in client.sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert gateway.manager.list_servers() == []


async def test_nothing_is_answered_before_the_start() -> None:
    """Access control begins with the start, and a mounted application's lifespan is not run."""
    client = Client(BODY)
    with pytest.raises(RuntimeError, match="async with gateway"):
        await client.run(Gateway({}))
    assert client.sent == []


@pytest.mark.parametrize(("parts", "status"), [([b"x" * 60, b"x" * 41], 413), ([b"x" * 100], 400)])
async def test_a_body_has_a_bound(parts: list[bytes], status: int) -> None:
    async with Gateway({}, max_body=100) as gateway:
        client = Client(*parts)
        await client.run(gateway)
        assert client.sent[0]["status"] == status


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpOptions, "body_timeout", 0.01)
    async with Gateway({}) as gateway:
        client = Client(b"{", ends=False)
        await client.run(gateway)
        assert client.sent[0]["status"] == 408


async def test_a_large_body_is_read_of_clients_only() -> None:
    async with Gateway({}, clients=ClientsFile()) as gateway:
        client = Client(b"x" * 70_000, ends=False)
        await client.run(gateway)
        assert client.sent[0]["status"] == 401
        assert b"www-authenticate" in dict(client.sent[0]["headers"])


@pytest.mark.parametrize("bodies", [[], [b"x" * 70_000]])
async def test_a_client_that_goes_away_before_its_body_has_come_gives_back_its_share(bodies: list[bytes]) -> None:
    async with Gateway({}) as gateway:
        client = Client(*bodies, ends=False)
        client.incoming.put_nowait({"type": "http.disconnect"})
        await client.run(gateway)
        assert client.sent == []
        assert not gateway.endpoint._shares._used
