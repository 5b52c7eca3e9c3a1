"""An agent that serves MCP while it uses MCP servers itself: neither side takes it down."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator

import psutil
import pytest
from mcp import Client

from tests.serving.served import Served, http_server
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.slow

RELAY = "tests.serving.agents:RelayAgent"


@pytest.fixture
def served(starts_programs: None) -> Iterator[Served]:
    with http_server(RELAY) as server:
        yield server


async def relay(client: Client, text: str) -> str:
    result = await client.call_tool("relay", {"text": text})
    assert not result.is_error, result
    return str(result.content[0].text)


async def server_pid(client: Client) -> int:
    return int((await client.call_tool("server-pid", {})).structured_content["pid"])


def test_it_survives_crashes_of_its_server_and_clients_that_break_off(served: Served) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.sendall(
                b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
            )

    async def session() -> None:
        async with Client(served.url) as client:
            for round_number, killed in enumerate([False, False, True]):
                before = await server_pid(client)
                if killed:
                    os.kill(before, signal.SIGKILL)
                else:
                    assert (await client.call_tool("crash-server", {})).is_error
                # Waits for the new process, by itself.
                assert await relay(client, f"round {round_number}") == f"round {round_number}"
                assert await server_pid(client) != before

    asyncio.run(session())
    assert served.process.poll() is None


def test_a_call_that_is_cancelled_is_cancelled_at_its_server_too_which_ends_with_it(served: Served) -> None:
    async def session(mode: str) -> None:
        asleep = asyncio.Event()

        async def heard(_message: object) -> None:
            asleep.set()

        async with Client(served.url, mode=mode, logging_callback=heard, log_level="info") as client:
            sleeping = asyncio.create_task(client.call_tool("sleep", {}))
            await asyncio.wait_for(asleep.wait(), PATIENCE)
            sleeping.cancel()
            ended = await client.call_tool("was-cancelled", {})
            assert json.loads(ended.content[0].text)["error_type"] == "cancelled"

    for mode in ("legacy", "auto"):
        asyncio.run(session(mode))
    children = psutil.Process(served.pid).children(recursive=True)
    assert children
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(PATIENCE) == 0
    assert wait_until(lambda: not any(child.is_running() for child in children))
