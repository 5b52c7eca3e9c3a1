"""The tools of MCP servers for Google's Agent Development Kit (ADK): `MCPManagerToolset`."""

from __future__ import annotations

import base64
import functools
import json
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from gaia.adapters.calls_in_doubt import CallsInDoubt
from gaia.adapters.results import description_for_model, input_schema, name_for_model, parts_for_model, text_for_model
from gaia.adapters.selection import Manager, SelectionKeywords, ToolSelection, once_per_tool
from gaia.mcp import MCPTool, ToolResult

try:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset, ToolPredicate
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types
except ImportError as error:
    raise ImportError("gaia.adapters.google_adk needs google-adk: pip install google-adk") from error

if TYPE_CHECKING:
    from google.adk.models import LlmRequest

_Request: TypeAlias = tuple[tuple[str, str, str], str | None, str, int]
"""(Run, tool and arguments); id of the call; path of the node; number of the attempt."""


class MCPManagerToolset(BaseToolset):
    """The tools of `manager`, listed again at each step of a run. Never starts or stops servers, not even in `close`.

    ADK repeats a call when it resumes a run that was interrupted in the call, or retries the node of a workflow. A tool
    that is not marked as safe to repeat is not called again: the answer tells that the first call's outcome is unknown.
    """

    def __init__(
        self,
        manager: Manager,
        *,
        tool_filter: ToolPredicate | list[str] | None = None,
        instructions: bool = False,
        **selection: Unpack[SelectionKeywords],
    ) -> None:
        """`selection` says which tools; see `ToolSelection`. A call that needs approval asks for ADK's confirmation.

        `tool_filter` is ADK's own filter: of the selected tools, this toolset shows only those that it names. With
        `instructions`, those of the servers are added to the agent's. A model obeys them, so trust these servers.
        """
        super().__init__(tool_filter=tool_filter)
        self._selection = ToolSelection.of(manager, **selection).apart()
        self._instructions = instructions
        # Otherwise ADK would use the tools of the first step for the whole run.
        self._use_invocation_cache = False
        self._in_doubt: CallsInDoubt[_Request] = CallsInDoubt()

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The present tools of the manager."""
        tools = self._selection.each(MCPManagerTool, self._in_doubt)
        return [tool for tool in tools if self._is_tool_selected(tool, readonly_context)]

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:  # noqa: ARG002 - ADK's signature
        """Add the instructions of the servers, for ADK."""
        if self._instructions and (text := self._selection.instructions()):
            llm_request.append_instructions([text])


class MCPManagerTool(BaseTool):
    """A tool of a server.

    It returns ``{"result": text or structured content}``, with pictures, PDF documents and recordings as parts under
    ``"images"`` and ``"files"``.

    A failure is ``{"error": text}`` and never an exception, after which ADK would repeat the call.
    """

    def __init__(self, selection: ToolSelection, tool: MCPTool, in_doubt: CallsInDoubt[_Request]) -> None:
        super().__init__(
            name=name_for_model(tool),
            description=description_for_model(tool),
            custom_metadata={"mcp_server": tool.server, "annotations": tool.annotations},
        )
        self.tool, self._selection, self._in_doubt = tool, selection, in_doubt

    def _get_declaration(self) -> types.FunctionDeclaration:
        # ADK may change the name.
        return _declaration(self.tool).model_copy()

    async def check_require_confirmation(self, args: dict[str, Any], tool_context: ToolContext) -> bool:  # noqa: ARG002 - ADK's signature
        """Whether ADK asks a person about the call."""
        return self._selection.asks(name_for_model(self.tool), args)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        """Call the tool, for ADK. Cancelling the task cancels the call."""
        # `self.name` may have a prefix of ADK.
        name = name_for_model(self.tool)
        approved = False
        if self._selection.asks(name, args):
            if tool_context.tool_confirmation is None:
                tool_context.request_confirmation(hint=f"May the agent call {name}?")
                tool_context.actions.skip_summarization = True
                return {"error": "This call needs a person's approval, which was asked for."}
            approved = tool_context.tool_confirmation.confirmed
        made = (tool_context.invocation_id, name, json.dumps(args, sort_keys=True, default=str))
        identity, step, attempt = tool_context.function_call_id, tool_context.node_path, tool_context.attempt_count

        def repeats(earlier: _Request) -> bool:
            # A resumed run repeats the call with its id. Each attempt of a node makes it with a new id.
            is_retried = earlier[2] == step and earlier[3] < attempt
            return earlier[0] == made and (earlier[1] == identity or is_retried)

        call = functools.partial(self._selection.call_async, name, args, approved=approved)
        return self._response(await self._in_doubt.make(self.tool, (made, identity, step, attempt), repeats, call))

    def _response(self, result: ToolResult) -> dict[str, Any]:
        if result.is_error:
            return {"error": text_for_model(result, safe_to_repeat=self.tool.safe_to_repeat)}
        # ADK moves parts of a response to the place where models expect pictures.
        parts: list[Any] = parts_for_model(result, str, _part, lambda data, _: _part(data, "application/pdf"), _part)
        response: dict[str, Any] = {"result": "\n".join(part for part in parts if isinstance(part, str))}
        if result.structured is not None:
            # Most servers also send it as text, for older clients.
            response["result" if _parsed(response["result"]) == result.structured else "structured"] = result.structured
        for part in parts:
            if not isinstance(part, str):
                kind = "images" if part.inline_data.mime_type.startswith("image/") else "files"
                response.setdefault(kind, []).append(part)
        return response


@once_per_tool
def _declaration(tool: MCPTool) -> types.FunctionDeclaration:
    return types.FunctionDeclaration(
        name=name_for_model(tool), description=description_for_model(tool), parameters_json_schema=input_schema(tool)
    )


def _part(data: str, mime_type: str) -> types.Part:
    return types.Part.from_bytes(data=base64.b64decode(data), mime_type=mime_type)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
