"""Servers ask clients of a gateway: several things at once, and servers on the official SDK.

`test_combinations.py` has one question at a time, in all combinations.
"""

import asyncio
import contextlib
import runpy
import time
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from gaia.agents.base.mcp_context import MCPContext
from gaia.mcp import CurrentCall, current_call
from gaia.mcp.aio import AsyncMCPClient
from gaia.testing import FakeServer
from tests.gateway.running import running, serving
from tests.servers import asking_server
from tests.waiting import PATIENCE

MODES = ("legacy", "auto")
HANDSHAKE, STATELESS = REVISIONS = ("2025-11-25", "2026-07-28")
SECONDS = 1.0
"""The time of a call that a person has to interrupt."""

PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

WHO = {"mode": "form", "message": "Who are you?", "requestedSchema": PERSON}

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

each_combination = pytest.mark.parametrize(("mode", "revision"), [(m, r) for m in MODES for r in REVISIONS])


def greet(context: MCPContext) -> str:
    """Ask a person for a name, and a model for a greeting."""
    requests = {
        "who": {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "Who are you?", "requestedSchema": PERSON},
        },
        "how": {
            "method": "sampling/createMessage",
            "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Greet"}}], "maxTokens": 5},
        },
        "where": {"method": "roots/list", "params": {}},
    }
    answers = context.ask(requests)
    name = answers["who"]["content"]["name"]
    return f"{answers['how']['content']['text']} {name} in {answers['where']['roots'][0]['uri']}"


async def elicited(_context: Any, params: Any) -> types.ElicitResult:
    names = {"First?": "Ann", "Second?": "Ben"}
    return types.ElicitResult(action="accept", content={"name": names.get(params.message, "Cleo")})


async def sampled(_context: Any, _params: Any) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="Paris")
    return types.CreateMessageResult(role="assistant", content=content, model="small")


async def rooted(_context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///here")])  # type: ignore[arg-type]


CALLBACKS = {"elicitation_callback": elicited, "sampling_callback": sampled, "list_roots_callback": rooted}


@contextlib.asynccontextmanager
async def connected(server: Any, mode: str, **callbacks: Any) -> AsyncIterator[Client]:
    async with running({"asks": server}) as url, Client(f"{url}/mcp/asks", mode=mode, **callbacks) as client:  # type: ignore[arg-type]
        yield client


async def said(client: Client, tool: str, arguments: dict[str, Any] | None = None) -> str:
    async with asyncio.timeout(PATIENCE):
        result = await client.call_tool(tool, arguments or {})
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


@each_combination
async def test_a_server_asks_several_things_at_once(mode: str, revision: str) -> None:
    server = FakeServer("asks", tools=[greet], protocol=revision)
    async with connected(server, mode, **CALLBACKS) as client:
        assert await said(client, "greet") == "Paris Cleo in file:///here"


@contextlib.asynccontextmanager
async def served_over_http() -> AsyncIterator[str]:
    """The URL of a new asking server, on the official SDK."""
    application = runpy.run_path(asking_server.__file__)["server"].streamable_http_app()
    async with serving(application) as url:
        yield f"{url}/mcp"


# `test_combinations.py` has all combinations.
@pytest.mark.slow
@pytest.mark.parametrize(("mode", "revision"), list(zip(MODES, REVISIONS, strict=True)))
async def test_a_real_server_asks_over_http(mode: str, revision: str) -> None:
    async with served_over_http() as url, connected({"url": url, "protocol": revision}, mode, **CALLBACKS) as client:
        if revision == HANDSHAKE:
            assert await said(client, "ask_form") == "Cleo is 30"
            assert await said(client, "ask_model") == "small: Paris"
            several = [said(client, "ask_form") for _ in range(3)]
            assert await asyncio.gather(*several) == ["Cleo is 30"] * 3, "each has a stream of its own"
        else:
            assert await said(client, "greet") == "Paris Cleo, file:///here, asked"
            assert await said(client, "count", {"rounds": 3}) == "3"


@each_combination
async def test_the_clock_of_a_call_through_a_gateway_stands_still_while_a_person_thinks(
    mode: str, revision: str
) -> None:
    """The call's own time would be over on both sides of the gateway when the person answers."""
    calls: list[CurrentCall | None] = []

    async def think(request: Any) -> Any:
        calls.append(current_call())
        while time.monotonic() < began + 3 * SECONDS:
            await asyncio.sleep(SECONDS / 10)
        return request.accept({"name": "Cleo"})

    def ask(context: MCPContext) -> str:
        answers = context.ask({"who": {"method": "elicitation/create", "params": WHO}})
        return str(answers["who"]["content"]["name"])

    server = FakeServer("asks", tools=[ask], protocol=revision)
    async with running({"asks": server}) as url:
        entry = {"url": f"{url}/mcp/asks", "protocol": mode, "timeout": PATIENCE}
        async with AsyncMCPClient.from_config("gate", entry, on_elicitation=think) as client:
            began = time.monotonic()
            result = await client.call_tool("ask", timeout=SECONDS, context="a ticket")
            assert result.text == "Cleo", result
    assert [call is not None and call.context for call in calls] == ["a ticket"]
