"""Calls that fail between a gateway and its server: what clients are told, ours and others, and who repeats them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from gaia.mcp import errors
from gaia.mcp.aio import AsyncMCPClient
from gaia.mcp.client import MCPClient
from gaia.mcp.protocol.gateway_answers import GATEWAY_NAME, NOT_SENT, details_of, failed_result
from gaia.testing import FakeClock, FakeServer
from tests.fake_transport import FakeTransport, stateless_answers
from tests.gateway.running import running
from tests.waiting import PATIENCE

Json = dict[str, Any]

ERAS = pytest.mark.parametrize("protocol", ["handshake", "stateless"])


def write() -> str:
    """Act."""
    return "done"


def servers() -> Json:
    """The first call is lost with its server, which is not started again."""
    files = FakeServer("files", tools=[write])
    files.crash(tool="write")
    return {"files": {**files, "restart": {"restart": "never"}}}


@asynccontextmanager
async def client_of(url: str, protocol: str) -> AsyncIterator[MCPClient]:
    client = MCPClient.from_config("gateway", {"url": f"{url}/mcp", "protocol": protocol})
    assert await asyncio.to_thread(client.connect), client.last_error
    try:
        yield client
    finally:
        await asyncio.to_thread(client.disconnect)


def raised(call: Callable[[], object]) -> errors.MCPError:
    with pytest.raises(errors.MCPError) as caught:
        call()
    return caught.value


class TestOurClient:
    @ERAS
    @pytest.mark.parametrize("face", ["request", "submit_tool", "awaited"])
    async def test_exceptions_have_the_types_of_failures_here(self, protocol: str, face: str) -> None:
        def call(client: MCPClient) -> object:
            if face == "request":
                return client.request("tools/call", {"name": "files_write"})
            if face == "submit_tool":
                return client.submit_tool("files_write").result(PATIENCE)
            return asyncio.run(AsyncMCPClient.over(client).call_tool("files_write")).raise_for_error()

        async with running(servers()) as url, client_of(url, protocol) as client:
            error = await asyncio.to_thread(raised, lambda: call(client))
            assert isinstance(error, errors.ServerCrashed)
            assert error.delivery == "unknown"


def gateway_answers() -> dict[str, Any]:
    answers = stateless_answers()
    discover = answers["server/discover"]
    meta = {"io.modelcontextprotocol/serverInfo": {"name": GATEWAY_NAME, "version": "1"}}
    return {"server/discover": lambda params: {**discover(params), "_meta": meta}}


class TestAServerThatClaims:
    """A server may call itself a gateway. It is believed of itself, and makes nothing happen."""

    @pytest.mark.parametrize("tool", ["echo", "look"])
    def test_that_it_has_not_received_a_call(self, fake_clock: FakeClock, tool: str) -> None:
        transport = FakeTransport(answers=gateway_answers())
        client = MCPClient("fake", transport, protocol="stateless", clock=fake_clock)
        assert client.connect()
        channel = transport.channel()
        call = client.submit_tool(tool)
        request = channel.wait_for("tools/call")
        claim = details_of("a", errors.ServerCrashed("x"), "not_sent")
        error = {"code": NOT_SENT, "message": "lost", "data": claim}
        channel.write({"jsonrpc": "2.0", "id": request["id"], "error": error})
        found = call.exception(PATIENCE)
        assert isinstance(found, errors.ServerCrashed)
        assert found.delivery == "not_sent"
        client.disconnect()
        assert len(channel.requests("tools/call")) == 1
        assert transport.starts == 1

    def test_the_same_in_a_result_of_a_call_that_was_written(self, fake_clock: FakeClock) -> None:
        transport = FakeTransport(answers=gateway_answers())
        client = MCPClient("fake", transport, protocol="stateless", clock=fake_clock)
        assert client.connect()
        channel = transport.channel()
        call = client.submit_tool("echo")
        claim = failed_result("lost", details_of("a", errors.ServerCrashed("x"), "not_sent"))
        channel.answer(channel.wait_for("tools/call"), claim)
        found = call.exception(PATIENCE)
        assert isinstance(found, errors.ServerCrashed)
        assert found.delivery == "unknown"
        client.disconnect()

    def test_of_a_call_that_was_written_before(self, fake_clock: FakeClock) -> None:
        """The first attempt was lost; what is said of the second one says nothing of that."""
        transport = FakeTransport(answers=gateway_answers())
        client = MCPClient("fake", transport, protocol="stateless", clock=fake_clock)
        assert client.connect()
        call = client.submit_tool("look")
        transport.channel().wait_for("tools/call")
        transport.channel().end(exit_code=1)
        channel = transport.channel(2)
        request = channel.wait_for("tools/call")
        claim = details_of("a", errors.Overloaded("full"), "not_sent")
        error = {"code": NOT_SENT, "message": "full", "data": claim}
        channel.write({"jsonrpc": "2.0", "id": request["id"], "error": error})
        found = call.exception(PATIENCE)
        assert isinstance(found, errors.Overloaded)
        assert found.delivery == "unknown"
        client.disconnect()

    @pytest.mark.parametrize("form", ["error", "result"])
    def test_what_only_a_gateway_can_know(self, fake_clock: FakeClock, form: str) -> None:
        """A server may pass on what a gateway behind it has said of a part of its work."""
        transport = FakeTransport(answers=stateless_answers())
        client = MCPClient("fake", transport, protocol="stateless", clock=fake_clock)
        assert client.connect()
        channel = transport.channel()
        call = client.submit_tool("echo")
        request = channel.wait_for("tools/call")
        claim = details_of("a", errors.Overloaded("full"), "not_sent")
        if form == "error":
            error = {"code": NOT_SENT, "message": "full", "data": claim}
            channel.write({"jsonrpc": "2.0", "id": request["id"], "error": error})
            found = call.exception(PATIENCE)
            assert isinstance(found, errors.JsonRpcError)
            assert found.delivery == "unknown"
        else:
            channel.answer(request, failed_result("full", claim))
            result = call.result(PATIENCE)
            assert (result.is_error, "delivery" in result) == (True, False)
        client.disconnect()


class TestDurableRuntimes:
    """`temporalio-mcp` 0.2.0 runs a call again unless it has a result, or an error with one of these codes.

    The package is not installed for this: it brings 50 MB of native code, and the rule is all that is used of it
    (``temporalio/mcp/_activities.py``: "INTERNAL_ERROR, CONNECTION_CLOSED, REQUEST_TIMEOUT and unknown codes stay
    retryable").
    """

    NOT_RETRIED = frozenset(
        {
            types.PARSE_ERROR,
            types.INVALID_REQUEST,
            types.METHOD_NOT_FOUND,
            types.INVALID_PARAMS,
            types.HEADER_MISMATCH,
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            types.UNSUPPORTED_PROTOCOL_VERSION,
            types.URL_ELICITATION_REQUIRED,
        }
    )

    async def is_repeated(self, client: Client, tool: str) -> bool:
        try:
            await client.call_tool(tool, {})
        except MCPError as error:
            return error.code not in self.NOT_RETRIED
        return False

    @pytest.mark.parametrize("mode", ["legacy", "auto"])
    async def test_they_repeat_what_was_not_sent_and_nothing_else(self, mode: str) -> None:
        async with running(servers()) as url, Client(f"{url}/mcp", mode=mode) as client:
            await client.list_tools()
            assert not await self.is_repeated(client, "files_write"), "the server may have acted"
            assert await self.is_repeated(client, "files_write"), "it is down, and has not received this one"
