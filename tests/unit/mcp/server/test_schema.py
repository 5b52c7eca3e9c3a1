"""JSON Schema, in words for those who call a tool."""

from __future__ import annotations

from typing import Any

import pytest

from gaia.mcp.server.schema import SchemaUnusable, problems

NOTE: dict[str, Any] = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["title"],
}


def test_what_fits_has_no_problems() -> None:
    assert problems(NOTE, {"title": "a", "tags": ["b"], "more": 1}) == []


def test_problems_say_where_they_are() -> None:
    assert problems(NOTE, {"tags": ["a", 3]}) == [
        "'title' is a required property",
        "tags[1]: 3 is not of type 'string'",
    ]


def test_many_and_long_problems_are_cut() -> None:
    found = problems({"items": {"type": "string"}}, [["x" * 1000]] * 9)
    assert len(found) == 6
    assert found[-1] == "and 4 more"
    assert max(map(len, found)) < 400


def test_a_draft_that_the_schema_names_is_the_one_used() -> None:
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}}
    assert problems(draft_7, {"a": 1})
    assert not problems({"dependencies": {"a": ["b"]}}, {"a": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "#/$defs/missing"},
    ],
)
def test_a_schema_that_cannot_be_used_is_not_the_callers_fault(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaUnusable):
        problems(schema, {})
