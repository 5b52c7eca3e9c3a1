"""The tools of MCP servers for Google's Agent Development Kit (ADK): `MCPManagerToolset`."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any, TypeAlias

from gaia.adapters.calls import Manager, call_tool_async, listed
from gaia.adapters.calls_in_doubt import CallsInDoubt
from gaia.adapters.results import content_for_model, description_for_model, input_schema, name_for_model, text_for_model
from gaia.mcp import MCPTool, ToolResult

try:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset, ToolPredicate
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types
except ImportError as error:
    raise ImportError("gaia.adapters.google_adk needs google-adk: pip install google-adk") from error

_Request: TypeAlias = tuple[tuple[str, str, str], str | None, str, int]
"""(Run, tool and arguments); id of the call; path of the node; number of the attempt."""


class MCPManagerToolset(BaseToolset):
    """The tools of `manager`, listed again at each step of a run. Never starts or stops servers, not even in `close`.

    ADK repeats a call when it resumes a run that was interrupted in the call, or retries the node of a workflow. A tool
    that is not marked as safe to repeat is not called again: the answer tells that the first call's outcome is unknown.
    """

    def __init__(self, manager: Manager, *, tool_filter: ToolPredicate | list[str] | None = None) -> None:
        """`tool_filter` is ADK's own filter: this toolset shows only the tools that it selects by name."""
        super().__init__(tool_filter=tool_filter)
        self._manager = manager
        # Otherwise ADK would use the tools of the first step for the whole run.
        self._use_invocation_cache = False
        self._in_doubt: CallsInDoubt[_Request] = CallsInDoubt()

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The present tools of the manager."""
        tools = [MCPManagerTool(tool, self._manager, self._in_doubt) for tool in listed(self._manager)]
        return [tool for tool in tools if self._is_tool_selected(tool, readonly_context)]


class MCPManagerTool(BaseTool):
    """A tool of a server.

    It returns ``{"result": text or structured content}``, with pictures as parts under ``"images"``.

    A failure is ``{"error": text}`` and never an exception, after which ADK would repeat the call.
    """

    def __init__(self, tool: MCPTool, manager: Manager, in_doubt: CallsInDoubt[_Request]) -> None:
        super().__init__(
            name=name_for_model(tool),
            description=description_for_model(tool),
            custom_metadata={"mcp_server": tool.server, "annotations": tool.annotations},
        )
        self.tool, self._manager, self._in_doubt = tool, manager, in_doubt

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=input_schema(self.tool)
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        """Call the tool, for ADK. Cancelling the task cancels the call."""
        # `self.name` may have a prefix of ADK.
        name = name_for_model(self.tool)
        made = (tool_context.invocation_id, name, json.dumps(args, sort_keys=True, default=str))
        identity, step, attempt = tool_context.function_call_id, tool_context.node_path, tool_context.attempt_count

        def repeats(earlier: _Request) -> bool:
            # A resumed run repeats the call with its id. Each attempt of a node makes it with a new id.
            is_retried = earlier[2] == step and earlier[3] < attempt
            return earlier[0] == made and (earlier[1] == identity or is_retried)

        call = functools.partial(call_tool_async, self._manager, name, args)
        return self._response(await self._in_doubt.make(self.tool, (made, identity, step, attempt), repeats, call))

    def _response(self, result: ToolResult) -> dict[str, Any]:
        if result.is_error:
            return {"error": text_for_model(result, safe_to_repeat=self.tool.safe_to_repeat)}
        shown = content_for_model(result)
        response: dict[str, Any] = {"result": "\n".join(part["text"] for part in shown if part["type"] == "text")}
        if result.structured is not None:
            # Most servers also send it as text, for older clients.
            response["result" if _parsed(response["result"]) == result.structured else "structured"] = result.structured
        if images := [part for part in shown if part["type"] == "image"]:
            # ADK moves parts of a response to the place where models expect pictures.
            response["images"] = [
                types.Part.from_bytes(data=base64.b64decode(part["data"]), mime_type=part["mimeType"])
                for part in images
            ]
        return response


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
