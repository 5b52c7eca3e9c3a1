"""The quick check says of every value what the whole check says, or that it cannot say."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gaia.mcp.protocol.json_schema import JsonSchema
from gaia.mcp.protocol.quick_check import quick_check

Json = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([0.0, 1.0, 1.5, 2**53]),
    st.sampled_from(["", "a", "b", "abc"]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])
SIZES = st.integers(0, 3)
BOUNDS = st.sampled_from([-1, 0, 1, 1.5, 2])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "enum": st.lists(SCALARS, min_size=1, max_size=3),
            "const": SCALARS,
            "anyOf": some,
            "allOf": some,
            "oneOf": some,
            "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
            "minimum": BOUNDS,
            "maximum": BOUNDS,
            "exclusiveMinimum": BOUNDS,
            "exclusiveMaximum": BOUNDS,
            "minLength": SIZES,
            "maxLength": SIZES,
            "minItems": SIZES,
            "maxItems": SIZES,
            "minProperties": SIZES,
            "maxProperties": SIZES,
            "format": st.sampled_from(["date-time", "uri"]),
            "title": st.just("T"),
            "x-order": st.just(1),
        },
    )


PARTS = st.recursive(st.just(True) | st.builds(dict), schemas, max_leaves=6)
ROOTS = schemas(PARTS).flatmap(
    lambda root: st.builds(
        lambda one, two: {**root, "$defs": {"one": {"type": "object", "properties": {"a": one}}, "two": two}},
        PARTS,
        st.sampled_from([{"type": "integer"}, {"$ref": "#/$defs/one"}]),
    )
)


@settings(max_examples=120)
@given(schema=ROOTS, value=VALUES)
@example(schema={"enum": [1]}, value=True)
@example(schema={"enum": [False]}, value=0)
@example(schema={"const": 1}, value=1.0)
@example(schema={"type": "integer"}, value=1.0)
@example(schema={"type": "number"}, value=True)
@example(schema={"oneOf": [{"type": "integer"}, {"type": "number"}]}, value=1)
@example(schema={"required": ["a"]}, value=[])
def test_both_checks_give_the_same_verdict(schema: Json, value: Any) -> None:
    whole = JsonSchema(schema)
    assert whole.quick is not None
    assert whole.quick(value) is (whole.problems(value) == [])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "a"},
        {"type": "string", "format": "date"},
        {"not": {}},
        {"$id": "https://example.com/", "type": "object"},
        {"$ref": "#/$defs/a/properties/b", "$defs": {"a": {"properties": {"b": {}}}}},
        {"items": False},
        {"enum": [[1]]},
        {"properties": {"a": {"uniqueItems": True}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/$defs/a",
            "type": "object",
            "$defs": {"a": {}},
        },
        {"prefixItems": [{}], "items": {}},
        False,
    ],
)
def test_a_schema_of_another_kind_has_no_quick_check(schema: Any) -> None:
    assert quick_check(schema, frozenset({"date"})) is None


@pytest.mark.parametrize(
    "dialect", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
)
def test_a_dialect_may_be_declared(dialect: str) -> None:
    quick = JsonSchema({"$schema": dialect, "type": "object", "required": ["a"]}).quick
    assert quick is not None
    assert quick({"a": 1})
    assert not quick({})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"type": "integer"}}, [1] * 100_000),
        ({"items": {"anyOf": [{"const": n} for n in range(500)]}}, [499] * 900),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, 1),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}, [[[[[]]]]] * 5_000),
        ({"enum": ["a"]}, "a" * 50_000_000),
    ],
)
def test_a_large_value_is_left_to_the_whole_check_at_once(schema: Json, value: Any) -> None:
    quick = quick_check(schema, frozenset())
    assert quick is not None
    began = time.thread_time()
    assert not quick(value)
    assert time.thread_time() - began < 0.1


def test_recursive_definitions_are_common() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}, "required": ["n"]}
    quick = JsonSchema({"$ref": "#/$defs/tree", "$defs": {"tree": tree}}).quick
    assert quick is not None
    assert quick({"n": 1, "next": {"n": 2}})
    assert not quick({"n": 1, "next": {}})
