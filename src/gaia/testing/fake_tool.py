"""The tools and prompts of a fake server: functions with definitions."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gaia.agents.base.mcp_context import MCPCapabilityMissing, MCPContext, MCPRequestCancelled
from gaia.agents.base.tool_schema import schema_of, type_hints
from gaia.mcp.errors import JsonRpcError
from gaia.runtime.log import exception_text

Json = dict[str, Any]
_ANY = object()
"""Stands for the annotation of a parameter that has none."""


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

        Parameters may have the annotations that msgspec knows, and those of pydantic: models, and ``Field`` in
        ``Annotated`` or as the default. A call whose arguments violate them fails, and the function is not called.

        The function runs on a thread of the server, once for each call, and may be a coroutine function. A parameter
        with the annotation `MCPContext` gets the context of the call: progress, log messages, questions to the client,
        and whether the call was cancelled.

        The return value becomes the result: a dict with a list ``content`` is the whole result; any other dict, and a
        pydantic model, is structured content; a list of content blocks is the content; None is no content; everything
        else is text. An exception becomes a result with ``isError``, and a `JsonRpcError` an error of the protocol.
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


class _Parameter:
    """A parameter of a function: its schema, and its argument checked and converted."""

    def __init__(self, parameter: inspect.Parameter, hint: Any) -> None:
        """`hint` is the annotation, or `_ANY`."""
        self._hint = hint
        self.default = parameter.default
        """`inspect.Parameter.empty` if there is none."""
        self.field: Any = None
        """The ``Field`` of pydantic that is the default."""
        self._adapter: Any = None
        if _is_pydantic(hint) or _is_pydantic(parameter.default):
            import pydantic

            annotation = Any if hint is _ANY else hint
            if isinstance(parameter.default, pydantic.fields.FieldInfo):
                self.field = parameter.default
                annotation = typing.Annotated[annotation, self.field]
                self.default = inspect.Parameter.empty if self.field.is_required() else self.field.default
            self._adapter = pydantic.TypeAdapter(annotation)

    def schema(self, definitions: Json) -> Json:
        """Definitions that the schema refers to are added to `definitions`."""
        if self._adapter is not None:
            schema: Json = self._adapter.json_schema()
            definitions.update(schema.pop("$defs", {}))
        else:
            schema = {} if self._hint is _ANY else schema_of(self._hint)
        if isinstance(self.default, str | bool | int | float):
            schema["default"] = self.default
        return schema

    def converted(self, value: object) -> object:
        """Raises ValueError."""
        if self._adapter is not None:
            return self._adapter.validate_python(value)
        return value if self._hint is _ANY else msgspec.convert(value, self._hint)


class Function:
    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self.name = str(getattr(function, "__name__", type(function).__name__))
        self.docstring = inspect.getdoc(function) or ""
        self._parameters: dict[str, _Parameter] = {}
        self._context: str | None = None
        self._takes_any = False
        hints = type_hints(function)
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self._takes_any = True
            elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                # All arguments are named.
                continue
            elif isinstance(hint := hints.get(name), type) and issubclass(hint, MCPContext):
                self._context = name
            else:
                self._parameters[name] = _Parameter(parameter, hints.get(name, _ANY))

    def input_schema(self) -> Json:
        definitions: Json = {}
        properties = {name: parameter.schema(definitions) for name, parameter in self._parameters.items()}
        required = [name for name, one in self._parameters.items() if one.default is inspect.Parameter.empty]
        schema: Json = {"type": "object", "properties": properties, "required": required}
        if definitions:
            schema["$defs"] = definitions
        return schema if self._takes_any else {**schema, "additionalProperties": False}

    def __call__(self, arguments: Json, context: MCPContext) -> object:
        """Raises ValueError for arguments that the function does not accept, and the function's exceptions."""
        converted = {}
        for name, value in arguments.items():
            parameter = self._parameters.get(name)
            if parameter is None and not self._takes_any:
                raise ValueError(f"unexpected argument {name!r}")
            try:
                converted[name] = value if parameter is None else parameter.converted(value)
            except ValueError as error:
                raise ValueError(f"argument {name!r}: {error}") from error
        for name, parameter in self._parameters.items():
            if name not in converted:
                if parameter.default is inspect.Parameter.empty:
                    raise ValueError(f"missing argument {name!r}")
                if parameter.field is not None:
                    converted[name] = parameter.field.get_default(call_default_factory=True)
        if self._context is not None:
            converted[self._context] = context
        value = self._function(**converted)
        return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


def _is_pydantic(annotation: object) -> bool:
    """Whether an annotation or a default contains a model or a ``Field`` of pydantic, which it imports itself then."""
    if (pydantic := sys.modules.get("pydantic")) is None:
        return False
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return True
    if isinstance(annotation, pydantic.fields.FieldInfo):
        return True
    parts = (*typing.get_args(annotation), *getattr(annotation, "__metadata__", ()))
    return any(_is_pydantic(part) for part in parts)


async def _awaited(value: typing.Awaitable[object]) -> object:
    return await value


def _no_content(**_arguments: object) -> None:
    """The function of a tool that is only a definition."""


def _builtins(value: Any) -> Any:
    """The JSON value of an object that msgspec does not know."""
    return value.model_dump(mode="json") if _is_pydantic(type(value)) else str(value)


def _result_of(value: object) -> Json:
    value = msgspec.to_builtins(value, enc_hook=_builtins)
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
