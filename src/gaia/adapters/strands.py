"""The tools of MCP servers for Strands Agents: `MCPManagerPlugin`, and `strands_tools` for a fixed list."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import re
from typing import Any, Unpack

from gaia.adapters.calls_in_doubt import CallsInDoubt
from gaia.adapters.results import description_for_model, input_schema, name_for_model, parts_for_model
from gaia.adapters.selection import Manager, SelectionKeywords, ToolSelection, once_per_tool
from gaia.mcp import MCPTool, ToolResult
from gaia.mcp.errors import CallCancelled

try:
    from strands import Agent
    from strands.hooks import BeforeModelCallEvent, BeforeToolCallEvent
    from strands.plugins import Plugin
    from strands.types.tools import AgentTool, ToolGenerator, ToolSpec, ToolUse
except ImportError as error:
    raise ImportError("gaia.adapters.strands needs strands-agents: pip install strands-agents") from error

_APPROVED = "gaia-mcp approved"
_CANCEL_SECONDS = 0.05
"""Seconds between checks for cancellation, because a `threading.Event` cannot wake an event loop."""


def strands_tools(manager: Manager, **selection: Unpack[SelectionKeywords]) -> list[AgentTool]:
    """The present tools of `manager`, for ``Agent(tools=…)``.

    `selection` says which tools; see `ToolSelection`. A call that needs approval is refused without `on_approval`; with
    the plugin below, it interrupts the agent.
    """
    return [*ToolSelection.of(manager, **selection).cached(_tools).values()]


class MCPManagerPlugin(Plugin):
    """Gives an agent the tools of `manager`: ``Agent(plugins=[…])``. Never starts or stops servers.

    Before each call of the model, the agent's tools are updated. If the agent has a tool of its own with the same name,
    or with a name that differs only by ``-`` and ``_``, the server's tool is left out.
    """

    name = "gaia-mcp"

    def __init__(self, manager: Manager, **selection: Unpack[SelectionKeywords]) -> None:
        """`selection` says which tools; see `ToolSelection`.

        A call that needs approval interrupts the agent. The response to the interrupt is True if it may be made.
        """
        super().__init__()
        self._selection = ToolSelection.shared(manager, **selection)

    def init_agent(self, agent: Agent) -> None:
        """Register the tools, and update them before each call of the model. For Strands."""
        self._update(agent)
        agent.add_hook(lambda event: self._update(event.agent), BeforeModelCallEvent)
        if self._selection.asks_by_framework:
            agent.add_hook(self._ask, BeforeToolCallEvent)

    def _update(self, agent: Agent) -> None:
        registry = agent.tool_registry
        present = self._selection.cached(_tools)
        for name, known in tuple(registry.registry.items()):
            if (
                isinstance(known, MCPManagerTool)
                and known.selection is self._selection
                and known is not present.get(name)
            ):
                del registry.registry[name]
        for tool in [tool for name, tool in present.items() if name not in registry.registry]:
            # A server's listing must not end the agent's run.
            with contextlib.suppress(ValueError):
                registry.register_tool(tool)

    def _ask(self, event: BeforeToolCallEvent) -> None:
        tool, use = event.selected_tool, event.tool_use
        if not isinstance(tool, MCPManagerTool) or tool.selection is not self._selection:
            return
        approved: set[str] = event.invocation_state.setdefault(_APPROVED, set())
        # A hook may have stopped an earlier call that was approved.
        approved.discard(call := _call_of(use))
        if self._selection.asks(tool.tool_name, use["input"]):
            # For Strands, calls with the same id and this name are one question, in later turns too.
            name = f"approve {tool.tool_name} {len(event.agent.messages)} {call}"
            if event.interrupt(name, reason={"tool": tool.tool_name, "arguments": use["input"]}) is True:
                approved.add(call)


def _tools(selection: ToolSelection, tools: list[MCPTool]) -> dict[str, AgentTool]:
    return {name_for_model(tool): MCPManagerTool(tool, selection) for tool in tools}


class MCPManagerTool(AgentTool):
    """A tool of a server. A failure is a result with ``status: "error"``, never an exception.

    A hook may let Strands repeat a call (``AfterToolCallEvent.retry``). If the outcome of the first call is unknown,
    the call is not repeated, unless the tool is marked as safe to repeat.
    """

    # The base class has abstract properties, which must be overridden here.
    tool_name = tool_type = "mcp"
    tool_spec = ToolSpec(name="", description="", inputSchema={})

    def __init__(self, tool: MCPTool, selection: ToolSelection) -> None:
        super().__init__()
        self.tool, self.selection = tool, selection
        self.tool_name = name_for_model(tool)
        self.tool_spec = {
            "name": self.tool_name,
            "description": description_for_model(tool),
            "inputSchema": {"json": _schema(tool)},
            "annotations": tool.annotations,
        }
        self._in_doubt: CallsInDoubt[object] = CallsInDoubt()

    async def stream(self, tool_use: ToolUse, invocation_state: dict[str, Any], **_: Any) -> ToolGenerator:
        """Call the tool, for Strands, and stream its progress. `Agent.cancel` and the task's end cancel the call."""
        arguments, identity = tool_use["input"], tool_use["toolUseId"]
        approvals: set[str] = invocation_state.get(_APPROVED, set())
        if approved := (asked := _call_of(tool_use)) in approvals:
            # For this call only.
            approvals.remove(asked)
        streamed: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        def report(progress: float, total: float | None, message: str | None) -> None:
            streamed.put_nowait({"type": "mcp_progress", "progress": progress, "total": total, "message": message})

        agent = invocation_state.get("agent")
        call = functools.partial(self._call, arguments, agent, approved=approved, report=report)
        # A retry passes the same object again. The id does not identify a request, because another one may have the
        # same id.
        made = asyncio.ensure_future(
            self._in_doubt.make(self.tool, arguments, lambda earlier: earlier is arguments, call)
        )
        made.add_done_callback(lambda _: streamed.put_nowait(None))
        try:
            while (told := await streamed.get()) is not None:
                yield told
        finally:
            made.cancel()
            await asyncio.wait((made,))
        result = made.result()
        content = parts_for_model(
            result, lambda text: {"text": text}, _image, _document, safe_to_repeat=self.tool.safe_to_repeat
        )
        status = "error" if result.is_error else "success"
        answer = {"toolUseId": identity, "status": status, "content": content}
        yield answer if result.structured is None else {**answer, "structuredContent": result.structured}

    async def _call(self, arguments: Any, agent: Agent | None, **options: Any) -> ToolResult:
        call = asyncio.ensure_future(self.selection.call_async(self.tool_name, arguments, **options))
        try:
            while not (await asyncio.wait((call,), timeout=_CANCEL_SECONDS))[0]:
                if agent is not None and agent.cancel_signal.is_set():
                    return ToolResult.from_error(CallCancelled("the agent was cancelled", delivery="unknown"))
            return call.result()
        finally:
            call.cancel()
            await asyncio.wait((call,))


_schema = once_per_tool(input_schema)


def _call_of(use: ToolUse) -> str:
    """What a person approves. The id is not enough: some models give all calls of a turn the same one."""
    return json.dumps([use["toolUseId"], use["name"], use["input"]], sort_keys=True, default=str)


def _image(data: str, mime_type: str) -> dict[str, Any]:
    # Strands accepts all types in `results.IMAGE_TYPES`.
    return {"image": {"format": mime_type.removeprefix("image/"), "source": {"bytes": base64.b64decode(data)}}}


def _document(data: str, name: str) -> dict[str, Any]:
    # Models accept few characters in the name of a document.
    title = re.sub(r"[^A-Za-z0-9]+", " ", name).strip() or "document"
    return {"document": {"format": "pdf", "name": title, "source": {"bytes": base64.b64decode(data)}}}
