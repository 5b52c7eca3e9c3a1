"""The tools of MCP servers for CrewAI: `crewai_tools`, and `refresh` for an agent whose tools change."""

from __future__ import annotations

from typing import Any

from gaia.adapters.arguments import accepts_null, arguments_model, inlined_schema, without_nulls
from gaia.adapters.calls import Manager, call_tool_async, listed, synchronous
from gaia.adapters.results import description_for_model, name_for_model, text_for_model
from gaia.mcp import MCPClientManager, MCPTool, ToolResult

try:
    from crewai.tools import BaseTool
    from crewai.tools.tool_failure import ToolFailure, ToolFailureReason
    from crewai.utilities.string_utils import sanitize_tool_name
except ImportError as error:
    raise ImportError("gaia.adapters.crewai needs CrewAI: pip install crewai, 1.15.30 or newer") from error


def crewai_tools(manager: Manager) -> list[BaseTool]:
    """The present tools of `manager`, for the ``tools`` of an agent or a task; thread-safe.

    CrewAI shows their names to models in lower case. If several tools would have the same name then, the later tools
    get a number, such as ``_2``, because CrewAI would call the first tool for all of them.
    """
    offered = [(name_for_model(tool), tool) for tool in listed(manager)]
    plain_names = {sanitize_tool_name(name) for name, _ in offered}
    tools: dict[str, BaseTool] = {}
    for plain, tool in offered:
        name, number = plain, 1
        while (shown := sanitize_tool_name(name)) in tools or (name != plain and shown in plain_names):
            number += 1
            name = f"{plain}_{number}"
        tools[shown] = MCPServerTool(synchronous(manager), tool, name)
    return list(tools.values())


def refresh(tools: list[BaseTool], manager: Manager) -> None:
    """Replace the tools of `manager` in an agent's or a task's ``tools`` with its present ones; other tools stay.

    The change takes effect with the next task. Call it from the thread that uses the agent.
    """
    others = [tool for tool in tools if not (isinstance(tool, MCPServerTool) and tool.is_of(manager))]
    tools[:] = others + crewai_tools(manager)


def never_cached(_arguments: Any = None, _result: Any = None) -> bool:
    """A ``cache_function``. By default, CrewAI answers an equal call with the earlier result."""
    return False


class MCPServerTool(BaseTool):
    """A tool of a server. Its result is a text; a failure is a ``ToolFailure``, which CrewAI records.

    It raises no exceptions, because CrewAI repeats a call that raises up to five times.
    """

    _manager: MCPClientManager
    _tool: MCPTool
    _schema: dict[str, Any]

    def __init__(self, manager: MCPClientManager, tool: MCPTool, name: str) -> None:
        schema = inlined_schema(tool)
        properties = {
            # CrewAI makes all arguments required, so an optional argument must accept null.
            name: value if name in schema["required"] or accepts_null(value) else {"anyOf": [value, {"type": "null"}]}
            for name, value in schema["properties"].items()
        }
        super().__init__(
            name=name,
            description=description_for_model(tool),
            args_schema=arguments_model(schema | {"properties": properties}),
            cache_function=never_cached,
        )
        self._manager, self._tool, self._schema = manager, tool, schema

    def is_of(self, manager: Manager) -> bool:
        return self._manager is synchronous(manager)

    def _run(self, /, **arguments: Any) -> Any:
        arguments = without_nulls(self._schema, arguments)
        return self._output(self._manager.call_tool(name_for_model(self._tool), arguments))

    async def _arun(self, /, **arguments: Any) -> Any:
        arguments = without_nulls(self._schema, arguments)
        return self._output(await call_tool_async(self._manager, name_for_model(self._tool), arguments))

    def _output(self, result: ToolResult) -> Any:
        text = text_for_model(result, safe_to_repeat=self._tool.safe_to_repeat)
        if not result.is_error:
            return text
        failure = {name: result[name] for name in ("error_type", "delivery") if name in result}
        return ToolFailure(message=text, reason=ToolFailureReason.MCP_ERROR, details=failure)
