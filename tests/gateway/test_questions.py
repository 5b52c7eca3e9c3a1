"""Servers ask the clients of the gateway: handshake and stateless servers, handshake and stateless clients."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from gaia.agents.base.mcp_context import MCPContext
from gaia.testing import FakeServer
from tests.gateway.running import running

MODES = ("legacy", "auto")
REVISIONS = ("2025-11-25", "2026-07-28")

pytestmark = [pytest.mark.parametrize("mode", MODES), pytest.mark.parametrize("revision", REVISIONS)]

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def greet(context: MCPContext) -> str:
    """Ask a person for a name, and a model for a greeting."""
    requests = {
        "who": {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "Who are you?", "requestedSchema": SCHEMA},
        },
        "how": {
            "method": "sampling/createMessage",
            "params": {
                "messages": [{"role": "user", "content": {"type": "text", "text": "Greet"}}],
                "maxTokens": 5,
            },
        },
        "where": {"method": "roots/list", "params": {}},
    }
    answers = context.ask(requests)
    name = answers["who"]["content"]["name"]
    return f"{answers['how']['content']['text']} {name} in {answers['where']['roots'][0]['uri']}"


async def person(_context: Any, params: Any) -> types.ElicitResult:
    assert params.message == "Who are you?"
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def model(_context: Any, _params: Any) -> types.CreateMessageResult:
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(type="text", text="Hello"), model="small", stop_reason="endTurn"
    )


async def folders(_context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///home")])


def test_questions_reach_the_client_whose_call_it_is(mode: str, revision: str) -> None:
    server = FakeServer("polite", tools=[greet], protocol=revision)

    async def use() -> None:
        async with (
            running({"polite": server}) as url,
            Client(
                f"{url}/mcp",
                mode=mode,
                elicitation_callback=person,
                sampling_callback=model,
                list_roots_callback=folders,
            ) as client,
        ):
            result = await client.call_tool("polite_greet", {})
            assert result.content[0].text == "Hello Ada in file:///home"
            assert not result.is_error

    asyncio.run(use())


def test_a_client_that_cannot_be_asked_is_not(mode: str, revision: str) -> None:
    server = FakeServer("polite", tools=[greet], protocol=revision)

    async def use() -> None:
        async with running({"polite": server}) as url, Client(f"{url}/mcp", mode=mode) as client:
            try:
                result = await client.call_tool("polite_greet", {})
            except MCPError as refused:
                text = refused.error.message
            else:
                assert result.is_error
                text = result.content[0].text
            assert "elicitation" in text

    asyncio.run(use())
