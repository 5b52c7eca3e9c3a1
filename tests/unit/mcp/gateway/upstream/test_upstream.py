"""Requests are passed on with all that the engine does for a call: filters, restarts, delivery, deadlines."""

from __future__ import annotations

import orjson
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from gaia.mcp.errors import CallTimeout, JsonRpcError, NotConnected, ServerCrashed, ToolDenied
from gaia.telemetry import attributes as names
from gaia.testing import FakeServer
from tests.gateway.client_of_upstream import Requester, call_of, upstream_of
from tests.tracing import Tracing, attributes_of

REVISIONS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


def echo(text: str) -> str:
    """Say it again."""
    return text


def huge(number: float) -> dict[str, int]:
    """A number that no double is as large as."""
    return {"number": 10**400}


def fail() -> str:
    """Fail."""
    raise ValueError("it did")


@REVISIONS
async def test_a_result_is_passed_on_as_bytes(revision: str) -> None:
    async with upstream_of(FakeServer("one", tools=[echo, fail], protocol=revision)) as upstream:
        sent = Requester().send(upstream, "tools/call", call_of("echo", text="höre \n zu"))
        assert await sent.text() == "höre \n zu"
        assert (await sent.relayed()).is_error is False
        failed = await Requester().send(upstream, "tools/call", call_of("fail")).relayed()
        assert failed.is_error
        assert failed.error is None


@REVISIONS
async def test_every_method_can_be_passed_on(revision: str) -> None:
    async with upstream_of(FakeServer("one", resources={"file:///a": "A"}, protocol=revision)) as upstream:
        read = await Requester().send(upstream, "resources/read", {"uri": "file:///a"}).result()
        assert read["contents"][0]["text"] == "A"
        error = (await Requester().send(upstream, "resources/read", {"uri": "file:///b"}).relayed()).error
        assert isinstance(error, JsonRpcError), "the server's own"


async def test_a_tool_that_a_filter_denies_never_reaches_the_server() -> None:
    server = FakeServer("one", tools=[echo, fail])
    async with upstream_of({**server, "disabledTools": ["fail"]}) as upstream:
        requester = Requester().send(upstream, "tools/call", call_of("fail"))
        assert isinstance((await requester.relayed()).error, ToolDenied)
        assert requester.call is None
    assert server.calls == []


async def test_a_call_that_was_written_is_lost_with_the_server_and_says_so() -> None:
    server = FakeServer("one", tools=[echo])
    async with upstream_of(server) as upstream:
        server.crash(tool="echo")
        error = (await Requester().send(upstream, "tools/call", call_of("echo", text="a")).relayed()).error
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        after = Requester().send(upstream, "tools/call", call_of("echo", text="after"))
        assert await after.text() == "after", "it waits for the next start"


async def test_a_deadline_ends_a_call() -> None:
    server = FakeServer("one", tools=[echo])
    async with upstream_of({**server, "timeout": 0.2}) as upstream:
        server.hang(tool="echo")
        error = (await Requester().send(upstream, "tools/call", call_of("echo", text="a")).relayed()).error
        assert isinstance(error, CallTimeout)


async def test_a_server_that_is_disconnected_refuses() -> None:
    async with upstream_of(FakeServer("one", tools=[echo])) as upstream:
        pass
    error = (await Requester().send(upstream, "tools/call", call_of("echo", text="a")).relayed()).error
    assert isinstance(error, NotConnected)


async def test_what_cannot_be_written_is_the_clients_fault() -> None:
    async with upstream_of(FakeServer("one", tools=[echo])) as upstream:
        params = {"name": "echo", "arguments": orjson.Fragment(b'{"text":1e999}'), "_meta": {"far": 10**30}}
        error = (await Requester().send(upstream, "tools/call", params).relayed()).error
        assert isinstance(error, JsonRpcError)
        assert (error.code, error.delivery) == (-32602, "not_sent")


async def test_the_server_is_told_what_this_client_can_do() -> None:
    server = FakeServer("one", tools=[echo], protocol="2026-07-28")
    async with upstream_of(server) as upstream:
        for capabilities in ({}, {"elicitation": {}}):
            requester = Requester(capabilities=capabilities)
            await requester.send(upstream, "tools/call", call_of("echo", text="a")).result()
        metas = [call.meta for call in server.calls]
        key = "io.modelcontextprotocol/clientCapabilities"
        assert [meta[key] for meta in metas] == [{}, {"elicitation": {}}]
        assert orjson.loads(orjson.dumps(metas[0]["io.modelcontextprotocol/clientInfo"]))["name"] == "GAIA MCP Client"


class TestTraced:
    @REVISIONS
    async def test_the_clients_trace_goes_on(self, revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
        async with upstream_of(FakeServer("one", tools=[echo], protocol=revision)) as upstream:
            tracing = Tracing.installed(monkeypatch)
            trace = "0af7651916cd43dd8448eb211c80319c"
            meta = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
            await Requester().send(upstream, "tools/call", {**call_of("echo", text="a"), "_meta": meta}).result()
            await Requester().send(upstream, "tools/call", call_of("echo", text="b")).result()
            continued, own = tracing.calls
            assert continued.parent is not None
            assert (f"{continued.parent.trace_id:032x}", f"{continued.parent.span_id:016x}") == (
                trace,
                meta["traceparent"][36:52],
            )
            assert own.parent is None

    async def test_it_records_arguments_and_result(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with upstream_of(FakeServer("one", tools=[echo])) as upstream:
            tracing = Tracing.installed(monkeypatch)
            await Requester().send(upstream, "tools/call", call_of("echo", text="hello")).result()
            recorded = attributes_of(tracing.call)
            assert recorded[names.TOOL_ARGUMENTS] == '{"text":"hello"}'
            assert '"hello"' in recorded[names.TOOL_RESULT]

    @pytest.mark.parametrize("sampler", [ALWAYS_ON, ALWAYS_OFF])
    async def test_what_cannot_be_decoded_is_passed_on_all_the_same(
        self, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with upstream_of(FakeServer("one", tools=[huge])) as upstream:
            Tracing.installed(monkeypatch, TracerProvider(sampler=sampler))
            params = {"name": "huge", "arguments": orjson.Fragment(b'{"number":1e400}')}
            relayed = await Requester().send(upstream, "tools/call", params).relayed()
            assert relayed.error is None
            assert b"0" * 400 in relayed.result
