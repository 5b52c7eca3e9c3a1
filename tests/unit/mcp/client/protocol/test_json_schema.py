"""JSON Schema: what is wrong with a value, and schemas that must not hurt."""

from typing import Any

import pytest

from gaia.mcp.client.protocol import json_schema
from gaia.mcp.client.protocol.json_schema import JsonSchema, SchemaUnusable

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2}, "age": {"$ref": "#/$defs/age"}},
    "required": ["name"],
    "$defs": {"age": {"type": "integer"}},
}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def doubling(levels: int) -> dict[str, Any]:
    """A small schema whose evaluation takes two to the power of `levels` steps."""
    definitions: dict[str, Any] = {
        f"level{n}": {"allOf": [{"$ref": f"#/$defs/level{n + 1}"}, {"$ref": f"#/$defs/level{n + 1}"}]}
        for n in range(levels)
    }
    return {"$defs": {**definitions, f"level{levels}": {"type": "string"}}, "$ref": "#/$defs/level0"}


class TestProblems:
    def test_a_value_that_fits_has_none(self) -> None:
        assert JsonSchema(PERSON).problems({"name": "Ann", "age": 5}) == []

    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            ({}, "'name' is a required property"),
            ({"name": "A"}, "name: 'A' is too short"),
            ({"name": "Ann", "age": "5"}, "age: '5' is not of type 'integer'"),
            (None, "None is not of type 'object'"),
        ],
    )
    def test_they_say_where_and_what(self, value: Any, problem: str) -> None:
        assert JsonSchema(PERSON).problems(value) == [problem]

    def test_they_stay_readable_however_many_there_are(self) -> None:
        problems = JsonSchema({"items": {"type": "integer"}}).problems(["long " * 1000] * 1000)
        assert len(problems) == 5
        assert all(len(problem) < 400 for problem in problems)

    def test_any_json_value_can_be_checked(self) -> None:
        assert JsonSchema(True).problems([1, None]) == []
        assert JsonSchema({"type": "array", "uniqueItems": True}).problems([1, 1]) == ["[1, 1] has non-unique elements"]

    def test_formats_count(self) -> None:
        assert JsonSchema({"format": "email"}).problems("nobody") == ["'nobody' is not a 'email'"]


class TestDialects:
    def test_the_newest_is_spoken_where_none_is_declared(self) -> None:
        schema = {"type": "array", "prefixItems": [{"type": "string"}]}
        assert JsonSchema(schema).problems([1]) == ["[0]: 1 is not of type 'string'"]

    def test_a_declared_one_counts(self) -> None:
        schema = {"$schema": DRAFT_7, "type": "array", "prefixItems": [{"type": "string"}]}
        assert JsonSchema(schema).problems([1]) == []

    def test_one_that_nobody_knows_is_an_error(self) -> None:
        with pytest.raises(SchemaUnusable, match=r"'http://example.com/own' is not supported"):
            JsonSchema({"$schema": "http://example.com/own"})


class TestUnusableSchemas:
    @pytest.mark.parametrize("schema", [None, 1, "text", [], {"type": "nonsense"}, {"properties": 3}, {"pattern": "["}])
    def test_what_is_no_schema_is_refused(self, schema: Any) -> None:
        with pytest.raises(SchemaUnusable):
            JsonSchema(schema)

    @pytest.mark.parametrize("reference", ["http://127.0.0.1:9/schema", "other.json", "#/$defs/nothing", "file:///etc"])
    def test_a_reference_to_elsewhere_is_never_followed(self, reference: str) -> None:
        with pytest.raises(SchemaUnusable, match="nothing is fetched"):
            JsonSchema({"$ref": reference}).problems(1)

    def test_a_schema_that_takes_for_ever_is_given_up(self) -> None:
        with pytest.raises(SchemaUnusable, match="too long"):
            JsonSchema(doubling(60)).problems("text")

    def test_declaring_the_dialect_again_does_not_change_that(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_schema, "_MAX_STEPS", 10_000)
        schema = doubling(60)
        for part in schema["$defs"].values():
            part["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        with pytest.raises(SchemaUnusable, match="too long"):
            JsonSchema(schema).problems("text")

    def test_a_schema_that_refers_to_itself_for_ever_is_given_up(self) -> None:
        with pytest.raises(SchemaUnusable, match="too deeply nested"):
            JsonSchema({"allOf": [{"$ref": "#"}]}).problems(1)

    def test_a_huge_schema_is_refused(self) -> None:
        with pytest.raises(SchemaUnusable, match="more than 20000 parts"):
            JsonSchema({"anyOf": [{"type": "string"}] * 30_000})

    def test_a_deep_schema_is_refused(self) -> None:
        schema: dict[str, Any] = {}
        for _ in range(5000):
            schema = {"not": schema}
        with pytest.raises(SchemaUnusable, match="within one another"):
            JsonSchema(schema)

    def test_a_pattern_that_takes_exponential_time_is_not_tried(self) -> None:
        with pytest.raises(SchemaUnusable, match="repeats something that repeats"):
            JsonSchema({"pattern": "^(a+)+$"}).problems("a" * 60 + "!")

    def test_comparing_everything_with_everything_is_given_up(self) -> None:
        with pytest.raises(SchemaUnusable, match="too long"):
            JsonSchema({"uniqueItems": True}).problems([{"n": n} for n in range(20_000)])

    @pytest.mark.parametrize("pattern", [r"^\d{4}-\d{2}-\d{2}$", "^[a-z]+(-[a-z]+)?$", "(one)(two)"])
    def test_ordinary_patterns_work(self, pattern: str) -> None:
        assert JsonSchema({"pattern": pattern}).problems("?") == [f"'?' does not match {pattern!r}"]
