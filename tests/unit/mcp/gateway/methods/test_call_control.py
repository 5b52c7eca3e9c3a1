"""Limits and audit of calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.clients_file import ClientsFile
from gaia.mcp.gateway.access.limit_settings import GatewayLimits, Limit
from gaia.mcp.gateway.access.profile import EVERYTHING
from gaia.testing import FakeServer
from tests.gateway.lines import asking


def echo(text: str) -> str:
    """Say it again."""
    return text


def fail() -> str:
    """Fail."""
    raise ValueError("it did")


def written(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_each_call_leaves_a_line_before_its_answer(tmp_path: Path) -> None:
    server = FakeServer("a", tools=[echo, fail], resources={"x:1?token=secret": "text"})
    file = tmp_path / "audit.jsonl"

    async def use() -> None:
        async with asking(Gateway({"a": server}, audit=file)) as lines:
            await lines.ask("tools/call", {"name": "a_echo", "arguments": {"text": "secret"}})
            (line,) = written(file)
            assert (line["client"], line["method"], line["server"], line["target"]) == (
                "anonymous",
                "tools/call",
                "a",
                "echo",
            )
            assert (line["outcome"], line["delivery"]) == ("ok", "answered")
            assert line["arguments"].startswith("sha256:")
            await lines.ask("tools/call", {"name": "a_fail", "arguments": {}})
            await lines.ask("tools/call", {"name": "a_none", "arguments": {}})
            await lines.ask("resources/read", {"uri": "x:1?token=secret"})
            server.crash(tool="echo")
            await lines.ask("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
            outcomes = [(line["outcome"], line["delivery"]) for line in written(file)[1:]]
            assert outcomes == [
                ("tool_error", "answered"),
                ("unknown_tool", "not_sent"),
                ("ok", "answered"),
                ("server_crashed", "unknown"),
            ]
            assert "secret" not in file.read_text()

    asyncio.run(use())


def test_a_cancelled_call_leaves_a_line(tmp_path: Path) -> None:
    server = FakeServer("a", tools=[echo])
    server.hang(tool="echo")
    file = tmp_path / "audit.jsonl"

    async def use() -> None:
        async with asking(Gateway({"a": server}, audit=file)) as lines:
            number, _ = lines.begin("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
            await asyncio.to_thread(server.wait_for_call)
            lines.send({"method": "notifications/cancelled", "params": {"requestId": number}})
        assert [(line["outcome"], line["delivery"]) for line in written(file)] == [("cancelled", "unknown")]

    asyncio.run(use())


def limited(**limit: Any) -> ClientsFile:
    return ClientsFile(anonymous=EVERYTHING, limits=GatewayLimits(per_tool={"echo": Limit(**limit)}, max_wait=600.0))


def test_a_call_waits_until_the_limits_admit_it() -> None:
    server = FakeServer("a", tools=[echo])
    server.hang(tool="echo")

    async def use() -> None:
        async with asking(Gateway({"a": server}, clients=limited(concurrent=1))) as lines:
            call = {"name": "a_echo", "arguments": {"text": "x"}}
            first, _ = lines.begin("tools/call", call)
            await asyncio.to_thread(server.wait_for_call)
            _, waiting = lines.begin("tools/call", call)
            await lines.ask("tools/list")
            assert len(server.calls) == 1
            lines.send({"method": "notifications/cancelled", "params": {"requestId": first}})
            assert (await waiting)["result"]["content"][0]["text"] == "x"

    asyncio.run(use())


def test_an_answer_that_is_too_large_is_an_error() -> None:
    async def use() -> None:
        servers = {"a": FakeServer("a", tools=[echo])}
        async with asking(Gateway(servers, clients=limited(answer_bytes=500))) as lines:
            call = {"name": "a_echo", "arguments": {"text": 1_000 * "x"}}
            withheld = await lines.ask("tools/call", call)
            assert withheld["isError"]
            assert "answerBytes" in withheld["content"][0]["text"]

    asyncio.run(use())
