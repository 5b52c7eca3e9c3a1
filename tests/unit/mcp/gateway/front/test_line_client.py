"""A client whose messages come line by line."""

import asyncio
import json

from gaia.mcp.gateway import Gateway
from gaia.testing import FakeServer
from tests.gateway.lines import Lines, asking
from tests.waiting import PATIENCE, wait_until


async def test_the_first_request_opens_once_and_junk_is_answered_without_an_id() -> None:
    async with Gateway({}) as gateway:
        assert (await Lines(gateway, stateless=False).ask("tools/list"))["code"] == -32600
        written: list[bytes] = []
        gateway.line_client(written.append).received(b"{")
        junk = json.loads(written[0])
        assert (junk["error"]["code"], junk["id"]) == (-32700, None)
    async with asking({}, stateless=False) as lines:
        assert (await lines.open())["code"] == -32600


def test_an_id_that_is_in_use_is_refused_and_a_cancelled_request_is_not_answered() -> None:
    server = FakeServer("a", tools=[{"name": "wait"}])
    server.hang(tool="wait", times=10)

    async def use(stateless: bool) -> None:
        async with asking({"a": server}, stateless=stateless) as lines:
            number, answer = lines.begin("tools/call", {"name": "a_wait"})
            await asyncio.to_thread(server.wait_for_call, "wait", len(server.calls) or 1)
            assert not lines.client.is_idle
            lines.send({"method": "notifications/cancelled", "params": {"requestId": number}})
            await lines.ask("tools/list")
            assert lines.client.is_idle
            assert not answer.done()
            assert await asyncio.to_thread(wait_until, lambda: server.calls[-1].cancelled, PATIENCE)

    for stateless in (True, False):
        asyncio.run(use(stateless))
