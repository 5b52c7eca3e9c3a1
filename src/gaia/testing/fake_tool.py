"""The tools and prompts of a fake server: functions with definitions."""

from __future__ import annotations

import asyncio
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gaia.agents.base.mcp_context import MCPCapabilityMissing, MCPContext, MCPRequestCancelled
from gaia.agents.base.tool_schema import schema_of, type_hints
from gaia.mcp.errors import JsonRpcError
from gaia.runtime.log import exception_text

Json = dict[str, Any]


class FakeItem:
    def __init__(self, function: Function, derived: Json, definition: Json) -> None:
        """`derived` are members from the function besides its name and its docstring; `definition` overrides them."""
        self._function = function
        self.definition: Json = {"name": function.name, "description": function.docstring, **derived, **definition}
        self.name: str = self.definition["name"]


class FakeTool(FakeItem):
    """A tool of a `FakeServer`: a function and its definition in ``tools/list``. Immutable."""

    def __init__(self, function: Callable[..., object], **definition: Any) -> None:
        """The definition is derived from the function: its name, its docstring and its parameters.

        `definition` replaces derived members, named as in the protocol: ``name``, ``description``, ``inputSchema``,
        ``outputSchema``, ``annotations`` and so on. For example, ``annotations={"readOnlyHint": True}`` marks the tool
        as safe to repeat.

        The function runs on a thread of the server, once for each call, and may be a coroutine function. A parameter
        with the annotation `MCPContext` gets the context of the call: progress, log messages, questions to the client,
        and whether the call was cancelled.

        The return value becomes the result: a dict with a list ``content`` is the whole result; any other dict is
        structured content; a list of content blocks is the content; None is no content; everything else is text. An
        exception becomes a result with ``isError``, and a `JsonRpcError` an error of the protocol.
        """
        callee = Function(function)
        super().__init__(callee, {"inputSchema": callee.input_schema()}, definition)

    @classmethod
    def of(cls, tool: FakeTool | Callable[..., object] | Mapping[str, Any]) -> FakeTool:
        """A tool from a function or a definition. Without a function, its results have no content.

        Raises ValueError for any other value.
        """
        if isinstance(tool, FakeTool):
            return tool
        if isinstance(tool, Mapping):
            if not isinstance(tool.get("name"), str):
                raise ValueError(f"tools: a definition needs a 'name', got {dict(tool)!r}")  # noqa: TRY004 - a value
            return cls(_no_content, **{"inputSchema": {"type": "object"}, "description": "", **tool})
        if not callable(tool):
            raise ValueError(f"tools: expected functions and definitions, got {tool!r}")  # noqa: TRY004 - a value
        return cls(tool)

    def run(self, arguments: Json, context: MCPContext) -> Json:
        """The result of one call, on the caller's thread.

        Raises `JsonRpcError`, and exceptions outside of `Exception`.
        """
        try:
            return _result_of(self._function(arguments, context))
        except (JsonRpcError, MCPCapabilityMissing, MCPRequestCancelled):
            raise
        except Exception as error:  # noqa: BLE001 - the specification: errors of tools are results
            return {"content": text_content(str(error) or exception_text(error)), "isError": True}


class FakePrompt(FakeItem):
    """A prompt of a `FakeServer`: a function of its arguments, which are strings. Immutable."""

    def __init__(self, function: Callable[..., object], **definition: Any) -> None:
        """`definition` replaces members that are derived from the function, as for `FakeTool`.

        The function returns a text, which becomes one message of the user, or the messages.
        """
        callee = Function(function)
        schema = callee.input_schema()
        arguments = [{"name": name, "required": name in schema["required"]} for name in schema["properties"]]
        super().__init__(callee, {"arguments": arguments}, definition)

    @classmethod
    def of(cls, prompt: FakePrompt | Callable[..., object]) -> FakePrompt:
        """A prompt from a function."""
        return prompt if isinstance(prompt, FakePrompt) else cls(prompt)

    def run(self, arguments: Json, context: MCPContext) -> Json:
        """The result of one ``prompts/get``, on the caller's thread. Raises the function's exceptions."""
        messages = self._function(arguments, context)
        if not isinstance(messages, list):
            messages = [{"role": "user", "content": text_content(str(messages))[0]}]
        return {"description": self.definition["description"], "messages": messages}


class Function:
    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self.name = str(getattr(function, "__name__", type(function).__name__))
        self.docstring = inspect.getdoc(function) or ""
        self._parameters: dict[str, inspect.Parameter] = {}
        self._hints = type_hints(function)
        self._context: str | None = None
        self._takes_any = False
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self._takes_any = True
            elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                # All arguments are named.
                continue
            elif isinstance(hint := self._hints.get(name), type) and issubclass(hint, MCPContext):
                self._context = name
            else:
                self._parameters[name] = parameter

    def input_schema(self) -> Json:
        properties = {name: schema_of(self._hints[name]) if name in self._hints else {} for name in self._parameters}
        for name, parameter in self._parameters.items():
            if isinstance(parameter.default, str | bool | int | float):
                properties[name]["default"] = parameter.default
        required = [name for name, one in self._parameters.items() if one.default is inspect.Parameter.empty]
        schema: Json = {"type": "object", "properties": properties, "required": required}
        return schema if self._takes_any else {**schema, "additionalProperties": False}

    def __call__(self, arguments: Json, context: MCPContext) -> object:
        """Raises ValueError for arguments that the function does not accept, and the function's exceptions."""
        converted = {}
        for name, value in arguments.items():
            if name not in self._parameters and not self._takes_any:
                raise ValueError(f"unexpected argument {name!r}")
            try:
                converted[name] = msgspec.convert(value, self._hints[name]) if name in self._hints else value
            except msgspec.ValidationError as error:
                raise ValueError(f"argument {name!r}: {error}") from error
        for name, parameter in self._parameters.items():
            if name not in converted and parameter.default is inspect.Parameter.empty:
                raise ValueError(f"missing argument {name!r}")
        if self._context is not None:
            converted[self._context] = context
        value = self._function(**converted)
        return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: typing.Awaitable[object]) -> object:
    return await value


def _no_content(**_arguments: object) -> None:
    """The function of a tool that is only a definition."""


def _result_of(value: object) -> Json:
    value = msgspec.to_builtins(value, enc_hook=str)
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return {"isError": False, **value}
    if value is None:
        value = []
    if isinstance(value, list) and all(isinstance(block, dict) and "type" in block for block in value):
        return {"content": value, "isError": False}
    structured = {"structuredContent": value} if isinstance(value, dict) else {}
    text = value if isinstance(value, str) else json.dumps(value)
    return {"content": text_content(text), **structured, "isError": False}


def text_content(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]
