"""A gateway on two descriptors; with signals and a process of its own it is in `tests/gateway`."""

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.gateway import Gateway, stdio
from gaia.mcp.gateway.operations import reloader
from gaia.mcp.gateway.operations.reloader import Source
from gaia.testing import FakeServer
from tests.waiting import PATIENCE


def one() -> str:
    """One."""
    return "1"


def served(gateway: Gateway, lines: list[Any]) -> list[Any]:
    """What the gateway writes for an input; the input ends when each request in it has its answer."""

    async def use() -> list[Any]:
        incoming, to_gateway = os.pipe()
        from_gateway, outgoing = os.pipe()
        serving = asyncio.create_task(stdio.serve_lines(gateway, incoming, outgoing))
        os.write(to_gateway, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        wanted = sum("id" in line for line in lines)

        def answers() -> list[Any]:
            found = []
            with os.fdopen(from_gateway, "rb") as stream:
                while len(found) < wanted:
                    message = json.loads(stream.readline())
                    if "id" in message:
                        found.append(message)
                os.close(to_gateway)
                stream.read()
            return found

        found = await asyncio.wait_for(asyncio.to_thread(answers), PATIENCE)
        await asyncio.wait_for(serving, PATIENCE)
        return found

    return asyncio.run(use())


def test_requests_are_answered_until_the_end_of_input() -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a_one", "_meta": meta}}
    (answer,) = served(Gateway({"a": FakeServer("a", tools=[one])}), [call])
    assert answer["result"]["content"][0]["text"] == "1"


async def test_a_client_that_is_gone_ends_it() -> None:
    incoming, to_gateway = os.pipe()
    from_gateway, outgoing = os.pipe()
    os.close(from_gateway)
    serving = asyncio.create_task(stdio.serve_lines(Gateway({}), incoming, outgoing))
    os.write(to_gateway, b"{\n")
    await asyncio.wait_for(serving, PATIENCE)
    os.close(to_gateway)


async def test_files_that_change_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloader, "_LOOK_SECONDS", 0.01)
    file, applied = tmp_path / "servers.json", threading.Event()

    def load() -> Callable[[], None]:
        return applied.set

    incoming, to_gateway = os.pipe()
    from_gateway, outgoing = os.pipe()
    sources = [Source(lambda: [file], load)]
    serving = asyncio.create_task(stdio.serve_lines(Gateway({}), incoming, outgoing, sources))
    os.write(to_gateway, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "nothing"}).encode() + b"\n")
    # From its first answer on it watches.
    assert await asyncio.to_thread(os.read, from_gateway, 1)
    file.write_text("{}")
    assert await asyncio.to_thread(applied.wait, PATIENCE)
    os.close(to_gateway)
    await asyncio.wait_for(serving, PATIENCE)
    os.close(from_gateway)
