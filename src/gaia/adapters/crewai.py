"""The tools of MCP servers for CrewAI: `crewai_tools`, and `refresh` for an agent whose tools change."""

from __future__ import annotations

from typing import Any, Unpack

from gaia.adapters.arguments import accepts_null, arguments_model, inlined_schema, without_nulls
from gaia.adapters.results import description_for_model, name_for_model, text_for_model
from gaia.adapters.selection import Manager, SelectionKeywords, ToolSelection, once_per_tool
from gaia.mcp import MCPTool, ToolResult

try:
    from crewai.tools import BaseTool
    from crewai.tools.tool_failure import ToolFailure, ToolFailureReason
    from crewai.utilities.string_utils import sanitize_tool_name
except ImportError as error:
    raise ImportError("gaia.adapters.crewai needs CrewAI: pip install crewai, 1.15.30 or newer") from error


def crewai_tools(manager: Manager, **selection: Unpack[SelectionKeywords]) -> list[BaseTool]:
    """The present tools of `manager`, for the ``tools`` of an agent or a task; thread-safe.

    `selection` says which tools; see `ToolSelection`. CrewAI shows their names to models in lower case. If several
    tools would have the same name then, the later tools get a number, such as ``_2``, because CrewAI would call the
    first tool for all of them.
    """
    return [*ToolSelection.of(manager, **selection).cached(_tools)]


def refresh(tools: list[BaseTool], manager: Manager, /, **selection: Unpack[SelectionKeywords]) -> None:
    """Replace the tools of `manager` in an agent's or a task's ``tools`` with its present ones; other tools stay.

    Give the same `selection` as to `crewai_tools`. The change takes effect with the next task. Call it from the thread
    that uses the agent.
    """
    wanted = ToolSelection.of(manager, **selection)
    others = []
    for tool in tools:
        known = tool.selection if isinstance(tool, MCPServerTool) else None
        if known is None or known.manager is not wanted.manager:
            others.append(tool)
        elif known is not wanted and known.is_as(wanted):
            # This selection has made its tools already.
            wanted = known
    tools[:] = [*others, *crewai_tools(wanted)]


def _tools(selection: ToolSelection, offered: list[MCPTool]) -> list[BaseTool]:
    plain_names = {sanitize_tool_name(name_for_model(tool)) for tool in offered}
    tools: dict[str, BaseTool] = {}
    for tool in offered:
        name, number = (plain := name_for_model(tool)), 1
        while (shown := sanitize_tool_name(name)) in tools or (name != plain and shown in plain_names):
            number += 1
            name = f"{plain}_{number}"
        tools[shown] = MCPServerTool(selection, tool, name)
    return list(tools.values())


def never_cached(_arguments: Any = None, _result: Any = None) -> bool:
    """A ``cache_function``. By default, CrewAI answers an equal call with the earlier result."""
    return False


class MCPServerTool(BaseTool):
    """A tool of a server. Its result is a text; a failure is a ``ToolFailure``, which CrewAI records.

    It raises no exceptions, because CrewAI repeats a call that raises up to five times.
    """

    _selection: ToolSelection
    _tool: MCPTool
    _schema: dict[str, Any]

    def __init__(self, selection: ToolSelection, tool: MCPTool, name: str) -> None:
        schema, model = _arguments(tool)
        super().__init__(
            name=name, description=description_for_model(tool), args_schema=model, cache_function=never_cached
        )
        self._selection, self._tool, self._schema = selection, tool, schema

    @property
    def selection(self) -> ToolSelection:
        return self._selection

    def _run(self, /, **arguments: Any) -> Any:
        arguments = without_nulls(self._schema, arguments)
        return self._output(self._selection.call(name_for_model(self._tool), arguments))

    async def _arun(self, /, **arguments: Any) -> Any:
        arguments = without_nulls(self._schema, arguments)
        return self._output(await self._selection.call_async(name_for_model(self._tool), arguments))

    def _output(self, result: ToolResult) -> Any:
        text = text_for_model(result, safe_to_repeat=self._tool.safe_to_repeat)
        if not result.is_error:
            return text
        failure = {name: result[name] for name in ("error_type", "delivery") if name in result}
        return ToolFailure(message=text, reason=ToolFailureReason.MCP_ERROR, details=failure)


@once_per_tool
def _arguments(tool: MCPTool) -> tuple[dict[str, Any], Any]:
    """The schema of the arguments, and the model that CrewAI shows."""
    schema = inlined_schema(tool)
    properties = {
        # CrewAI makes all arguments required, so an optional argument must accept null.
        name: value if name in schema["required"] or accepts_null(value) else {"anyOf": [value, {"type": "null"}]}
        for name, value in schema["properties"].items()
    }
    return schema, arguments_model(schema | {"properties": properties})
