"""The tools of MCP servers for LlamaIndex: `llama_index_tools`, and `MCPToolRetriever` for tools that change."""

from __future__ import annotations

from typing import Any, Unpack

from gaia.adapters.arguments import arguments_model
from gaia.adapters.results import description_for_model, input_schema, name_for_model, parts_for_model
from gaia.adapters.selection import Manager, SelectionKeywords, ToolSelection, once_per_tool
from gaia.mcp import MCPTool, ToolResult

try:
    from llama_index.core.base.llms.types import AudioBlock, DocumentBlock, ImageBlock, TextBlock
    from llama_index.core.objects import ObjectRetriever
    from llama_index.core.tools import FunctionTool, ToolMetadata, ToolOutput
except ImportError as error:
    raise ImportError("gaia.adapters.llama_index needs LlamaIndex: pip install llama-index-core") from error


def llama_index_tools(manager: Manager, **selection: Unpack[SelectionKeywords]) -> list[FunctionTool]:
    """The present tools of `manager`, for the `tools` of an agent or of a model; thread-safe.

    `selection` says which tools; see `ToolSelection`. A result's ``blocks`` are its texts, images and files,
    ``raw_output`` is the whole `ToolResult`, and ``is_error`` tells whether the call failed.
    """
    return ToolSelection.of(manager, **selection).each(_function_tool)


class MCPToolRetriever(ObjectRetriever[FunctionTool]):
    """All tools of a manager, for the ``tool_retriever`` of an agent, which asks it for them at each step."""

    def __init__(self, manager: Manager, **selection: Unpack[SelectionKeywords]) -> None:
        """`selection` says which tools; see `ToolSelection`."""
        self._selection = ToolSelection.shared(manager, **selection)

    def retrieve(self, str_or_query_bundle: Any) -> list[FunctionTool]:  # noqa: ARG002 - the query chooses nothing
        return llama_index_tools(self._selection)

    async def aretrieve(self, str_or_query_bundle: Any) -> list[FunctionTool]:
        return self.retrieve(str_or_query_bundle)


def _function_tool(selection: ToolSelection, tool: MCPTool) -> FunctionTool:
    name = name_for_model(tool)

    def output(result: ToolResult, arguments: dict[str, Any]) -> ToolOutput:
        blocks = parts_for_model(
            result,
            lambda text: TextBlock(text=text),
            # Still encoded, because the code for a model's API decodes it if necessary.
            lambda data, mime: ImageBlock(image=data.encode(), image_mimetype=mime),
            lambda data, name: DocumentBlock(data=data.encode(), document_mimetype="application/pdf", title=name),
            lambda data, mime: AudioBlock(audio=data.encode(), format=mime.removeprefix("audio/")),
            safe_to_repeat=tool.safe_to_repeat,
        )
        return ToolOutput(name, blocks=blocks, raw_input=arguments, raw_output=result, is_error=result.is_error)

    def call(**arguments: Any) -> ToolOutput:
        return output(selection.call(name, arguments), arguments)

    async def acall(**arguments: Any) -> ToolOutput:
        return output(await selection.call_async(name, arguments), arguments)

    def whole(made: ToolOutput) -> ToolOutput:
        return made

    async def awhole(made: ToolOutput) -> ToolOutput:
        return made

    metadata = ToolMetadata(description_for_model(tool), name, _arguments(tool))
    # Only a callback can return a `ToolOutput`. The function's own result would become a text.
    return FunctionTool(call, metadata, acall, callback=whole, async_callback=awhole)


@once_per_tool
def _arguments(tool: MCPTool) -> Any:
    return arguments_model(input_schema(tool))
