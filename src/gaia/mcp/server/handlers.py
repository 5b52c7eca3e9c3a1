"""The handlers of the SDK's server. They pass requests to the agent and convert its return values to results."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import mcp_types as types
import orjson
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from gaia.agents.base.mcp_context import MCPCapabilityMissing, MCPRequestCancelled, ServableAgent
from gaia.mcp.protocol.json_schema import SchemaUnusable, problems_by_own_schema
from gaia.mcp.server.calls import Calls, MayHaveActed
from gaia.mcp.server.changes import set_log_level
from gaia.runtime.log import get_logger

logger = get_logger(__name__)

Context = ServerRequestContext[Any, Any]
Page = types.PaginatedRequestParams | None
Definition = dict[str, Any]
ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_COMPLETIONS = 100

_OF_A_CONNECTION = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
"""Error codes of a connection that a tool uses.

As the answer to a call, they would mean that the client's own connection was lost, and the client would repeat the
call.
"""

HANDSHAKE_NOT_FOUND = -32002
"""The code for a missing resource up to revision 2025-11-25; later revisions forbid it."""


class Handlers:
    """One coroutine for each method of the protocol, on the event loop. The agent's code runs on worker threads."""

    def __init__(self, agent: ServableAgent, calls: Calls) -> None:
        self._agent = agent
        self._calls = calls

    async def list_tools(self, _ctx: Context, _params: Page) -> types.ListToolsResult:
        return types.ListToolsResult(tools=await self._calls.plain(self._tools))

    async def call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            return await self._calls.interactive(
                ctx, params, lambda: self._call_tool(params.name, params.arguments or {})
            )
        except MayHaveActed as error:
            return error_result(error.message)

    async def list_prompts(self, _ctx: Context, _params: Page) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=await self._listed(types.Prompt, self._agent.get_mcp_prompts))

    async def get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        return await self._calls.interactive(ctx, params, lambda: self._get_prompt(params.name, params.arguments or {}))

    async def complete(self, _ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        reference = params.ref.model_dump(by_alias=True, mode="json", exclude_none=True)
        given = dict(params.context.arguments or {}) if params.context else {}
        argument = params.argument
        values = await self._calls.plain(
            lambda: self._agent.complete_mcp_argument(reference, argument.name, argument.value, given)
        )
        shown, has_more = [str(value) for value in values[:MAX_COMPLETIONS]], len(values) > MAX_COMPLETIONS
        return types.CompleteResult(completion=types.Completion(values=shown, total=len(values), has_more=has_more))

    async def list_resources(self, _ctx: Context, _params: Page) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=await self._listed(types.Resource, self._agent.get_mcp_resources))

    async def list_resource_templates(self, _ctx: Context, _params: Page) -> types.ListResourceTemplatesResult:
        templates = await self._listed(types.ResourceTemplate, self._agent.get_mcp_resource_templates)
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        not_found = types.INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else HANDSHAKE_NOT_FOUND
        uri = str(params.uri)
        return await self._calls.interactive(ctx, params, lambda: self._read_resource(uri, not_found))

    async def _listed(self, kind: type[ModelT], get: Callable[[], Iterable[Definition]]) -> list[ModelT]:
        """An agent's definitions as the protocol's objects. A wrong definition is logged and left out."""
        models = []
        for one in await self._calls.plain(get):
            try:
                models.append(kind.model_validate(one, by_name=False))
            except ValidationError as error:
                if kind is types.Prompt:
                    logger.error("prompt_definition_invalid", prompt=one.get("name"), error=str(error))
                elif kind is types.Resource:
                    logger.error("resource_definition_invalid", uri=one.get("uri"), error=str(error))
                else:
                    logger.error("resource_template_invalid", uri=one.get("uriTemplate"), error=str(error))
        return models

    async def set_log_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        set_log_level(ctx, params.level)
        await self._calls.plain(lambda: self._agent.set_mcp_logging_level(params.level))
        return types.EmptyResult()

    # The methods below run on worker threads. They pass on a dictionary with ``input_required`` unchanged.

    def _tools(self) -> list[types.Tool]:
        """The agent's tools in its order. A wrong definition is left out, so that the other tools still work."""
        tools: dict[str, types.Tool] = {}
        for definition in self._agent.get_mcp_tool_definitions():
            try:
                schema = _arguments_schema(definition)
                tool = types.Tool.model_validate({**definition, "inputSchema": schema}, by_name=False)
                problems_by_own_schema(schema, {})
            except (ValidationError, SchemaUnusable) as error:
                logger.error("tool_definition_invalid", tool=definition.get("name"), error=str(error))
                continue
            if tools.setdefault(tool.name, tool) is not tool:
                logger.error("tool_defined_twice", tool=tool.name)
        return list(tools.values())

    def _call_tool(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult | dict[str, Any]:
        definition = _named(name, self._agent.get_mcp_tool_definitions())
        if definition is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name}")
        try:
            wrong = problems_by_own_schema(_arguments_schema(definition), arguments)
            if wrong:
                # The model can read this error and correct its arguments. The protocol requires that since 2025-11-25.
                return error_result(f"Invalid arguments for tool {name}: {'; '.join(wrong)}")
            value: Any = self._agent.execute_mcp_tool(name, arguments)
            return value if _requires_input(value) else _checked(name, definition, tool_result(value))
        except (MCPError, MCPCapabilityMissing) as error:
            if isinstance(error, MCPError) and error.code in _OF_A_CONNECTION:
                return _tool_failure(name, error)
            raise
        except MCPRequestCancelled:
            return error_result("The call was cancelled")
        except Exception as error:  # noqa: BLE001 - a tool may raise anything
            return _tool_failure(name, error)

    def _get_prompt(self, name: str, arguments: dict[str, str]) -> types.GetPromptResult | dict[str, Any]:
        definition = _named(name, self._agent.get_mcp_prompts())
        if definition is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}")
        required = [one["name"] for one in definition.get("arguments") or [] if one.get("required")]
        if missing := [argument for argument in required if argument not in arguments]:
            raise MCPError(types.INVALID_PARAMS, f"Prompt {name} needs: {', '.join(missing)}")
        try:
            value = self._agent.get_mcp_prompt(name, arguments)
            return value if _requires_input(value) else prompt_result(value)
        except (MCPError, MCPCapabilityMissing):
            raise
        except Exception as error:  # noqa: BLE001 - a prompt may raise anything
            if type(error) is ValueError:
                raise MCPError(types.INVALID_PARAMS, str(error)) from None
            logger.error("prompt_failed", prompt=name, **_raised(error))
            raise MCPError(types.INTERNAL_ERROR, f"Prompt {name} failed") from None

    def _read_resource(self, uri: str, not_found: int) -> types.ReadResourceResult | dict[str, Any]:
        try:
            listed = next((one for one in self._agent.get_mcp_resources() if one.get("uri") == uri), {})
            value = self._agent.read_mcp_resource(uri)
            return value if _requires_input(value) else resource_result(uri, listed.get("mimeType"), value)
        except (MCPError, MCPCapabilityMissing):
            raise
        except Exception as error:  # noqa: BLE001 - a resource may raise anything
            if type(error) is ValueError:
                raise MCPError(not_found, "Resource not found", {"uri": uri}) from None
            logger.error("resource_failed", uri=uri, **_raised(error))
            raise MCPError(types.INTERNAL_ERROR, "Resource could not be read", {"uri": uri}) from None


def _named(name: str, definitions: Iterable[Definition]) -> Definition | None:
    # If a name occurs twice, the first definition counts, as in the list.
    return next((one for one in definitions if one.get("name") == name), None)


def _arguments_schema(definition: Definition) -> dict[str, Any]:
    # The protocol requires the type, even if the agent gives only {}.
    return {"type": "object", **(definition.get("inputSchema") or {})}


def _requires_input(value: Any) -> bool:
    return isinstance(value, dict) and value.get("resultType") == "input_required"


def _checked(name: str, definition: Definition, result: types.CallToolResult) -> types.CallToolResult:
    promised = definition.get("outputSchema")
    if not promised or result.is_error:
        return result
    wrong = problems_by_own_schema(promised, result.structured_content)
    if wrong:
        logger.error("tool_result_invalid", tool=name, problems=wrong)
        return error_result(f"Tool {name} returned a result that does not fit its output schema")
    return result


def _tool_failure(name: str, error: Exception) -> types.CallToolResult:
    if isinstance(error, ValueError) and "unknown tool" in str(error).lower():
        # The tool is listed, but `execute_mcp_tool` does not know it.
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name}") from None
    logger.error("tool_failed", tool=name, **_raised(error))
    if type(error) is ValueError:
        # Authors of an MCPAgent report problems with ValueError itself. Its subclasses come from libraries, and their
        # messages are not meant for clients.
        return error_result(f"Tool {name} failed: {error}")
    return error_result(f"Tool {name} failed")


def _raised(error: Exception) -> dict[str, str]:
    """Fields for the log, with the traceback, because the server continues and nothing else shows it."""
    return {"error": repr(error), "traceback": "".join(traceback.format_exception(error))}


def tool_result(value: Any) -> types.CallToolResult:
    """Convert a tool's return value: a result in the protocol's form is kept, anything else becomes JSON."""
    if isinstance(value, dict) and "error_type" in value:
        # A failed call of gaia's own client. Its content tells less than ``error_type`` and ``delivery``.
        value = {key: member for key, member in value.items() if key not in ("content", "isError")}
    if isinstance(value, dict) and _is_content(value.get("content")):
        try:
            return types.CallToolResult.model_validate(
                {key: value[key] for key in ("content", "structuredContent", "isError", "_meta") if key in value},
                by_name=False,
            )
        except ValidationError:
            # Blocks of an unknown type: the value only looks like a result.
            pass
    text = value if isinstance(value, str) else to_json(value)
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        # Decoded from the text, so that both hold the same JSON.
        structured_content=orjson.loads(text) if isinstance(value, dict) else None,
        is_error=isinstance(value, dict) and _tells_an_error(value),
    )


def error_result(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)


def prompt_result(value: Any) -> types.GetPromptResult:
    """Convert a prompt. Raises pydantic's ValidationError for a form that `MCPAgent.get_mcp_prompt` does not allow."""
    if isinstance(value, str):
        value = {"messages": [{"role": "user", "content": value}]}
    elif isinstance(value, list):
        value = {"messages": value}
    messages = [_message(message) for message in value.get("messages") or []]
    return types.GetPromptResult.model_validate({**value, "messages": messages}, by_name=False)


def resource_result(uri: str, mime_type: str | None, value: Any) -> types.ReadResourceResult:
    """Convert a resource. Raises pydantic's ValidationError for wrong ``contents``."""
    if isinstance(value, dict) and isinstance(value.get("contents"), list):
        return types.ReadResourceResult.model_validate(value, by_name=False)
    if isinstance(value, (bytes, bytearray, memoryview)):
        default, contents = "application/octet-stream", {"blob": base64.b64encode(value).decode("ascii")}
    elif isinstance(value, str):
        default, contents = "text/plain", {"text": value}
    else:
        default, contents = "application/json", {"text": to_json(value)}
    contents |= {"uri": uri, "mimeType": mime_type or default}
    return types.ReadResourceResult.model_validate({"contents": [contents]}, by_name=False)


def to_json(value: Any) -> str:
    """JSON of any value of an agent. Paths, dates and other objects become text."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    return orjson.dumps(value, default=_plain, option=options).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    dump: Callable[[], Any] | None = getattr(value, "model_dump", None)
    return dump() if callable(dump) else str(value)


def _is_content(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(block, dict) and "type" in block for block in content)


def _tells_an_error(value: dict[str, Any]) -> bool:
    # The two forms that agents use: {"error": message} and {"status": "error", …}.
    return bool(value.get("error")) or value.get("status") == "error"


def _message(message: Any) -> Any:
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    if isinstance(message, dict) and isinstance(message.get("content"), str):
        return {**message, "content": {"type": "text", "text": message["content"]}}
    return message
