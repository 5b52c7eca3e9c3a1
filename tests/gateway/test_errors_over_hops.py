"""What a call failed of, and whether the server may have acted, as a client learns it over one gateway and over two."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from gaia.mcp import errors
from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.gateway import Gateway
from gaia.mcp.gateway.methods import relaying
from gaia.mcp.protocol.gateway_answers import NOT_SENT
from gaia.testing import FakeServer
from tests.gateway.running import running

Json = dict[str, Any]

PROTOCOLS = pytest.mark.parametrize("protocol", ["handshake", "stateless"])
HOPS = pytest.mark.parametrize("hops", [1, 2])


def write() -> str:
    """Act."""
    return "done"


@contextlib.asynccontextmanager
async def client_over(servers: Json, hops: int, protocol: str, path: str = "/mcp") -> AsyncIterator[MCPClient]:
    """A client of the first of `hops` gateways; the last one has the servers."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(hops):
            url = await stack.enter_async_context(running(Gateway(servers)))
            servers = {"far": {"url": f"{url}{path}", "protocol": protocol}}
        client = MCPClient.from_config("near", servers["far"])
        assert await asyncio.to_thread(client.connect), client.last_error
        try:
            yield client
        finally:
            await asyncio.to_thread(client.disconnect)


def name_of(tool: str, hops: int) -> str:
    return "far_" * (hops - 1) + tool


def error_of(client: MCPClient, tool: str, **options: Any) -> errors.MCPError:
    with pytest.raises(errors.MCPError) as caught:
        client.submit_tool(tool, {}, **options).result()
    return caught.value


KINDS = sorted(
    {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.MCPError)
        # The server's own answers stay as they are, see below. A tool that fails is no error of the call.
        and kind not in (errors.JsonRpcError, errors.UrlElicitationRequired, errors.ToolFailed)
    },
    key=lambda kind: kind.__name__,
)


@PROTOCOLS
@HOPS
async def test_every_type_of_error_and_each_delivery_comes_back(
    hops: int, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [(kind, delivery) for kind in KINDS for delivery in ("not_sent", "unknown")]
    real, error = relaying._new_call, errors.MCPError("")

    def fails(passed: Any, server: Any, owner: Any, params: Json) -> Any:
        if server.name == "files":
            raise error
        return real(passed, server, owner, params)

    found, expected = [], []
    async with client_over({"files": FakeServer("files", tools=[write])}, hops, protocol) as client:
        monkeypatch.setattr(relaying, "_new_call", fails)
        for kind, delivery in cases:
            error = kind("why", delivery=delivery)  # type: ignore[arg-type]
            came = await asyncio.to_thread(error_of, client, name_of("files_write", hops))
            found.append((kind.__name__, came.error_type, came.delivery))
            word = "server_unavailable" if kind is errors.NotConnected else error.error_type
            expected.append((kind.__name__, word, delivery))
    assert found == expected


class Case(NamedTuple):
    """How a call comes to fail at the last gateway."""

    entry: Json
    expected: tuple[str, str]
    tool: str = "files_write"
    crash: bool = False


CASES = {
    "an unknown tool": Case({}, ("unknown_tool", "not_sent"), tool="files_other"),
    "an unknown server": Case({}, ("unknown_tool", "not_sent"), tool="others_write"),
    "a denied tool": Case({"disabledTools": ["write"]}, ("unknown_tool", "not_sent")),
    "a server that is lost with the call": Case(
        {"restart": {"restart": "never"}}, ("server_crashed", "unknown"), crash=True
    ),
    "a server that does not start": Case({"command": "/does/not/exist"}, ("server_unavailable", "not_sent")),
}


@PROTOCOLS
@HOPS
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_call_that_fails(case: Case, hops: int, protocol: str) -> None:
    server = FakeServer("files", tools=[write])
    if case.crash:
        server.crash(tool="write")
    entry = case.entry if "command" in case.entry else {**server, **case.entry}
    async with client_over({"files": entry}, hops, protocol) as client:
        error = await asyncio.to_thread(error_of, client, name_of(case.tool, hops))
    assert (error.error_type, error.delivery) == case.expected


@PROTOCOLS
@HOPS
async def test_a_server_that_was_lost_refuses_calls_and_its_tools_stay_known(hops: int, protocol: str) -> None:
    """Also for a manager, which knows only the tools that the gateway lists."""
    server = FakeServer("files", tools=[write])
    entry = {**server, "restart": {"restart": "never"}}
    async with client_over({"files": entry, "other": FakeServer("other", tools=[write])}, hops, protocol) as client:
        server.crash()
        server.fail_starts(100)
        error = await asyncio.to_thread(error_of, client, name_of("files_write", hops))
        found = error.error_type
    assert found == "server_unavailable"


@PROTOCOLS
@HOPS
@pytest.mark.parametrize("is_running", [True, False])
async def test_a_call_that_times_out_at_the_server_or_while_it_waits_for_it(
    is_running: bool, hops: int, protocol: str
) -> None:
    server = FakeServer("files", tools=[write])
    restart = {"initialDelay": 600, "maxDelay": 600}
    async with client_over({"files": {**server, "timeout": 0.2, "restart": restart}}, hops, protocol) as client:
        if is_running:
            server.hang(tool="write")
        else:
            server.fail_starts(100)
            server.crash()
        error = await asyncio.to_thread(error_of, client, name_of("files_write", hops))
    assert (error.error_type, error.delivery) == ("timeout", "unknown" if is_running else "not_sent")


@PROTOCOLS
@HOPS
async def test_a_call_for_which_there_is_no_room(hops: int, protocol: str) -> None:
    server = FakeServer("files", tools=[write])
    server.hang(tool="write")
    async with client_over({"files": {**server, "maxPending": 1}}, hops, protocol) as client:
        first = client.submit_tool(name_of("files_write", hops), {})
        await asyncio.to_thread(server.wait_for_call)
        error = await asyncio.to_thread(error_of, client, name_of("files_write", hops))
        first.cancel()
    assert (error.error_type, error.delivery) == ("overloaded", "not_sent")


@PROTOCOLS
async def test_a_manager_asks_a_gateway_for_the_tool_of_a_server_that_has_not_started(protocol: str) -> None:
    servers = {"files": {"command": "/does/not/exist"}, "other": FakeServer("other", tools=[write])}
    async with running(Gateway(servers)) as url:
        manager = MCPClientManager({"far": {"url": f"{url}/mcp", "protocol": protocol}})
        await asyncio.to_thread(manager.load_from_config)
        try:
            failed = await asyncio.to_thread(manager.call_tool, "mcp_far_files_write")
            unknown = await asyncio.to_thread(manager.call_tool, "mcp_far_filse_write")
        finally:
            await asyncio.to_thread(manager.disconnect_all)
    assert (failed["error_type"], failed["delivery"]) == ("server_unavailable", "not_sent")
    assert "did you mean" not in failed["error"]
    assert (unknown["error_type"], unknown["delivery"]) == ("unknown_tool", "not_sent")


@PROTOCOLS
@HOPS
async def test_a_request_that_the_gateway_itself_refuses_was_not_sent(hops: int, protocol: str) -> None:
    async with client_over({"files": FakeServer("files", tools=[write])}, hops, protocol) as client:
        for method, params in (
            ("prompts/get", {"name": "none"}),
            ("resources/read", {"uri": 1}),
            ("completion/complete", {"ref": 1}),
        ):
            with pytest.raises(errors.JsonRpcError) as caught:
                await asyncio.to_thread(client.request, method, params)
            assert (caught.value.code, caught.value.delivery) == (-32602, "not_sent")


@PROTOCOLS
async def test_a_server_cannot_speak_for_the_gateway(protocol: str) -> None:

    def lie() -> None:
        """Claim what only a gateway can know."""
        raise errors.JsonRpcError(NOT_SENT, "lie", {"errorType": "overloaded", "delivery": "not_sent"})

    async with client_over({"files": FakeServer("files", tools=[lie])}, 1, protocol) as client:
        error = await asyncio.to_thread(error_of, client, "files_lie")
    assert (error.error_type, error.delivery) == ("jsonrpc", "unknown")
