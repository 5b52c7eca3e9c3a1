from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest

from gaia.agents.base.tool_schema import api_names, input_schema, schema_of, tool_definition
from gaia.agents.base.tools import _TOOL_REGISTRY, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(TypedDict):
    x: int
    label: NotRequired[str]


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "label": {"type": "string"}},
    "required": ["x"],
}


class Node(TypedDict):
    point: Point
    children: list[Node]


class Custom:
    """What JSON has no form for."""


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (None.__class__, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (Custom, {}),
        (int | Custom, {}),
        ("a text", {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (tuple[int, str], {"type": "array", "items": {}}),
        (list, {"type": "array", "items": {}}),
        (dict, {"type": "object"}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - the old form is the subject
        (int | Any, {}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"type": ["integer", "string"], "enum": [1, "a"]}),
        (Colour, {"type": "string", "enum": ["blue", "red"]}),
        (Colour | None, {"anyOf": [{"type": "string", "enum": ["blue", "red"]}, {"type": "null"}]}),
        (Annotated[int, "How many"], {"type": "integer", "description": "How many"}),
        (Point, POINT),
        (
            Node,
            {
                "type": "object",
                "properties": {"children": {"type": "array", "items": {}}, "point": POINT},
                "required": ["children", "point"],
            },
        ),
    ],
)
def test_annotations_become_json_schema(annotation: Any, schema: dict[str, Any]) -> None:
    assert schema_of(annotation) == schema


def test_a_native_tool_is_described_by_its_annotations_and_its_docstring() -> None:
    def search(query: str, kinds: list[Literal["a", "b"]], limit: int = 5, *, deep: bool | None = None) -> None:
        """Search.

        Args:
            query: What for
            kinds: Of what
            limit: How many
            deep: Below too
        """

    try:
        tool(search)
        entry = _TOOL_REGISTRY["search"]
    finally:
        del _TOOL_REGISTRY["search"]
    assert input_schema(entry) == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What for"},
            "kinds": {
                "type": "array",
                "items": {"type": "string", "enum": ["a", "b"]},
                "description": "Of what",
            },
            "limit": {"type": "integer", "description": "How many", "default": 5},
            "deep": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "description": "Below too"},
        },
        "required": ["query", "kinds"],
        "additionalProperties": False,
    }


def test_what_an_annotation_does_not_say_in_json_is_left_to_its_kind() -> None:
    def collect(parts: list[Custom], by_name: dict[str, int | Custom], points: list[int] | set[int]) -> None: ...

    try:
        tool(collect)
        properties = input_schema(_TOOL_REGISTRY["collect"])["properties"]
    finally:
        del _TOOL_REGISTRY["collect"]
    array = {"type": "array", "items": {}}
    assert properties == {"parts": array, "by_name": {"type": "object"}, "points": array}


def test_an_entry_made_by_hand_is_described_by_its_parameters() -> None:
    entry = {
        "parameters": {"a": {"type": "string|integer", "required": True}, "b": {"type": "any"}, "c": {}},
        "function": lambda **arguments: arguments,
    }
    assert input_schema(entry) == {
        "type": "object",
        "properties": {"a": {"type": ["string", "integer"]}, "b": {}, "c": {}},
        "required": ["a"],
    }


def test_the_schema_of_a_server_is_passed_on_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    assert input_schema({"_mcp_input_schema": schema, "parameters": {}}) is schema


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": None}, {"type": ["object", "null"]}])
def test_what_endpoints_insist_on_is_added_to_it(schema: dict[str, Any]) -> None:
    assert input_schema({"_mcp_input_schema": schema}) == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("name", "server", "described"),
    [
        ("mcp_acer_launch", "acer", "Launch it."),
        # A name that does not tell the server leaves it in the description.
        ("mcp_my_server_launch", "my server", "[MCP:my server] Launch it."),
    ],
)
def test_the_server_is_told_once(name: str, server: str, described: str) -> None:
    definition = tool_definition(name, {"description": f"[MCP:{server}] Launch it.", "_mcp_server": server})
    assert definition["function"]["description"] == described


def test_a_definition_has_the_form_of_chat_completions() -> None:
    definition = tool_definition("t", {"description": None, "_mcp_input_schema": {}})
    assert definition == {
        "type": "function",
        "function": {"name": "t", "description": "", "parameters": {"type": "object", "properties": {}}},
    }


def test_names_are_made_acceptable_and_stay_apart() -> None:
    keys = ["fine-Name_1", "with space", "with.space", "x" * 65, "ü"]
    names = api_names(keys)
    assert list(names.values()) == keys
    assert names["fine-Name_1"] == "fine-Name_1"
    assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in names)
    assert all(name.isascii() for name in names)
