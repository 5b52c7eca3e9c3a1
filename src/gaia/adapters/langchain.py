"""The tools of MCP servers for LangChain and LangGraph."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, TypeAlias, Unpack

from gaia.adapters.arguments import inlined_schema
from gaia.adapters.calls_in_doubt import CallsInDoubt
from gaia.adapters.results import description_for_model, name_for_model, parts_for_model, text_for_model
from gaia.adapters.selection import Manager, SelectionKeywords, ToolSelection, once_per_tool
from gaia.mcp import MCPTool, ToolResult

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables.config import ensure_config
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
    from pydantic import Field, SkipValidation
except ImportError as error:
    raise ImportError("gaia.adapters.langchain needs LangChain: pip install langchain") from error

_IDENTITY = "mcp_tool_call_id"

_Request: TypeAlias = tuple[object, ...]

_in_doubt: CallsInDoubt[_Request] = CallsInDoubt()
"""Shared by all tools, because an agent that continues from a checkpoint may have new tool objects."""


def langchain_tools(manager: Manager, **selection: Unpack[SelectionKeywords]) -> list[StructuredTool]:
    """The present tools of `manager`, for ``create_agent``, ``ToolNode`` and ``bind_tools``.

    `selection` says which tools; see `ToolSelection`. The tools can be called synchronously and asynchronously. To
    follow changes, call this again, with a `ToolSelection` that lasts, or see `gaia.adapters.langchain_agents`.
    """
    return ToolSelection.of(manager, **selection).each(_tool)


class MCPStructuredTool(StructuredTool):
    """A tool of a server.

    The ``ToolMessage`` of a call has texts, images and files as ``content``, and the whole `ToolResult` (as a dict) as
    ``artifact``. A failure is a message with ``status="error"``, never an exception. Progress is written to LangGraph's
    stream ``custom``.

    A call that needs approval interrupts the graph. LangGraph runs a task again then, and when it continues from a
    checkpoint, or by a ``RetryPolicy``. If the outcome of a call is unknown, the same task does not repeat it, unless
    the tool is marked as safe to repeat.
    """

    selection: SkipValidation[ToolSelection] = Field(exclude=True, repr=False)
    tool: SkipValidation[MCPTool] = Field(exclude=True, repr=False)

    # These methods take no other parameters, because LangChain would pass them its own `config` and `run_manager`.
    def _run(self, /, **arguments: Any) -> Any:
        request, repeats, options = self._request(arguments)
        call = functools.partial(self.selection.call, self.name, arguments, **options)
        return self._output(_in_doubt.make_sync(self.tool, request, repeats, call), request[1])

    def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - as LangChain has it
        return super().invoke(input, _with_identity(config, input), **options)

    async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - as LangChain has it
        # StructuredTool's own method runs a tool without `coroutine` in a thread, where a call cannot be cancelled.
        return await BaseTool.ainvoke(self, input, _with_identity(config, input), **options)

    async def _arun(self, /, **arguments: Any) -> Any:
        request, repeats, options = self._request(arguments)
        call = functools.partial(self.selection.call_async, self.name, arguments, **options)
        return self._output(await _in_doubt.make(self.tool, request, repeats, call), request[1])

    def _request(self, arguments: dict[str, Any]) -> tuple[_Request, Callable[[_Request], bool], dict[str, Any]]:
        """The identity of a request, whether it repeats an earlier one that LangGraph runs again, and its options."""
        config = ensure_config()
        task, identity = (config["metadata"].get(name) for name in ("langgraph_checkpoint_ns", _IDENTITY))
        request = task, identity, self.name, json.dumps(arguments, sort_keys=True, default=str)
        options: dict[str, Any] = {"report": None if task is None else _stream_writer(self.name, identity)}
        if task is not None and self.selection.asks(self.name, arguments):
            options["approved"] = _is_approved(config, self.name, arguments, identity)
        # Without LangGraph there is no task.
        return request, lambda earlier: task is not None and earlier == request, options

    def _output(self, result: ToolResult, identity: Any) -> tuple[Any, dict[str, Any]]:
        if result.is_error:
            text = text_for_model(result, safe_to_repeat=self.tool.safe_to_repeat)
            if identity is None:
                # Called without a model: LangChain makes a text of it.
                raise ToolException(text)
            message = ToolMessage(text, artifact=dict(result), tool_call_id=identity, name=self.name, status="error")
            return message, dict(result)
        blocks = parts_for_model(
            result,
            lambda text: {"type": "text", "text": text},
            lambda data, mime: {"type": "image", "base64": data, "mime_type": mime},
            # LangChain shows other files of a tool as JSON.
            lambda data, _: {"type": "file", "base64": data, "mime_type": "application/pdf"},
        )
        is_text = all(block["type"] == "text" for block in blocks)
        return text_for_model(result) if is_text else blocks, dict(result)


def _tool(selection: ToolSelection, tool: MCPTool) -> StructuredTool:
    return MCPStructuredTool(
        name=name_for_model(tool),
        description=description_for_model(tool),
        # A dangling reference would make LangChain raise an exception for all tools of the model.
        args_schema=_schema(tool),
        response_format="content_and_artifact",
        # An exception would end the run, or let a middleware repeat the call.
        handle_tool_error=True,
        metadata={"mcp_server": tool.server, **tool.annotations},
        selection=selection,
        tool=tool,
    )


_schema = once_per_tool(inlined_schema)


def _with_identity(config: Any, call: Any) -> Any:
    """`config` with the id of the call, which LangChain does not pass to `_run` and `_arun`."""
    config = ensure_config(config)
    identity = call.get("id") if isinstance(call, dict) and call.get("type") == "tool_call" else None
    return {**config, "metadata": {**config["metadata"], _IDENTITY: identity}}


def _stream_writer(name: str, identity: Any) -> Callable[[float, float | None, str | None], None]:
    from langgraph.config import get_stream_writer

    write = get_stream_writer()

    def report(progress: float, total: float | None, message: str | None) -> None:
        told = {"progress": progress, "total": total, "message": message}
        write({"type": "mcp_progress", "tool": name, "tool_call_id": identity, **told})

    return report


def _is_approved(config: Any, name: str, arguments: dict[str, Any], identity: Any) -> bool:
    """Interrupt the graph with a question in the form of LangChain's ``HumanInTheLoopMiddleware``."""
    from langgraph.types import interrupt

    answer = interrupt(
        {
            "action_requests": [{"name": name, "args": arguments, "tool_call_id": identity}],
            "review_configs": [{"action_name": name, "allowed_decisions": ["approve", "reject"]}],
        }
    )
    decisions = answer.get("decisions") if isinstance(answer, dict) else None
    decision = decisions[0] if isinstance(decisions, list) and len(decisions) == 1 else {}
    named = decision.get("tool_call_id")
    # Calls of one task share its interrupts, in any order: only an answer that names the call is for it. An agent of
    # `create_agent` has a task for each call.
    is_alone = "__pregel_push" in config["metadata"].get("langgraph_path", ())
    return decision.get("type") == "approve" and (named == identity or (named is None and is_alone))
