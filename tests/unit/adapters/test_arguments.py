"""Schemas and arguments in the forms that frameworks want."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gaia.adapters.arguments import accepts_null, arguments_model, flat_properties, inlined_schema, without_nulls
from gaia.mcp import MCPTool

Json = dict[str, Any]


def inlined(schema: Json) -> Json:
    return inlined_schema(MCPTool("move", "", schema))


def flat(schema: Any, *, required: bool = True) -> Json:
    """What becomes of one property."""
    return flat_properties(inlined({"properties": {"x": schema}, "required": ["x"] if required else []}))["x"]


class TestInlinedSchema:
    def test_what_a_reference_points_to_stands_in_its_place(self) -> None:
        schema = inlined(
            {
                "properties": {"to": {"$ref": "#/$defs/point", "description": "where to"}},
                "$defs": {"point": {"type": "array", "items": {"$ref": "#/$defs/axis"}}, "axis": {"type": "number"}},
            }
        )

        assert schema == {
            "type": "object",
            "properties": {"to": {"type": "array", "items": {"type": "number"}, "description": "where to"}},
            "required": [],
        }

    def test_a_schema_that_is_a_reference_has_the_properties_of_its_target(self) -> None:
        point = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}

        assert inlined({"$ref": "#/definitions/a~1b", "definitions": {"a/b": point}}) == point

    @pytest.mark.parametrize("reference", ["#/$defs/nothing", "#/$defs/list/0", "https://example.com/a", "#a", ""])
    def test_a_reference_to_nothing_here_permits_anything(self, reference: str) -> None:
        schema = {"properties": {"x": {"$ref": reference, "title": "X"}}, "$defs": {"list": ["string"]}}

        assert inlined(schema)["properties"] == {"x": {"title": "X"}}

    @pytest.mark.parametrize("reference", ["#/$defs/node", "#"])
    def test_a_reference_without_an_end_is_followed_three_times(self, reference: str) -> None:
        node = {"properties": {"next": {"$ref": reference}}}

        schema = inlined({**node, "$defs": {"node": node}})

        levels = 0
        while schema := schema.get("properties", {}).get("next"):
            levels += 1
        assert levels == 3

    def test_a_reference_that_fans_out_into_itself_is_followed_once(self) -> None:
        node = {"type": "object", "properties": {f"next_{n}": {"$ref": "#/$defs/node"} for n in range(50)}}

        schema = inlined({"properties": {"first": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}})

        assert schema["properties"]["first"]["properties"]["next_0"] == {}

    def test_of_references_that_fan_out_only_the_names_of_the_properties_stay(self) -> None:
        definitions = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 10} for n in range(30)}

        schema = inlined({"properties": {"x": {"$ref": "#/$defs/d0"}, "y": {"type": "string"}}, "$defs": definitions})

        assert schema == {"type": "object", "properties": {"x": {}, "y": {}}, "required": []}

    def test_of_a_schema_that_is_too_deep_only_the_names_of_the_properties_stay(self) -> None:
        deep: Json = {}
        for _ in range(400):
            deep = {"items": deep}

        assert inlined({"properties": {"x": deep}, "required": ["x"]})["properties"] == {"x": {}}

    def test_properties_may_be_called_like_keywords(self) -> None:
        properties = {"$ref": {"type": "string"}, "$defs": {"type": "string"}, "definitions": {"type": "string"}}

        assert inlined({"properties": properties})["properties"] == properties

    @pytest.mark.parametrize("schema", [{}, {"type": "string"}, {"properties": 1, "required": True}])
    def test_it_is_always_that_of_an_object(self, schema: Json) -> None:
        assert inlined(schema) == {"type": "object", "properties": {}, "required": []}

    def test_the_schema_of_the_tool_is_left_as_it_is(self) -> None:
        original = {"properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"enum": ["a"]}}}
        given = copy.deepcopy(original)

        inlined(given)["properties"]["x"]["enum"].append("b")

        assert given == original


class TestArgumentsModel:
    def test_it_takes_any_arguments_and_gives_them_back(self) -> None:
        arguments = {"text": "a", "nested": {"deep": [1, None]}, "model_dump": 1, "self": 2, "": 3}

        assert arguments_model({}).model_validate(arguments).model_dump() == arguments

    def test_it_describes_itself_with_the_schema(self) -> None:
        schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}}
        model = arguments_model(schema)

        described = model.model_json_schema(ref_template="#/{model}")
        described["properties"].clear()

        assert model.model_json_schema() == schema


@pytest.mark.parametrize(
    ("schema", "accepts"),
    [
        ({"type": "null"}, True),
        ({"type": "string"}, False),
        ({"type": ["string", "null"]}, True),
        ({"type": ["string"]}, False),
        ({"const": None}, True),
        ({"const": 1}, False),
        ({"enum": ["a", None]}, True),
        ({"enum": ["a"]}, False),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, False),
        ({"anyOf": "malformed"}, True),
        ({}, True),
        (True, True),
        (False, False),
    ],
)
def test_whether_a_property_may_be_null(schema: object, accepts: bool) -> None:
    assert accepts_null(schema) is accepts


def test_only_nulls_that_the_server_would_refuse_are_left_out() -> None:
    schema = inlined(
        {
            "properties": {
                "required": {"type": "string"},
                "optional": {"type": "string"},
                "nullable": {"type": ["string", "null"]},
            },
            "required": ["required"],
        }
    )

    assert without_nulls(schema, dict.fromkeys(("required", "optional", "nullable", "unknown"))) == {
        "required": None,
        "nullable": None,
        "unknown": None,
    }
    assert without_nulls(schema, {"optional": 0}) == {"optional": 0}


class TestFlatProperties:
    @pytest.mark.parametrize(
        ("schema", "types"),
        [
            ({"type": "string"}, "string"),
            ({"type": ["number", "string"]}, ["string", "number", "integer"]),
            ({"type": ["integer", "null"]}, "integer"),
            ({"anyOf": [{"type": "boolean"}, {"type": "string"}]}, ["string", "boolean"]),
            ({"anyOf": [{"type": "array", "items": {}}, {"type": "null"}]}, "array"),
        ],
    )
    def test_its_types_have_names(self, schema: Json, types: object) -> None:
        assert flat(schema)["type"] == types

    @pytest.mark.parametrize(
        "schema",
        [{}, True, {"type": "file"}, {"type": 1}, {"enum": ["a"]}, {"anyOf": [{}, {"type": "string"}]}, {"anyOf": 1}],
    )
    def test_one_that_says_nothing_of_its_type_has_all(self, schema: object) -> None:
        assert flat(schema)["type"] == ["string", "number", "integer", "boolean", "array", "object"]

    def test_what_else_the_server_says_stays(self) -> None:
        schema = {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}], "description": "points"}

        assert flat(schema) == {
            "type": "array",
            "items": {"type": "number"},
            "description": "points",
            "nullable": True,
        }

    def test_one_that_may_be_left_out_is_nullable(self) -> None:
        assert flat({"type": "string"}, required=False) == {"type": "string", "description": "", "nullable": True}
        assert flat({"type": "string"}) == {"type": "string", "description": ""}
