"""What each framework asks its adapter for at a step of a run, and what its own MCP client does in this place."""

from __future__ import annotations

import importlib
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

Step = Callable[[], Awaitable[Any]]
"""Lists the definitions of a step: by name, or as a list. Awaited on the agent's loop."""


def langchain(manager: Any, **selection: Any) -> Step:
    from gaia.adapters.langchain_agents import MCPToolsMiddleware

    middleware = MCPToolsMiddleware(manager, **selection)

    class Request:
        tools: tuple[Any, ...] = ()

        def override(self, **changes: Any) -> Any:
            return changes["tools"]

    async def step() -> Any:
        async def handler(tools: Any) -> Any:
            return tools

        return await middleware.awrap_model_call(Request(), handler)

    return step


async def langchain_own(argv: list[str], stack: AsyncExitStack) -> Step:
    from langchain_mcp_adapters.client import MultiServerMCPClient

    client = MultiServerMCPClient({"s": {"transport": "stdio", "command": argv[0], "args": argv[1:]}})
    return client.get_tools


def _context() -> Any:
    from pydantic_ai import RunContext
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.usage import RunUsage

    return RunContext(deps=None, model=TestModel(), usage=RunUsage())


def pydantic_ai(manager: Any, **selection: Any) -> Step:
    from gaia.adapters.pydantic_ai import MCPManagerToolset

    toolset, context = MCPManagerToolset(manager, **selection), _context()
    return lambda: toolset.get_tools(context)


async def pydantic_ai_own(argv: list[str], stack: AsyncExitStack) -> Step:
    from pydantic_ai.mcp import MCPToolset

    toolset = await stack.enter_async_context(MCPToolset({"mcpServers": {"s": {"command": argv[0], "args": argv[1:]}}}))
    context = _context()
    return lambda: toolset.get_tools(context)


def openai_agents(manager: Any, **selection: Any) -> Step:
    from agents import RunContextWrapper

    from gaia.adapters.openai_agents import MCPManagerAgent

    agent = MCPManagerAgent(name="agent", mcp_manager=manager, **selection)
    return lambda: agent.get_mcp_tools(RunContextWrapper(None))


async def openai_agents_own(argv: list[str], stack: AsyncExitStack) -> Step:
    from agents import Agent, RunContextWrapper
    from agents.mcp import MCPServerStdio

    server = MCPServerStdio({"command": argv[0], "args": argv[1:]}, cache_tools_list=True)
    agent = Agent(name="agent", mcp_servers=[await stack.enter_async_context(server)])
    return lambda: agent.get_mcp_tools(RunContextWrapper(None))


def _declared(toolset: Any) -> Step:
    async def step() -> Any:
        return [tool._get_declaration() for tool in await toolset.get_tools_with_prefix()]

    return step


def google_adk(manager: Any, **selection: Any) -> Step:
    from gaia.adapters.google_adk import MCPManagerToolset

    return _declared(MCPManagerToolset(manager, **selection))


async def google_adk_own(argv: list[str], stack: AsyncExitStack) -> Step:
    from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
    from mcp import StdioServerParameters

    parameters = StdioConnectionParams(server_params=StdioServerParameters(command=argv[0], args=argv[1:]))
    toolset = McpToolset(connection_params=parameters)
    stack.push_async_callback(toolset.close)
    return _declared(toolset)


def strands(manager: Any, **selection: Any) -> Step:
    from strands import Agent

    from gaia.adapters.strands import MCPManagerPlugin

    plugin = MCPManagerPlugin(manager, **selection)
    agent = Agent(plugins=[plugin])

    async def step() -> Any:
        plugin._update(agent)
        return {name: tool.tool_spec for name, tool in agent.tool_registry.registry.items()}

    return step


async def strands_own(argv: list[str], stack: AsyncExitStack) -> Step:
    from mcp import StdioServerParameters, stdio_client
    from strands.tools.mcp import MCPClient

    command = StdioServerParameters(command=argv[0], args=argv[1:], env={"PYTHONPATH": os.environ["PYTHONPATH"]})
    client = stack.enter_context(MCPClient(lambda: stdio_client(command)))

    async def step() -> Any:
        return client.list_tools_sync()

    return step


def llama_index(manager: Any, **selection: Any) -> Step:
    from gaia.adapters.llama_index import MCPToolRetriever

    retriever = MCPToolRetriever(manager, **selection)
    return lambda: retriever.aretrieve("go on")


async def llama_index_own(argv: list[str], stack: AsyncExitStack) -> Step:
    from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

    return McpToolSpec(BasicMCPClient(argv[0], args=argv[1:])).to_tool_list_async


def _refreshed(framework: str, tools: Any, manager: Any, selection: dict[str, Any]) -> Step:
    refresh = importlib.import_module(f"gaia.adapters.{framework}").refresh

    async def step() -> Any:
        refresh(tools, manager, **selection)
        return tools

    return step


def crewai(manager: Any, **selection: Any) -> Step:
    return _refreshed("crewai", [], manager, selection)


def smolagents(manager: Any, **selection: Any) -> Step:
    return _refreshed("smolagents", {}, manager, selection)


def openai(manager: Any, **selection: Any) -> Step:
    from gaia.adapters.openai import openai_tools

    async def step() -> Any:
        return openai_tools(manager, **selection)

    return step


def anthropic(manager: Any, **selection: Any) -> Step:
    from gaia.adapters.anthropic import anthropic_tools

    async def step() -> Any:
        return anthropic_tools(manager, **selection)

    return step


FRAMEWORKS = {
    "langchain": "langchain",
    "pydantic_ai": "pydantic_ai",
    "openai_agents": "agents",
    "google_adk": "google.adk",
    "strands": "strands",
    "llama_index": "llama_index.core",
    "crewai": "crewai",
    "smolagents": "smolagents",
    "openai": "json",
    "anthropic": "json",
}
"""The functions above, and the module that each needs."""


def names_of(definitions: Any) -> list[str]:
    """The names of what a step has listed."""
    return [_name(one) for one in (definitions.values() if isinstance(definitions, dict) else definitions)]


def _name(definition: Any) -> str:
    if isinstance(definition, dict):
        name: str = definition.get("function", definition)["name"]
        return name
    for inner in ("tool_def", "metadata"):
        if hasattr(getattr(definition, inner, None), "name"):
            definition = getattr(definition, inner)
    named: str = definition.name
    return named
