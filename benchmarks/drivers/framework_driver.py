"""Tools of an agent framework, called as its agents call them: ``framework_driver.py FRAMEWORK CLIENT``.

CLIENT is ``adapter`` for the one of gaia-mcp, or one of the framework's own. Each opens one server and gives a function
that calls its tool ``echo``; those of a framework differ in where the tool comes from, and in nothing else.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any

from driving import drive, drive_async

Call = Callable[[str], Any]
AsyncCall = Callable[[str], Awaitable[Any]]


@contextmanager
def manager(argv: list[str]) -> Iterator[Any]:
    """A manager of gaia-mcp with the server."""
    from gaia.mcp import MCPClientManager

    with MCPClientManager({"s": {"command": argv[0], "args": argv[1:]}}) as managed:
        managed.require("s", timeout=30)
        yield managed


def echo_of(tools: list[Any]) -> Any:
    """The tool, under its own name or that of a manager."""
    return next(tool for tool in tools if str(getattr(tool, "name", None) or tool.tool_name) in ("echo", "mcp_s_echo"))


# Awaited.


def langchain_call(tools: list[Any]) -> AsyncCall:
    tool = echo_of(tools)
    return lambda text: tool.ainvoke({"text": text})


def langchain_client(argv: list[str]) -> Any:
    from langchain_mcp_adapters.client import MultiServerMCPClient

    return MultiServerMCPClient({"s": {"transport": "stdio", "command": argv[0], "args": argv[1:]}})


@asynccontextmanager
async def langchain_own(argv: list[str]) -> AsyncIterator[AsyncCall]:
    yield langchain_call(await langchain_client(argv).get_tools())


@asynccontextmanager
async def langchain_session(argv: list[str]) -> AsyncIterator[AsyncCall]:
    from langchain_mcp_adapters.tools import load_mcp_tools

    async with langchain_client(argv).session("s") as session:
        yield langchain_call(await load_mcp_tools(session))


async def pydantic_ai_call(toolset: Any) -> AsyncCall:
    from pydantic_ai import RunContext
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.usage import RunUsage

    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    ((name, tool),) = [
        (name, tool) for name, tool in (await toolset.get_tools(context)).items() if name.endswith("echo")
    ]
    return lambda text: toolset.call_tool(name, {"text": text}, context, tool)


@asynccontextmanager
async def pydantic_ai_own(argv: list[str]) -> AsyncIterator[AsyncCall]:
    from pydantic_ai.mcp import MCPToolset

    servers = {"mcpServers": {"s": {"command": argv[0], "args": argv[1:]}}}
    async with MCPToolset(servers) as toolset:
        yield await pydantic_ai_call(toolset)


def openai_agents_call(tools: list[Any]) -> AsyncCall:
    from agents.tool_context import ToolContext

    tool = echo_of(tools)

    def call(text: str) -> Any:
        arguments = json.dumps({"text": text})
        context = ToolContext(None, tool_name=tool.name, tool_call_id="1", tool_arguments=arguments)
        return tool.on_invoke_tool(context, arguments)

    return call


@asynccontextmanager
async def openai_agents_own(argv: list[str]) -> AsyncIterator[AsyncCall]:
    from agents import Agent, RunContextWrapper
    from agents.mcp import MCPServerStdio

    async with MCPServerStdio({"command": argv[0], "args": argv[1:]}, cache_tools_list=True) as server:
        agent = Agent(name="echo", mcp_servers=[server])
        yield openai_agents_call(await agent.get_mcp_tools(RunContextWrapper(None)))


async def google_adk_call(toolset: Any) -> AsyncCall:
    from google.adk.agents import LlmAgent
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.sessions import InMemorySessionService
    from google.adk.tools import ToolContext

    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="echo", user_id="user")
    invocation = InvocationContext(
        invocation_id="1", agent=LlmAgent(name="echo"), session=session, session_service=sessions
    )
    tool = echo_of(await toolset.get_tools())
    return lambda text: tool.run_async(args={"text": text}, tool_context=ToolContext(invocation))


@asynccontextmanager
async def google_adk_own(argv: list[str]) -> AsyncIterator[AsyncCall]:
    from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
    from mcp import StdioServerParameters

    parameters = StdioConnectionParams(server_params=StdioServerParameters(command=argv[0], args=argv[1:]))
    toolset = McpToolset(connection_params=parameters)
    try:
        yield await google_adk_call(toolset)
    finally:
        await toolset.close()


def strands_call(tools: list[Any]) -> AsyncCall:
    tool = echo_of(tools)

    async def call(text: str) -> Any:
        events = [event async for event in tool.stream({"toolUseId": "1", "name": "echo", "input": {"text": text}}, {})]
        return events[-1]

    return call


@asynccontextmanager
async def strands_own(argv: list[str]) -> AsyncIterator[AsyncCall]:
    from mcp import StdioServerParameters, stdio_client
    from strands.tools.mcp import MCPClient

    with MCPClient(lambda: stdio_client(StdioServerParameters(command=argv[0], args=argv[1:]))) as client:
        yield strands_call(client.list_tools_sync())


def llama_index_call(tools: list[Any]) -> AsyncCall:
    tool = next(tool for tool in tools if tool.metadata.name.endswith("echo"))
    return lambda text: tool.acall(text=text)


@asynccontextmanager
async def llama_index_own(argv: list[str]) -> AsyncIterator[AsyncCall]:
    from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

    yield llama_index_call(await McpToolSpec(BasicMCPClient(argv[0], args=argv[1:])).to_tool_list_async())


# Blocking.


def crewai_call(tools: list[Any]) -> Call:
    tool = echo_of(tools)
    return lambda text: tool.run(text=text)


@contextmanager
def crewai_own(argv: list[str]) -> Iterator[Call]:
    from crewai_tools import MCPServerAdapter
    from mcp import StdioServerParameters

    with MCPServerAdapter(StdioServerParameters(command=argv[0], args=argv[1:])) as tools:
        yield crewai_call(tools)


def smolagents_call(tools: list[Any]) -> Call:
    tool = echo_of(tools)
    return lambda text: tool(text=text)


@contextmanager
def smolagents_own(argv: list[str]) -> Iterator[Call]:
    from mcp import StdioServerParameters
    from smolagents import MCPClient

    with MCPClient(StdioServerParameters(command=argv[0], args=argv[1:]), structured_output=False) as tools:
        yield smolagents_call(tools)


ADAPTERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "langchain": ("langchain_tools", langchain_call),
    "pydantic_ai": ("MCPManagerToolset", pydantic_ai_call),
    "openai_agents": ("function_tools", openai_agents_call),
    "google_adk": ("MCPManagerToolset", google_adk_call),
    "strands": ("strands_tools", strands_call),
    "llama_index": ("llama_index_tools", llama_index_call),
    "crewai": ("crewai_tools", crewai_call),
    "smolagents": ("smolagents_tools", smolagents_call),
}
"""By framework: what the adapter of gaia-mcp makes of a manager, and how its tool is called."""


@contextmanager
def adapter(argv: list[str]) -> Iterator[Any]:
    name, call = ADAPTERS[framework]
    with manager(argv) as managed:
        yield call(getattr(importlib.import_module(f"gaia.adapters.{framework}"), name)(managed))


@asynccontextmanager
async def awaited_adapter(argv: list[str]) -> AsyncIterator[AsyncCall]:
    with adapter(argv) as call:
        yield await call if inspect.isawaitable(call) else call


class Requests:
    def load(self) -> None:
        """Nothing: frameworks are imported when they connect."""

    def request(self, text: str) -> str:
        return text

    def is_echo(self, request: str, answer: Any) -> bool:
        """Frameworks wrap results in objects of their own, all of which show what is in them."""
        return request in str(answer)


class Blocking(Requests):
    def __init__(self, opened: Callable[[list[str]], Any]) -> None:
        self._opened = opened
        self._stack = ExitStack()

    def connect(self, argv: list[str], servers: int) -> None:
        self._calls = [self._stack.enter_context(self._opened(argv)) for _ in range(servers)]

    def disconnect(self) -> None:
        self._stack.close()

    def call(self, server: int, request: str) -> Any:
        return self._calls[server](request)


class Awaited(Requests):
    def __init__(self, opened: Callable[[list[str]], Any]) -> None:
        self._opened = opened

    @asynccontextmanager
    async def client(self, argv: list[str]) -> AsyncIterator[AsyncCall]:
        async with AsyncExitStack() as stack:
            yield await stack.enter_async_context(self._opened(argv))

    async def call(self, client: AsyncCall, request: str) -> Any:
        return await client(request)


if __name__ == "__main__":
    framework, client = sys.argv[1:]
    own = globals().get(f"{framework}_{client}")
    if framework in ("crewai", "smolagents"):
        drive(Blocking(own or adapter))
    else:
        drive_async(Awaited(own or awaited_adapter))
