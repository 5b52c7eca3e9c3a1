"""A server on the official Python SDK that asks its client for everything it can.

Its tools ask through the session, as servers of the handshake era do.
"""

from __future__ import annotations

from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel, Field

server = MCPServer("asking")


class Person(BaseModel):
    name: str
    age: Annotated[int, Field(ge=0)] = 30


@server.tool()
async def ask_form(context: Context) -> str:  # type: ignore[type-arg]
    """Ask a person with a form."""
    answer = await context.elicit("Who are you?", Person)
    return answer.action if answer.action != "accept" else f"{answer.data.name} is {answer.data.age}"


@server.tool()
async def ask_url(context: Context) -> str:  # type: ignore[type-arg]
    """Send a person to a URL."""
    answer = await context.elicit_url("Please pay", "https://example.com/pay", "payment-1")
    await context.session.send_elicit_complete("payment-1")
    return answer.action


@server.tool()
async def ask_model(context: Context) -> str:  # type: ignore[type-arg]
    """Ask the client's model."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text="What is the capital of France?"))
    answer = await context.session.create_message([question], max_tokens=10)
    return f"{answer.model}: {answer.content.text}"  # type: ignore[union-attr]


@server.tool()
async def ask_roots(context: Context) -> list[str]:  # type: ignore[type-arg]
    """Ask for the client's folders."""
    return [str(root.uri) for root in (await context.session.list_roots()).roots]


if __name__ == "__main__":
    server.run()
