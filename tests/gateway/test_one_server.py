"""The path of one server: its client sees that server, and still knows that there is a gateway."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.gateway import Gateway
from gaia.mcp.protocol.gateway_answers import GATEWAY_NAME
from gaia.testing import FakePrompt, FakeServer, FakeTool
from tests.gateway.running import running

PROTOCOLS = pytest.mark.parametrize("protocol", ["handshake", "stateless"])

Json = dict[str, Any]


def look(at: str) -> Json:
    """Look at something."""
    return {"seen": at}


OUTPUT = {"type": "object", "properties": {"seen": {"type": "string"}}, "required": ["seen"]}
ANNOTATIONS = {"readOnlyHint": True, "title": "Look"}


def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello {name}"


def server() -> FakeServer:
    tool = FakeTool(look, annotations=ANNOTATIONS, outputSchema=OUTPUT)
    prompts = [FakePrompt(greet)]
    return FakeServer("eyes", [tool], resources={"a:1": "text"}, prompts=prompts, instructions="Look twice.")


def at(url: str, protocol: str, name: str = "eyes") -> MCPClient:
    return MCPClient.from_config("far", {"url": f"{url}/mcp/{name}", "protocol": protocol})


async def in_thread(function: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(function)


@PROTOCOLS
@pytest.mark.parametrize("hops", [1, 2])
async def test_a_client_sees_the_server_as_if_there_were_no_gateway(protocol: str, hops: int) -> None:
    eyes = server()
    direct = MCPClient.from_config("near", {**eyes})
    assert await in_thread(direct.connect)
    async with running(Gateway({"eyes": eyes})) as url:
        if hops == 1:
            await compare(at(url, protocol), direct)
        else:
            entry = {"url": f"{url}/mcp/eyes", "protocol": protocol}
            async with running(Gateway({"eyes": entry})) as second:
                await compare(at(second, protocol), direct)
    await in_thread(direct.disconnect)


async def compare(client: MCPClient, direct: MCPClient) -> None:
    def seen(of: MCPClient) -> Json:
        tools = of.list_tools()
        return {
            "info": of.server_info,
            "instructions": of.instructions,
            "capabilities": set(of.capabilities),
            "tools": [(tool.name, tool.annotations, tool.output_schema, tool.input_schema) for tool in tools],
            "resources": [one["uri"] for one in of.list_resources()],
            "prompts": [one["name"] for one in of.list_prompts()],
            "result": of.call_tool("look", {"at": "it"})["structuredContent"],
        }

    assert await in_thread(client.connect), client.last_error
    try:
        assert await in_thread(lambda: seen(client)) == await in_thread(lambda: seen(direct))
        profile = client._engine.session.profile
        assert profile is not None
        assert profile.is_gateway
    finally:
        await in_thread(client.disconnect)


async def test_a_client_of_an_older_gateway_knows_it_by_its_name() -> None:
    client = MCPClient.from_config("far", dict(FakeServer(GATEWAY_NAME)))
    assert await in_thread(client.connect)
    profile = client._engine.session.profile
    await in_thread(client.disconnect)
    assert profile is not None
    assert profile.is_gateway


async def test_a_server_without_tools_is_not_said_to_have_any() -> None:
    transport_less = FakeServer("texts", resources={"a:1": "text"})
    async with running(Gateway({"texts": transport_less})) as url:
        client = at(url, "handshake", "texts")
        assert await in_thread(client.connect)
        direct = MCPClient.from_config("near", {**transport_less})
        assert await in_thread(direct.connect)
        assert set(client.capabilities) == set(direct.capabilities)
        await in_thread(direct.disconnect)
        await in_thread(client.disconnect)


@PROTOCOLS
@pytest.mark.process
async def test_opening_waits_for_the_server_as_long_as_the_client_does(
    protocol: str, fault_server: Callable[..., Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaia.mcp.gateway.views.view._OPENING_SECONDS", 0.01)
    slow = fault_server(faults=[{"on": "initialize", "delay": 1.0}, {"on": "server/discover", "delay": 1.0}])
    async with running(Gateway({"slow": slow})) as url:
        client = at(url, protocol, "slow")
        assert await in_thread(client.connect), client.last_error
        info = client.server_info
        await in_thread(client.disconnect)
    assert info["name"] != GATEWAY_NAME
