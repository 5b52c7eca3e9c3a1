"""Tools as servers describe them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import InvalidResponse
from gaia.mcp.tools.naming import disambiguated
from gaia.mcp.tools.tool import MCPTool, gaia_parameters, tool_from_listing

READ_FILE = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "File path"},
        "encoding": {"type": "string", "description": "Encoding"},
    },
    "required": ["path"],
}


class TestMCPTool:
    def test_the_first_three_fields_make_a_tool(self) -> None:
        tool = MCPTool("read_file", "Read file", READ_FILE)
        assert (tool.name, tool.description, tool.input_schema) == ("read_file", "Read file", READ_FILE)
        assert (tool.output_schema, tool.annotations, tool.title) == (None, {}, None)
        assert (tool.server, tool.namespaced_name) == (None, None)

    def test_a_tool_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            MCPTool("a", "", {}).name = "b"  # type: ignore[misc]

    def test_a_full_listing_entry_is_read(self) -> None:
        tool = tool_from_listing(
            {
                "name": "now",
                "title": "What time is it?",
                "description": "The time",
                "inputSchema": {"type": "object"},
                "outputSchema": {"type": "object", "properties": {}},
                "annotations": {"readOnlyHint": True},
                "_meta": {"x": 1},
            }
        )
        assert tool == MCPTool(
            "now",
            "The time",
            {"type": "object"},
            {"type": "object", "properties": {}},
            {"readOnlyHint": True},
            "What time is it?",
        )

    @pytest.mark.parametrize(
        "rest",
        [
            {},
            {"description": None, "inputSchema": None, "outputSchema": None, "annotations": None, "title": None},
            {"description": 5, "inputSchema": True, "outputSchema": [], "annotations": "no", "title": {}},
        ],
    )
    def test_a_name_is_all_that_a_listing_entry_needs(self, rest: dict[str, Any]) -> None:
        assert tool_from_listing({"name": "now", **rest}) == MCPTool("now", "", {})

    @pytest.mark.parametrize("entry", [{}, {"name": None}, {"name": 5}, {"name": ""}, None, "now", ["now"]])
    def test_an_entry_without_a_name_is_an_invalid_response(self, entry: object) -> None:
        with pytest.raises(InvalidResponse, match="expected a tool with a name, got"):
            tool_from_listing(entry)

    def test_a_huge_nameless_entry_makes_no_huge_message(self) -> None:
        with pytest.raises(InvalidResponse) as refusal:
            tool_from_listing({"description": "x" * 1_000_000})
        assert len(str(refusal.value)) < 1000

    @pytest.mark.parametrize(
        ("annotations", "safe"),
        [
            ({}, False),
            ({"readOnlyHint": True}, True),
            ({"idempotentHint": True}, True),
            ({"readOnlyHint": False, "idempotentHint": True}, True),
            ({"readOnlyHint": False, "destructiveHint": False}, False),
            ({"readOnlyHint": "true"}, False),
            ({"readOnlyHint": 1, "idempotentHint": "no"}, False),
        ],
    )
    def test_only_a_plain_true_makes_a_tool_safe_to_repeat(self, annotations: dict[str, Any], safe: bool) -> None:
        assert MCPTool("a", "", {}, annotations=annotations).safe_to_repeat is safe


class TestToGaiaFormat:
    def test_it_is_the_entry_of_the_specification(self) -> None:
        assert MCPTool("read_file", "Read file contents", READ_FILE).to_gaia_format("filesystem") == {
            "name": "mcp_filesystem_read_file",
            "description": "[MCP:filesystem] Read file contents",
            "parameters": {
                "path": {"type": "string", "required": True, "description": "File path"},
                "encoding": {"type": "string", "required": False, "description": "Encoding"},
            },
            "atomic": True,
            "_mcp_server": "filesystem",
            "_mcp_tool_name": "read_file",
        }

    def test_an_unsafe_name_is_replaced_and_the_original_kept_for_routing(self) -> None:
        entry = MCPTool("read file", "", {}).to_gaia_format("my.fs")
        assert entry["name"] == disambiguated("my.fs", "read file")
        assert (entry["_mcp_server"], entry["_mcp_tool_name"]) == ("my.fs", "read file")


def type_of(schema: object, **root: Any) -> str:
    """The type that a parameter with this schema gets."""
    kind = gaia_parameters({"type": "object", "properties": {"value": schema}, **root})["value"]["type"]
    assert isinstance(kind, str)
    return kind


def doubling(levels: int) -> dict[str, Any]:
    """A schema of few lines with 2 to the power of `levels` ways through its references."""
    definitions: dict[str, Any] = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}, {"$ref": f"#/$defs/d{level + 1}"}]}
        for level in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "object", "properties": {"x": {"type": "string"}}}
    return {"type": "object", "$defs": definitions, "allOf": [{"$ref": "#/$defs/d0"}]}


class TestParameters:
    @pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": None}, None, True, [], "x", 5])
    def test_a_schema_without_properties_has_no_parameters(self, schema: object) -> None:
        assert gaia_parameters(schema) == {}

    @pytest.mark.parametrize("required", [None, "path", True, {"path": 1}, [["path"], 5]])
    def test_a_malformed_required_requires_nothing(self, required: object) -> None:
        parameters = gaia_parameters({"properties": {"path": {}, "p": {}}, "required": required})
        assert [facts["required"] for facts in parameters.values()] == [False, False]

    @pytest.mark.parametrize("schema", [{}, True, None, 5, "string", [], {"type": None}, {"type": 5}, {"type": []}])
    def test_where_nothing_is_said_the_type_is_string(self, schema: object) -> None:
        assert gaia_parameters({"properties": {"x": schema}}) == {
            "x": {"type": "string", "required": False, "description": ""}
        }

    def test_a_property_that_may_not_be_passed_is_left_out(self) -> None:
        assert gaia_parameters({"properties": {"no": False}}) == {}

    def test_a_description_that_is_no_text_is_left_out(self) -> None:
        assert gaia_parameters({"properties": {"x": {"description": 5}}})["x"]["description"] == ""

    def test_references_and_all_of_add_properties(self) -> None:
        schema = {
            "$ref": "#/$defs/base",
            "allOf": [{"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
            "properties": {"c": {"type": "boolean"}},
            "$defs": {"base": {"properties": {"a": {"type": "number"}, "c": {}}, "required": ["a"]}},
        }
        assert {name: (facts["type"], facts["required"]) for name, facts in gaia_parameters(schema).items()} == {
            "a": ("number", True),
            "b": ("integer", True),
            "c": ("boolean", False),
        }

    @pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
    def test_properties_of_alternatives_are_never_required(self, keyword: str) -> None:
        schema = {
            "properties": {"kind": {"const": "a"}},
            "required": ["kind"],
            keyword: [
                {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"allOf": [{"properties": {"b": {"type": "array"}}, "required": ["b"]}]},
            ],
        }
        assert {name: (facts["type"], facts["required"]) for name, facts in gaia_parameters(schema).items()} == {
            "kind": ("string", True),
            "a": ("integer", False),
            "b": ("array", False),
        }


class TestTypes:
    @pytest.mark.parametrize("kind", ["string", "integer", "number", "boolean", "object", "array", "null"])
    def test_a_single_type_is_kept(self, kind: str) -> None:
        assert type_of({"type": kind}) == kind

    @pytest.mark.parametrize(
        ("types", "expected"),
        [
            (["string", "null"], "string"),
            (["null", "string"], "string"),
            (["string", "integer"], "string|integer"),
            (["integer", "string", "null", "integer"], "integer|string"),
            (["null"], "null"),
            ([5, None, "boolean"], "boolean"),
        ],
    )
    def test_several_types_are_joined_and_null_is_dropped(self, types: list[Any], expected: str) -> None:
        assert type_of({"type": types}) == expected

    @pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
    def test_alternatives_count_all_together(self, keyword: str) -> None:
        assert type_of({keyword: [{"type": "integer"}, {"type": "null"}]}) == "integer"
        assert type_of({keyword: [{"type": "array"}, {"type": "string"}, {}, True]}) == "array|string"
        assert type_of({keyword: [{}, True]}) == "string"
        assert type_of({keyword: "nonsense"}) == "string"

    @pytest.mark.parametrize(
        ("branches", "expected"),
        [
            ([{"type": "integer"}, {"minimum": 1}], "integer"),
            ([{"description": "x"}, {"type": ["integer", "string"]}, {"type": "string"}], "string"),
            ([{"type": "integer"}, {"type": "string"}], "integer"),
        ],
    )
    def test_all_of_keeps_what_its_branches_share(self, branches: list[Any], expected: str) -> None:
        assert type_of({"allOf": branches}) == expected

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (["a", "b"], "string"),
            ([1, 2], "integer"),
            ([1, 1.5], "integer|number"),
            ([True, False], "boolean"),
            (["a", None], "string"),
            ([None], "null"),
            ([{}], "object"),
            ([[]], "array"),
            ([], "string"),
            ("abc", "string"),
        ],
    )
    def test_the_values_of_an_enum_tell_the_type(self, values: Any, expected: str) -> None:
        assert type_of({"enum": values}) == expected

    @pytest.mark.parametrize(("value", "expected"), [(5, "integer"), (True, "boolean"), (None, "null"), ({}, "object")])
    def test_a_constant_tells_the_type(self, value: object, expected: str) -> None:
        assert type_of({"const": value}) == expected

    def test_the_shape_tells_the_type_as_a_last_resort(self) -> None:
        assert type_of({"properties": {}}) == "object"
        assert type_of({"additionalProperties": {"type": "string"}}) == "object"
        assert type_of({"items": {"type": "string"}}) == "array"
        assert type_of({"prefixItems": []}) == "array"

    def test_a_written_type_wins_over_everything_else(self) -> None:
        assert type_of({"type": "boolean", "$ref": "#/$defs/x", "enum": [1], "anyOf": [{"type": "null"}]}) == "boolean"


class TestReferences:
    @pytest.mark.parametrize("section", ["$defs", "definitions"])
    def test_local_definitions_are_followed(self, section: str) -> None:
        root = {section: {"colour": {"enum": ["red"], "description": "A colour"}}}
        schema = {"properties": {"c": {"$ref": f"#/{section}/colour"}}, **root}
        assert gaia_parameters(schema)["c"] == {"type": "string", "required": False, "description": "A colour"}

    def test_a_description_beside_the_reference_wins(self) -> None:
        schema = {
            "properties": {"c": {"$ref": "#/$defs/c", "description": "Mine"}},
            "$defs": {"c": {"type": "integer", "description": "Theirs"}},
        }
        assert gaia_parameters(schema)["c"] == {"type": "integer", "required": False, "description": "Mine"}

    def test_references_are_followed_through_references_and_branches(self) -> None:
        definitions = {
            "a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]},
            "b": {"$ref": "#/$defs/c"},
            "c": {"properties": {}},
        }
        assert type_of({"$ref": "#/$defs/a"}, **{"$defs": definitions}) == "object"

    @pytest.mark.parametrize(
        ("pointer", "expected"),
        [
            ("#/$defs/a~1b", "integer"),
            ("#/$defs/a~0b", "boolean"),
            ("#/$defs/a~01b", "array"),
            ("#/$defs/a%20b", "number"),
            ("#/%24defs/a~1b", "integer"),
            ("#/$defs/list/1", "null"),
            ("#/$defs/", "object"),
        ],
    )
    def test_pointers_are_unescaped(self, pointer: str, expected: str) -> None:
        definitions = {
            "a/b": {"type": "integer"},
            "a~b": {"type": "boolean"},
            "a~1b": {"type": "array"},
            "a b": {"type": "number"},
            "list": [{"type": "string"}, {"type": "null"}],
            "": {"type": "object"},
        }
        assert type_of({"$ref": pointer}, **{"$defs": definitions}) == expected

    def test_a_reference_to_the_whole_schema_is_an_object(self) -> None:
        assert type_of({"$ref": "#"}) == "object"

    @pytest.mark.parametrize(
        "reference",
        [
            "https://example.com/schema.json",
            "https://example.com/schema.json#/$defs/x",
            "other.json#/$defs/x",
            "file:///etc/passwd",
            "#anchor",
            "#/$defs/missing",
            "#/$defs/x/type/0",
            "#/$defs/list/0",
            "#/$defs/list/5",
            "#/$defs/list/-1",
            "#/$defs/list/x",
            "",
            None,
            5,
            ["#/$defs/x"],
        ],
    )
    def test_behind_any_other_reference_there_may_be_anything(
        self, reference: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("builtins.open", None)
        monkeypatch.setattr("socket.socket", None)
        root = {"$defs": {"x": {"type": "integer"}, "list": []}}
        assert type_of({"$ref": reference}, **root) == "any"
        assert type_of({"anyOf": [{"type": "string"}, {"$ref": reference}]}, **root) == "any"

    def test_cycles_end_and_say_nothing(self) -> None:
        root = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
        assert type_of({"$ref": "#/$defs/a"}, **root) == "string"
        assert gaia_parameters({"$ref": "#/$defs/a", **root}) == {}
        tree = {"$defs": {"tree": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "integer"}]}}}
        assert type_of({"$ref": "#/$defs/tree"}, **tree) == "integer"

    def test_references_that_fan_out_do_not_take_for_ever(self) -> None:
        # Each level mentions the next one twice: 2 to the 30th paths.
        definitions: dict[str, Any] = {
            f"level{n}": {"anyOf": [{"$ref": f"#/$defs/level{n + 1}"}] * 2, "properties": {f"p{n}": {}}}
            for n in range(30)
        }
        schema = {
            "properties": {"plain": {"type": "integer"}} | {f"x{n}": {"$ref": "#/$defs/level0"} for n in range(20)},
            "$ref": "#/$defs/level0",
            "$defs": definitions,
        }
        started = time.process_time()
        parameters = gaia_parameters(schema)
        assert {"x0", "x19", "p0"} <= parameters.keys()
        assert parameters["plain"]["type"] == "integer"
        assert time.process_time() - started < 5

    @pytest.mark.parametrize(
        "schema",
        [
            doubling(60),
            {"type": "object", "properties": {"p": {"$ref": "#/properties/p"}}},
            {"$ref": "#"},
            {"type": "object", "properties": {"p": {"type": "string", "pattern": "(a+)+$"}}},
            {"type": "object", "properties": {"p": {"$ref": "https://example.org/schema.json"}}},
            {"type": "object", "properties": {"p": {"$ref": "file:///etc/passwd"}}},
        ],
        ids=["exponential", "endless", "itself", "catastrophic pattern", "remote", "file"],
    )
    def test_a_short_schema_with_much_behind_it_is_no_work(self, schema: dict[str, Any]) -> None:
        """Endless work would meet the time limit of a test; patterns and remote references are never looked at."""
        tool = tool_from_listing({"name": "t", "inputSchema": schema})
        assert tool.to_gaia_format("s")["parameters"] == gaia_parameters(schema)

    @pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
    def test_nesting_without_end_is_not_followed_to_the_end(self, keyword: str) -> None:
        schema: dict[str, Any] = {"type": "integer"}
        for _ in range(100_000):
            schema = {keyword: [schema]}
        assert type_of(schema) == "string"
        assert gaia_parameters(schema) == {}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
keywords = [
    *("type", "properties", "required", "anyOf", "allOf", "oneOf"),
    *("enum", "const", "items", "$defs", "description"),
]
pointers = st.sampled_from(["#", "#/$defs/a", "#/properties/a", "#/$defs", "#/anyOf/0", "other.json"])
schemas = st.recursive(
    json_values | st.fixed_dictionaries({"$ref": pointers}),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*keywords, "a", "b"]), inner, max_size=4)
        | st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("ab"), inner)})
    ),
    max_leaves=15,
)


@given(schemas)
def test_no_schema_makes_it_fail(schema: object) -> None:
    for name, facts in gaia_parameters(schema).items():
        assert isinstance(name, str)
        assert facts.keys() == {"type", "required", "description"}
        assert isinstance(facts["type"], str)
        assert facts["type"]
        assert isinstance(facts["required"], bool)
        assert isinstance(facts["description"], str)
