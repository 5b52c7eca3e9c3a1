"""The tools of MCP servers for LangChain and LangGraph."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, TypeAlias

from gaia.adapters.arguments import inlined_schema
from gaia.adapters.calls import Manager, call_tool_async, listed, synchronous
from gaia.adapters.calls_in_doubt import CallsInDoubt
from gaia.adapters.results import description_for_model, name_for_model, parts_for_model, text_for_model
from gaia.mcp import MCPClientManager, MCPTool, ToolResult

try:
    from langchain_core.runnables.config import ensure_config
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
    from pydantic import Field, SkipValidation
except ImportError as error:
    raise ImportError("gaia.adapters.langchain needs LangChain: pip install langchain") from error

_IDENTITY = "mcp_tool_call_id"

_Request: TypeAlias = tuple[object, ...]

_in_doubt: CallsInDoubt[_Request] = CallsInDoubt()
"""Shared by all tools, because an agent that continues from a checkpoint may have new tool objects."""


def langchain_tools(manager: Manager) -> list[StructuredTool]:
    """The present tools of `manager`, for ``create_agent``, ``ToolNode`` and ``bind_tools``.

    The tools can be called synchronously and asynchronously. To follow changes, call this again, or see
    `gaia.adapters.langchain_agents`.
    """
    return [
        MCPStructuredTool(
            name=name_for_model(tool),
            description=description_for_model(tool),
            # A dangling reference would make LangChain raise an exception for all tools of the model.
            args_schema=inlined_schema(tool),
            response_format="content_and_artifact",
            # An exception would end the run, or let a middleware repeat the call.
            handle_tool_error=True,
            metadata={"mcp_server": tool.server, **tool.annotations},
            manager=synchronous(manager),
            tool=tool,
        )
        for tool in listed(manager)
    ]


class MCPStructuredTool(StructuredTool):
    """A tool of a server.

    The ``ToolMessage`` of a call has texts and images as ``content``, and the whole `ToolResult` (as a dict) as
    ``artifact``. A failure is a message with ``status="error"``, never an exception.

    LangGraph runs a task again when it continues from a checkpoint, or by a ``RetryPolicy``. If the outcome of a call
    is unknown, the same task does not repeat it, unless the tool is marked as safe to repeat.
    """

    manager: SkipValidation[MCPClientManager] = Field(exclude=True, repr=False)
    tool: SkipValidation[MCPTool] = Field(exclude=True, repr=False)

    # These methods take no other parameters, because LangChain would pass them its own `config` and `run_manager`.
    def _run(self, /, **arguments: Any) -> Any:
        request, repeats = self._request(arguments)
        call = functools.partial(self.manager.call_tool, self.name, arguments)
        return self._output(_in_doubt.make_sync(self.tool, request, repeats, call))

    def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - as LangChain has it
        return super().invoke(input, _with_identity(config, input), **options)

    async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - as LangChain has it
        # StructuredTool's own method runs a tool without `coroutine` in a thread, where a call cannot be cancelled.
        return await BaseTool.ainvoke(self, input, _with_identity(config, input), **options)

    async def _arun(self, /, **arguments: Any) -> Any:
        request, repeats = self._request(arguments)
        call = functools.partial(call_tool_async, self.manager, self.name, arguments)
        return self._output(await _in_doubt.make(self.tool, request, repeats, call))

    def _request(self, arguments: dict[str, Any]) -> tuple[_Request, Callable[[_Request], bool]]:
        """The identity of a request, and whether it repeats an earlier one because LangGraph runs its task again."""
        metadata = ensure_config()["metadata"]
        task = metadata.get("langgraph_checkpoint_ns")
        request = task, metadata.get(_IDENTITY), self.name, json.dumps(arguments, sort_keys=True, default=str)
        # Without LangGraph there is no task.
        return request, lambda earlier: task is not None and earlier == request

    def _output(self, result: ToolResult) -> tuple[str | list[dict[str, Any]], dict[str, Any]]:
        if result.is_error:
            raise ToolException(text_for_model(result, safe_to_repeat=self.tool.safe_to_repeat))
        blocks = parts_for_model(
            result,
            lambda text: {"type": "text", "text": text},
            lambda data, mime: {"type": "image", "base64": data, "mime_type": mime},
        )
        is_text = all(block["type"] == "text" for block in blocks)
        return text_for_model(result) if is_text else blocks, dict(result)


def _with_identity(config: Any, call: Any) -> Any:
    """`config` with the id of the call, which LangChain does not pass to `_run` and `_arun`."""
    config = ensure_config(config)
    identity = call.get("id") if isinstance(call, dict) and call.get("type") == "tool_call" else None
    return {**config, "metadata": {**config["metadata"], _IDENTITY: identity}}
