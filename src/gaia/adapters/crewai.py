"""The tools of MCP servers for CrewAI: `crewai_tools`, and `refresh` for an agent whose tools change."""

from __future__ import annotations

from typing import Any

from gaia.adapters.arguments import accepts_null, arguments_model, inlined_schema, without_nulls
from gaia.adapters.calls import Manager, call_tool_async, synchronous
from gaia.adapters.results import description_for_model, name_for_model, text_for_model
from gaia.mcp import MCPClientManager, MCPTool, ToolResult

try:
    from crewai.tools import BaseTool
    from crewai.tools.tool_failure import ToolFailure, ToolFailureReason
    from crewai.utilities.string_utils import sanitize_tool_name
except ImportError as error:
    raise ImportError("gaia.adapters.crewai needs CrewAI: pip install crewai, 1.15.30 or newer") from error


def crewai_tools(manager: Manager) -> list[BaseTool]:
    """The tools that `manager` offers at this moment, for the ``tools`` of an agent or a task; thread-safe.

    They have the names that `manager.list_tools` gives them, which CrewAI shows to models in lower case, can be called
    synchronously and from any event loop, and go on to work when their server has been restarted. Of tools that CrewAI
    would show by one name, the later ones get a number, such as ``_2``: it would call the first one for all of them.
    """
    offered = [(name_for_model(tool), tool) for tool in synchronous(manager).list_tools()]
    listed = {sanitize_tool_name(name) for name, _ in offered}
    tools: dict[str, BaseTool] = {}
    for plain, tool in offered:
        name, number = plain, 1
        while (shown := sanitize_tool_name(name)) in tools or (name != plain and shown in listed):
            number += 1
            name = f"{plain}_{number}"
        tools[shown] = MCPServerTool(synchronous(manager), tool, name)
    return list(tools.values())


def refresh(tools: list[BaseTool], manager: Manager) -> None:
    """Put the tools that `manager` offers now into an agent's or a task's ``tools``, in which those of others stay.

    It counts from the next task on. It is for the thread that uses the agent.
    """
    others = [tool for tool in tools if not (isinstance(tool, MCPServerTool) and tool.is_of(manager))]
    tools[:] = others + crewai_tools(manager)


def never_cached(_arguments: Any = None, _result: Any = None) -> bool:
    """For ``cache_function``: by default CrewAI answers an equal call with the result of the earlier one."""
    return False


class MCPServerTool(BaseTool):
    """One tool. Its result is a text; what goes wrong is a ``ToolFailure``, which CrewAI records.

    It raises no exceptions, because CrewAI calls a tool that does again, up to five times.
    """

    _manager: MCPClientManager
    _tool: MCPTool
    _schema: dict[str, Any]

    def __init__(self, manager: MCPClientManager, tool: MCPTool, name: str) -> None:
        schema = inlined_schema(tool)
        properties = {
            # CrewAI makes all arguments required. One that may be left out is then one that may be null.
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
        """Whether this tool is one of `manager`'s."""
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
