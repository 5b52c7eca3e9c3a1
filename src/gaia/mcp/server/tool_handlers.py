"""``tools/list`` and ``tools/call``."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from gaia.agents.base.mcp_context import MCPCapabilityMissing, MCPRequestCancelled
from gaia.log import get_logger
from gaia.mcp.json_schema import SchemaUnusable, problems_by_own_schema
from gaia.mcp.server.calls import Calls
from gaia.mcp.server.failures import log_failure
from gaia.mcp.server.offering import Offering
from gaia.mcp.server.results import error_result, tool_result

__all__ = ["Tools"]

logger = get_logger(__name__)


class Tools:
    """The handlers for an agent's tools."""

    def __init__(self, offering: Offering, calls: Calls) -> None:
        self._offering = offering
        self._calls = calls

    async def list_all(
        self, _ctx: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = await self._calls.plain(self.definitions)
        return types.ListToolsResult(tools=tools)

    async def call(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        result: types.CallToolResult | types.InputRequiredResult = await self._calls.interactive(
            ctx, params, lambda: self._execute(params.name, params.arguments or {})
        )
        return result

    def definitions(self) -> list[types.Tool]:
        """What the agent defines, in its order. A definition that is wrong is left out: the others still work."""
        tools: dict[str, types.Tool] = {}
        for definition in self._offering.get_mcp_tool_definitions():
            try:
                # An object, even if the agent says only {}: the protocol wants the word.
                input_schema = {"type": "object", **(definition.get("inputSchema") or {})}
                tool = types.Tool.model_validate({**definition, "inputSchema": input_schema}, by_name=False)
                problems_by_own_schema(input_schema, {})
            except (ValidationError, SchemaUnusable) as error:
                logger.error("tool_definition_invalid", tool=definition.get("name"), error=str(error))
                continue
            if tools.setdefault(tool.name, tool) is not tool:
                logger.error("tool_defined_twice", tool=tool.name)
        return list(tools.values())

    def _execute(self, name: str, arguments: dict[str, Any]) -> Any:
        """One call, on a worker thread: a result for the client, or ``input_required`` as the agent wrote it."""
        definition = self._definition(name)
        if definition is None:
            raise _unknown(name)
        try:
            wrong = problems_by_own_schema({"type": "object", **(definition.get("inputSchema") or {})}, arguments)
            if wrong:
                # For the model to read and do better; the protocol has it so since 2025-11-25.
                return error_result(f"Invalid arguments for tool {name}: {'; '.join(wrong)}")
            value: Any = self._offering.execute_mcp_tool(name, arguments)
            if isinstance(value, dict) and value.get("resultType") == "input_required":
                return value
            result = tool_result(value)
            return self._checked(name, definition, result)
        except (MCPError, MCPCapabilityMissing):
            raise
        except MCPRequestCancelled:
            return error_result("The call was cancelled")
        except Exception as error:  # noqa: BLE001 - a tool is anybody's code
            return _failure(name, error)

    def _definition(self, name: str) -> dict[str, Any] | None:
        # The first of a name counts, as in the list.
        return next((one for one in self._offering.get_mcp_tool_definitions() if one.get("name") == name), None)

    def _checked(self, name: str, definition: dict[str, Any], result: types.CallToolResult) -> types.CallToolResult:
        """A tool that promises a form of its result and breaks the promise has failed."""
        promised = definition.get("outputSchema")
        if not promised or result.is_error:
            return result
        wrong = problems_by_own_schema(promised, result.structured_content)
        if wrong:
            logger.error("tool_result_invalid", tool=name, problems=wrong)
            return error_result(f"Tool {name} returned a result that does not fit its output schema")
        return result


def _failure(name: str, error: Exception) -> types.CallToolResult:
    if isinstance(error, ValueError) and "unknown tool" in str(error).lower():
        # Listed, and then not known to `execute_mcp_tool`.
        raise _unknown(name) from None
    log_failure(logger, "tool_failed", error, tool=name)
    if type(error) is ValueError:
        # The way that MCPAgent gives its authors to say what is wrong. Its subclasses come from libraries, and their
        # messages are not meant for clients.
        return error_result(f"Tool {name} failed: {error}")
    return error_result(f"Tool {name} failed")


def _unknown(name: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"Unknown tool: {name}")
