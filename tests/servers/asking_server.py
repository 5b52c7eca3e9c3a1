"""A server on the official Python SDK that asks its client for everything it can.

Its tools ask through the session, as servers of the handshake era do; ``greet``, ``count`` and the prompt ask by
results that require input, as those of the stateless era do.
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
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


def form(message: str) -> ElicitRequest:
    schema: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


@server.tool()
async def greet(context: Context) -> InputRequiredResult | str:  # type: ignore[type-arg]
    """Ask a person, the client's model and for its folders, all at once."""
    answers = context.input_responses
    if answers is None:
        question = SamplingMessage(role="user", content=TextContent(type="text", text="Greet"))
        model = CreateMessageRequest(params=CreateMessageRequestParams(messages=[question], max_tokens=5))
        requests = {"who": form("Who?"), "greeting": model, "where": ListRootsRequest()}
        return InputRequiredResult(input_requests=requests, request_state="asked")
    who, greeting, where = answers["who"], answers["greeting"], answers["where"]
    assert isinstance(who, ElicitResult)
    assert isinstance(greeting, CreateMessageResult)
    assert isinstance(greeting.content, TextContent)
    assert isinstance(where, ListRootsResult)
    return f"{greeting.content.text} {(who.content or {})['name']}, {where.roots[0].uri}, {context.request_state}"


@server.tool()
async def count(rounds: int, context: Context) -> InputRequiredResult | str:  # type: ignore[type-arg]
    """Want to be asked again, so many times."""
    done = int(context.request_state or 0)
    return str(done) if done == rounds else InputRequiredResult(request_state=str(done + 1))


@server.prompt()
async def introduction(context: Context) -> InputRequiredResult | str:  # type: ignore[type-arg]
    """Ask a person, and make a prompt of it."""
    answers = context.input_responses
    if answers is None:
        return InputRequiredResult(input_requests={"who": form("Who?")})
    who = answers["who"]
    assert isinstance(who, ElicitResult)
    return f"I am {(who.content or {})['name']}"


if __name__ == "__main__":
    server.run()
