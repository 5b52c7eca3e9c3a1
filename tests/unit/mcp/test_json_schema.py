"""JSON Schema: what is wrong with a value, and schemas that must not hurt."""

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp import json_schema
from gaia.mcp.json_schema import JsonSchema, SchemaUnusable, problems_by_own_schema, steps_to_match

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2}, "age": {"$ref": "#/$defs/age"}},
    "required": ["name"],
    "$defs": {"age": {"type": "integer"}},
}
DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def doubling(levels: int, kind: str = "string") -> dict[str, Any]:
    """A small schema whose evaluation takes two to the power of `levels` steps."""
    definitions: dict[str, Any] = {
        f"level{n}": {"allOf": [{"$ref": f"#/$defs/level{n + 1}"}, {"$ref": f"#/$defs/level{n + 1}"}]}
        for n in range(levels)
    }
    return {"$defs": {**definitions, f"level{levels}": {"type": kind}}, "$ref": "#/$defs/level0"}


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
            part["$schema"] = DRAFT_2020_12
        with pytest.raises(SchemaUnusable, match="too long"):
            JsonSchema(schema).problems("text")

    @pytest.mark.parametrize(
        "schema",
        [
            # Values of keywords that are data, and that a reference makes a schema.
            {"default": {"$schema": DRAFT_2020_12, "$ref": "#/$defs/level0"}, "$ref": "#/default"},
            # The dialect's own schema refers to what its user calls `meta`.
            {"$dynamicAnchor": "meta", "if": {"required": ["properties"]}, "then": {"$ref": DRAFT_2020_12}},
        ],
    )
    def test_neither_does_a_reference_to_a_dialect(
        self, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(json_schema, "_MAX_STEPS", 10_000)
        own = {"$id": "http://example.com/own", "else": {"$ref": "#/$defs/level0"}, **doubling(14, "object")}
        del own["$ref"]
        with pytest.raises(SchemaUnusable, match="too long"):
            JsonSchema({**own, **schema}).problems({"properties": {"a": {}}})

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


NOTE: dict[str, Any] = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["title"],
}


class TestOwnSchemas:
    def test_what_fits_has_no_problems(self) -> None:
        assert problems_by_own_schema(NOTE, {"title": "a", "tags": ["b"], "more": 1}) == []

    def test_problems_say_where_they_are(self) -> None:
        assert problems_by_own_schema(NOTE, {"tags": ["a", 3]}) == [
            "'title' is a required property",
            "tags[1]: 3 is not of type 'string'",
        ]

    def test_many_and_long_problems_are_cut(self) -> None:
        found = problems_by_own_schema({"items": {"type": "string"}}, [["x" * 1000]] * 9)
        assert len(found) == 6
        assert found[-1] == "and 4 more"
        assert max(map(len, found)) < 400

    def test_a_draft_that_the_schema_names_is_the_one_used(self) -> None:
        draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}}
        assert problems_by_own_schema(draft_7, {"a": 1})
        assert not problems_by_own_schema({"dependencies": {"a": ["b"]}}, {"a": 1})

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "nonsense"},
            {"$ref": "http://127.0.0.1:9/schema.json"},
            {"$ref": "#/$defs/missing"},
        ],
    )
    def test_a_schema_that_cannot_be_used_is_not_the_callers_fault(self, schema: dict[str, Any]) -> None:
        with pytest.raises(SchemaUnusable):
            problems_by_own_schema(schema, {})

    def test_they_may_take_as_long_as_the_application_wants(self) -> None:
        schema = {"items": {"pattern": "^(a+)+$"}}
        assert problems_by_own_schema(schema, ["aaa"]) == []
        with pytest.raises(SchemaUnusable):
            JsonSchema(schema).problems(["aaa"])

    def test_they_may_refer_to_the_dialects(self) -> None:
        assert problems_by_own_schema({"$ref": DRAFT_2020_12}, {"type": "nonsense"})

    def test_their_formats_are_annotations(self) -> None:
        assert problems_by_own_schema({"format": "email"}, "nobody") == []


ENDLESS = [
    "^(a+)+$", "((a+))+b", "(a|a)*b", "(a|aa)+$", "(?:a?){40}a{40}", "(.*a){12}", "(?P<x>a*)*b", "(x(a+)?)*y",
    "([a-z]+.)+[A-Z]", "(\\d+,?)+$", "(a{1,9}){1,9}b", "((a*)|b)*c", "((ab?)c)*",
]  # fmt: skip

HARMLESS = [
    r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?)?Z?$", r"^[a-z0-9-]+$", r"^(\d{3}){2}$", r"[(+*]+", r"\(\+\)*", "(ab)+",
    r"^[\w.+-]+@[\w-]+\.[\w.-]+$", r"^#?[0-9a-fA-F]{6}$", "^(GET|POST)$", "[^]]+", "[]+*]+", "",
]  # fmt: skip


@pytest.mark.parametrize("pattern", ENDLESS)
def test_what_repeats_something_that_varies_has_no_bound(pattern: str) -> None:
    assert steps_to_match(pattern, 10) is None


@pytest.mark.parametrize("pattern", HARMLESS)
def test_what_real_schemas_have_is_affordable(pattern: str) -> None:
    steps = steps_to_match(pattern, 40)
    assert steps is not None
    assert steps < 20_000_000


@pytest.mark.parametrize(
    ("pattern", "length", "least"),
    [
        ("a*a*a*a*b", 1000, 10**15),
        ("a?" * 20 + "a" * 20, 20, 10**6),
        ("(){1000000}", 1, 10**6),
        ("(((){1000}){1000}){1000}", 1, 10**9),
        (r"(a)\1*\1*b", 100, 10**6),
    ],
)
def test_many_ways_to_split_a_text_add_up(pattern: str, length: int, least: int) -> None:
    steps = steps_to_match(pattern, length)
    assert steps is not None
    assert steps >= least


@pytest.mark.parametrize("pattern", [*ENDLESS, "a*a*a*a*a*b", "a?" * 30 + "a" * 30])
def test_a_schema_with_such_a_pattern_says_nothing_and_takes_no_time(pattern: str) -> None:
    began = time.monotonic()
    for schema, value in (
        ({"type": "string", "pattern": pattern}, "a" * 4000 + "!"),
        ({"patternProperties": {pattern: {}}, "additionalProperties": False}, {"a" * 4000 + "!": 1}),
    ):
        with pytest.raises(SchemaUnusable):
            JsonSchema(schema).problems(value)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("pattern", ["([", r"^\p{L}+$", "(?<name>a)", "*"])
def test_what_python_does_not_understand_is_no_crash(pattern: str) -> None:
    with pytest.raises(SchemaUnusable, match="pattern"):
        JsonSchema({"pattern": pattern}).problems("text")


def test_ordinary_patterns_are_checked() -> None:
    schema = JsonSchema({"type": "string", "pattern": r"^\d{4}-\d{2}$"})
    assert schema.problems("2026-11") == []
    assert schema.problems("today")


# Of sets that a later Python may read differently: of no interest here.
@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@given(st.text("a()|*+?{},12\\[]^b", max_size=14))
def test_whatever_is_said_to_be_affordable_is(pattern: str) -> None:
    text = "a" * 24
    steps = steps_to_match(pattern, len(text))
    if steps is None or steps > 20_000_000:
        return
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError):
        return
    began = time.process_time()
    compiled.search(text)
    assert time.process_time() - began < 10
