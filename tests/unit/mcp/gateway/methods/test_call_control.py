"""Limits and audit of calls."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.access.clients_file import ClientsFile
from gaia.mcp.gateway.access.limit_settings import GatewayLimits, Limit
from gaia.mcp.gateway.access.profile import EVERYTHING
from gaia.testing import FakeServer
from tests.gateway.lines import asking
from tests.tracing import Tracing


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
            assert ["answer_bytes" in line for line in written(file)] == [True, True, False, True, False]
            assert outcomes == [
                ("tool_error", "answered"),
                ("unknown_tool", "not_sent"),
                ("ok", "answered"),
                ("server_crashed", "unknown"),
            ]
            assert "secret" not in file.read_text()

    asyncio.run(use())


def test_a_call_that_cannot_be_recorded_is_an_error_of_the_audit(tmp_path: Path) -> None:
    server = FakeServer("a", tools=[echo])
    file = tmp_path / "audit.jsonl"

    async def use() -> None:
        gateway = Gateway({"a": server}, audit=file)
        async with asking(gateway) as lines:
            await lines.ask("tools/list")
            file.rename(tmp_path / "moved")
            file.mkdir()
            gateway.reopen_audit()
            error = await lines.ask("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
            assert (error["data"]["errorType"], error["data"]["delivery"]) == ("audit", "not_sent")
            assert server.calls == []
            counted = gateway.endpoint._pages._checks.counts.ended
            assert counted["", "a", "audit"] == 1

    asyncio.run(use())


@pytest.mark.parametrize("stateless", [False, True])
def test_a_line_says_which_gateway_session_and_request_it_is_about(tmp_path: Path, stateless: bool) -> None:
    file = tmp_path / "audit.jsonl"

    async def use() -> None:
        gateway = Gateway({"a": FakeServer("a", tools=[echo])}, audit=file, name="gw1")
        async with asking(gateway, stateless=stateless) as lines:
            for _ in range(2):
                await lines.ask("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
            await lines.ask("tools/call", {"name": "none", "arguments": {}})
            sessions = [session.mark for session in gateway._sessions] * 3
        written_ = written(file)
        first = written_[0]["request"]
        assert [(line["gateway"], line["request"]) for line in written_] == [("gw1", first + n) for n in range(3)]
        assert [line["session"] for line in written_ if "session" in line] == sessions
        traces = {line["trace"] for line in written_}
        assert len(traces) == 3
        assert all(re.fullmatch("[0-9a-f]{32}", trace) for trace in traces)

    asyncio.run(use())


CLIENTS_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("given", [None, CLIENTS_TRACE, f"00-{32 * '0'}-{16 * '1'}-01"])
def test_a_line_has_the_trace_of_the_client_or_of_the_gateway(
    tmp_path: Path, tracing: Tracing, given: str | None
) -> None:
    file = tmp_path / "audit.jsonl"

    async def use() -> None:
        async with asking(Gateway({"a": FakeServer("a", tools=[echo])}, audit=file)) as lines:
            meta = {} if given is None else {"_meta": {"traceparent": given}}
            await lines.ask("tools/call", {"name": "a_echo", "arguments": {"text": "x"}, **meta})

    asyncio.run(use())
    (line,) = written(file)
    (span,) = tracing.named("tools/call")
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == line["trace"]
    assert (line["trace"] == "0af7651916cd43dd8448eb211c80319c") is (given == CLIENTS_TRACE)


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


def test_a_line_of_a_refused_call_says_how_long_it_waited(tmp_path: Path) -> None:
    server = FakeServer("a", tools=[echo])
    server.hang(tool="echo")
    file = tmp_path / "audit.jsonl"
    limits = GatewayLimits(per_tool={"echo": Limit(concurrent=1)}, max_wait=0.01)

    async def use() -> None:
        clients = ClientsFile(anonymous=EVERYTHING, limits=limits)
        async with asking(Gateway({"a": server}, clients=clients, audit=file)) as lines:
            call = {"name": "a_echo", "arguments": {"text": "x"}}
            lines.begin("tools/call", call)
            await asyncio.to_thread(server.wait_for_call)
            await lines.ask("tools/call", call)
            [line] = written(file)
            assert line["outcome"] == "overloaded"
            assert 0.01 <= line["waited"] <= line["seconds"]

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
