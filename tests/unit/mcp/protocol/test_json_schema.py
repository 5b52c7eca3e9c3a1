"""JSON Schema: what is wrong with a value, and schemas that must not hurt."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaia.mcp.protocol import json_schema
from gaia.mcp.protocol.json_schema import JsonSchema, SchemaUnusable, problems_by_own_schema

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2}, "age": {"$ref": "#/$defs/age"}},
    "required": ["name"],
    "$defs": {"age": {"type": "integer"}},
}
DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.fixture(autouse=True, scope="module")
def no_deadline() -> Iterator[None]:
    """A busy machine must not make a check end before its limit of work does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_schema, "_MAX_SECONDS", math.inf)
        yield


def doubling(levels: int, kind: str = "string") -> dict[str, Any]:
    """A small schema whose evaluation takes two to the power of `levels` steps."""
    definitions: dict[str, Any] = {
        f"level{n}": {"allOf": [{"$ref": f"#/$defs/level{n + 1}"}, {"$ref": f"#/$defs/level{n + 1}"}]}
        for n in range(levels)
    }
    return {"$defs": {**definitions, f"level{levels}": {"type": kind}}, "$ref": "#/$defs/level0"}


class TestProblems:
    @pytest.mark.parametrize(
        ("value", "problems"),
        [
            ({"name": "Ann", "age": 5}, []),
            ({}, ["'name' is a required property"]),
            ({"name": "A"}, ["name: 'A' is too short"]),
            ({"name": "Ann", "age": "5"}, ["age: '5' is not of type 'integer'"]),
            (None, ["None is not of type 'object'"]),
        ],
    )
    def test_they_say_where_and_what(self, value: Any, problems: list[str]) -> None:
        assert JsonSchema(PERSON).problems(value) == problems

    def test_they_stay_readable_however_many_there_are(self) -> None:
        problems = JsonSchema({"items": {"type": "integer"}}).problems(["long " * 1000] * 1000)
        assert len(problems) == 5
        assert all(len(problem) < 400 for problem in problems)

    def test_any_json_value_can_be_checked_and_formats_count(self) -> None:
        assert JsonSchema(True).problems([1, None]) == []
        assert JsonSchema({"type": "array", "uniqueItems": True}).problems([1, 1]) == ["[1, 1] has non-unique elements"]
        assert JsonSchema({"format": "email"}).problems("nobody") == ["'nobody' is not a 'email'"]


class TestDialects:
    def test_the_newest_is_spoken_where_none_is_declared(self) -> None:
        schema = {"type": "array", "prefixItems": [{"type": "string"}]}
        assert JsonSchema(schema).problems([1]) == ["[0]: 1 is not of type 'string'"]
        assert JsonSchema({"$schema": DRAFT_7, **schema}).problems([1]) == []
        with pytest.raises(SchemaUnusable, match=r"'http://example.com/own' is not supported"):
            JsonSchema({"$schema": "http://example.com/own", **schema})


class TestUnusableSchemas:
    @pytest.mark.parametrize("schema", [None, 1, "text", [], {"type": "nonsense"}, {"properties": 3}])
    def test_what_is_no_schema_is_refused(self, schema: Any) -> None:
        with pytest.raises(SchemaUnusable):
            JsonSchema(schema)

    @pytest.mark.parametrize("reference", ["http://127.0.0.1:9/schema", "other.json", "#/$defs/nothing", "file:///etc"])
    def test_a_reference_to_elsewhere_is_never_followed(self, reference: str) -> None:
        with pytest.raises(SchemaUnusable, match="nothing is fetched"):
            JsonSchema({"$ref": reference}).problems(1)

    @pytest.mark.parametrize("declared", [{}, {"$schema": DRAFT_2020_12}], ids=["once", "again in each part"])
    def test_a_schema_that_takes_for_ever_is_given_up_wherever_the_dialect_is_declared(
        self, declared: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        schema = doubling(60)
        for part in schema["$defs"].values():
            part.update(declared)
        ready = JsonSchema(schema)
        monkeypatch.setattr(json_schema, "_MAX_WORK", 100_000)
        with pytest.raises(SchemaUnusable, match="too long"):
            ready.problems("text")

    @pytest.mark.parametrize(
        "schema",
        [
            # Values of keywords that are data, and that a reference makes a schema.
            {"default": {"$schema": DRAFT_2020_12, "$ref": "#/$defs/level0"}, "$ref": "#/default"},
            # The dialect's own schema refers to what its user calls `meta`.
            {"$dynamicAnchor": "meta", "if": {"required": ["properties"]}, "then": {"$ref": DRAFT_2020_12}},
        ],
    )
    def test_so_is_one_that_refers_to_a_dialect(self, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        own = {"$id": "http://example.com/own", "else": {"$ref": "#/$defs/level0"}, **doubling(14, "object")}
        del own["$ref"]
        ready = JsonSchema({**own, **schema})
        monkeypatch.setattr(json_schema, "_MAX_WORK", 100_000)
        with pytest.raises(SchemaUnusable, match="too long"):
            ready.problems({"properties": {"a": {}}})

    @pytest.mark.parametrize("schema", [{"type": "object", "$ref": "#"}, {"allOf": [{"$ref": "#"}]}], ids=str)
    def test_one_that_refers_to_itself_is_given_up_wherever_the_recursion_reaches_its_limit(
        self, schema: dict[str, Any]
    ) -> None:
        # At some of these places that is in the part of jsonschema that is written in Rust.
        ready = JsonSchema(schema)

        def check_below(frames: int) -> None:
            if frames:
                check_below(frames - 1)
                return
            with pytest.raises(SchemaUnusable, match="too deeply nested"):
                ready.problems({})

        for frames in range(30):
            check_below(frames)

    def test_a_huge_or_deep_schema_is_refused(self) -> None:
        with pytest.raises(SchemaUnusable, match="more than 20000 parts"):
            JsonSchema({"anyOf": [{"type": "string"}] * 30_000})
        schema: dict[str, Any] = {}
        for _ in range(5000):
            schema = {"not": schema}
        with pytest.raises(SchemaUnusable, match="within one another"):
            JsonSchema(schema)


class TestOwnSchemas:
    def test_problems_say_where_they_are(self) -> None:
        note = {
            "properties": {"title": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
            "required": ["title"],
        }
        assert problems_by_own_schema(note, {"title": "a", "tags": ["b"], "more": 1}) == []
        assert problems_by_own_schema(note, {"tags": ["a", 3]}) == [
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

    def test_they_may_take_as_long_as_the_application_wants(self, monkeypatch: pytest.MonkeyPatch) -> None:
        schema: dict[str, Any] = {"uniqueItems": True}
        value = [{"n": n} for n in range(200)]
        ready = JsonSchema(schema)
        monkeypatch.setattr(json_schema, "_MAX_WORK", 100_000)
        with pytest.raises(SchemaUnusable, match="too long"):
            ready.problems(value)
        assert problems_by_own_schema(schema, value) == []

    def test_they_may_refer_to_the_dialects_and_their_formats_are_annotations(self) -> None:
        assert problems_by_own_schema({"$ref": DRAFT_2020_12}, {"type": "nonsense"})
        assert problems_by_own_schema({"format": "email"}, "nobody") == []


# Of those with alternatives and repetitions inside of repetitions, Python's matcher needs exponential time for most.
EXPONENTIAL = [
    "^(a+)+$", "(?x)^(a+) +$", "((a+))+b", "(a|a)*b", "(a|aa)+$", "(?:a?){40}a{40}$", "(.*a){12}b", "(?P<x>a*)*b",
    "(x?(a+)?)*y", "([a-z]+.)+[A-Z]", "(\\w+,?)+$", "(a{1,9}){1,9}b", "((a*)|b)*c", "((ab?)a)*c", "a*a*a*a*a*b",
]  # fmt: skip


class TestPatterns:
    @pytest.mark.parametrize("pattern", EXPONENTIAL)
    def test_none_takes_exponential_time(self, pattern: str) -> None:
        text = "a" * 4000 + "!"
        assert len(JsonSchema({"pattern": pattern}).problems(text)) == 1
        assert JsonSchema({"patternProperties": {pattern: False}}).problems({text: 1}) == []
        assert JsonSchema({"patternProperties": {pattern: {}}, "additionalProperties": False}).problems({text: 1})

    @pytest.mark.parametrize(
        ("pattern", "fits", "does_not"),
        [
            (r"^\d{4}-\d{2}-\d{2}$", "2026-11-22", "today"),
            ("^[a-z]+(-[a-z]+)?$", "one-two", "one-"),
            (r"^[\w.+-]+@[\w-]+\.[\w.-]+$", "a@example.com", "a@b"),
            ("^.{1,255}$", "text", ""),
            # As ECMA 262 has it, and not Python.
            (r"^\p{L}+$", "straße", "3"),
            (r"^\d$", "3", "\N{ARABIC-INDIC DIGIT THREE}"),
            (r"^a$", "a", "a\n"),
            (r"^\u0041\cA$", "A\x01", "A"),
            ("(?<name>a)", "a", "b"),
            # Anywhere in the text.
            ("[0-9]{2}", "b12", "twelve"),
        ],
    )
    def test_ordinary_ones_work(self, pattern: str, fits: str, does_not: str) -> None:
        schema = JsonSchema({"pattern": pattern}, on_skipped=pytest.fail)
        assert schema.problems(fits) == []
        assert schema.problems(does_not) == [f"{does_not!r} does not match {pattern!r}"]

    def test_they_decide_about_members(self) -> None:
        schema = JsonSchema({"patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": False})
        assert schema.problems({"x_a": 1}) == []
        assert schema.problems({"x_a": "1"}) == ["x_a: '1' is not of type 'integer'"]
        assert schema.problems({"y": 1}) == ["Additional properties are not allowed ('y' was unexpected)"]
        others = JsonSchema({"patternProperties": {"^x_": {}}, "additionalProperties": {"type": "integer"}})
        assert others.problems({"x_a": "1", "y": "2"}) == ["y: '2' is not of type 'integer'"]

    @pytest.mark.parametrize(
        "pattern", ["(?=a)a", r"(a)\1", "^(a+)(?#)+$", "([", "*", "(((a{99}){99}){99})", "a" * 4001, r"\W" * 101]
    )
    def test_what_cannot_be_matched_in_linear_time_counts_as_fitting_and_this_is_told_once(self, pattern: str) -> None:
        told: list[str] = []
        schema = JsonSchema(
            {"pattern": pattern, "minLength": 3, "patternProperties": {pattern: False}, "additionalProperties": False},
            on_skipped=told.append,
        )
        assert schema.problems("text") == []
        assert schema.problems({"text": 1}) == []
        assert schema.problems("t") == ["'t' is too short"]
        (what,) = told
        assert what.startswith("the pattern ")
        assert len(what) < 200

    @pytest.mark.parametrize("pattern", [r"\S?" * 1300, r"[^\S]" * 700, r"\S?" * 100, "a?" * 2000, r"\p{L}" * 600])
    def test_one_is_made_ready_in_a_short_time(self, pattern: str) -> None:
        begin = time.thread_time()
        JsonSchema({"pattern": pattern}).problems("text")
        assert time.thread_time() - begin < 2, "each attempt at a size took seconds, during which no other thread ran"

    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            ({"not": {"pattern": "(?=a)"}}, "b"),
            ({"oneOf": [{"pattern": "(?=a)"}, {"minLength": 1}]}, "b"),
            ({"if": {"pattern": "(?=a)"}, "then": False}, "b"),
            ({"contains": {"pattern": "(?=a)"}, "maxContains": 0}, ["b"]),
            ({"not": {"properties": {"a": {"pattern": "(?=a)"}}}}, {"a": "b"}),
        ],
    )
    def test_no_value_is_wrong_because_a_part_was_not_checked(self, schema: dict[str, Any], value: Any) -> None:
        with pytest.raises(SchemaUnusable, match="cannot be checked"):
            JsonSchema(schema).problems(value)

    def test_texts_and_patterns_together_are_bounded(self) -> None:
        with pytest.raises(SchemaUnusable, match="too long"):
            JsonSchema({"pattern": "[ab]*a[ab]{3000}c"}).problems("ab" * 100_000)

    def test_unevaluated_members_are_not_looked_for(self) -> None:
        """What jsonschema does for it doubles with each reference."""
        both = {"dependentSchemas": {"a": {"$ref": "#/$defs/next"}, "b": {"$ref": "#/$defs/next"}}}
        told: list[str] = []
        schema = {"unevaluatedProperties": False, "$defs": {"next": {"required": ["c"]}}, **both}
        assert JsonSchema(schema, on_skipped=told.append).problems({"a": 1, "b": 2, "c": 3}) == []
        assert told == ["unevaluatedItems and unevaluatedProperties"]


LARGE = [{f"k{n}": "v" * 20 for n in range(50)} for _ in range(150)]
DRAFT_3 = "http://json-schema.org/draft-03/schema#"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"


class TestWork:
    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            pytest.param({"items": {"const": LARGE}}, [[*map(dict, LARGE)]] * 20, id="const"),
            pytest.param({"items": {"enum": [*range(3000)]}}, [2999] * 3000, id="enum"),
            pytest.param({"anyOf": [{"type": "string"}] * 1000}, LARGE, id="anyOf"),
            pytest.param({"anyOf": [{"items": {"anyOf": [False] * 200}}] * 3}, [1] * 900, id="anyOf false"),
            pytest.param(
                {"patternProperties": {f"k{n}x": {} for n in range(500)}}, {f"k{n}": 1 for n in range(999)}, id="p"
            ),
            pytest.param({"uniqueItems": True}, [[["x" * 50] * 40, n] for n in range(300)], id="uniqueItems"),
            pytest.param({"contains": {"contains": {}, "minContains": 999}}, [[1] * 99] * 999, id="contains"),
            pytest.param(
                {"anyOf": [{"propertyNames": False}] * 99}, {f"{n}": 1 for n in range(999)}, id="propertyNames"
            ),
            pytest.param({"items": {"anyOf": [{"required": [f"{n}" for n in range(999)]}]}}, [{}] * 999, id="required"),
            pytest.param({"items": {"allOf": [{}] * 999}}, [1] * 999, id="empty schemas"),
            pytest.param({"$defs": {"a": {"$anchor": "a"}}, "items": {"$ref": "#a"}}, [1] * 99_999, id="anchors"),
            pytest.param({"type": "object"}, {"a": [[]] * 99_999}, id="parts"),
            pytest.param({"pattern": "a"}, "a" * 99_000_000, id="text"),
            pytest.param(
                {"$schema": DRAFT_3, "items": {"disallow": [{"minimum": n} for n in range(2, 99)]}},
                [1] * 999,
                id="disallow",
            ),
        ],
    )
    def test_a_check_is_given_up(self, schema: dict[str, Any], value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        ready = JsonSchema(schema)
        monkeypatch.setattr(json_schema, "_MAX_WORK", 300_000)
        with pytest.raises(SchemaUnusable, match="too long"):
            ready.problems(value)

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": [{"a": n} for n in range(3000)]},
            {"$schema": DRAFT_4, "enum": [[["x"], n, {}] for n in range(2000)]},
            {"properties": {f"{n}": {"type": "string"} for n in range(3000)}},
        ],
    )
    def test_so_is_making_a_schema_ready(self, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_schema, "_MAX_WORK", 600_000)
        with pytest.raises(SchemaUnusable, match="too long"):
            JsonSchema(schema)

    def test_time_ends_it_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        schema = JsonSchema({"type": "string"})
        monkeypatch.setattr(json_schema, "_MAX_SECONDS", -1.0)
        with pytest.raises(SchemaUnusable, match="too long"):
            schema.problems([])

    @pytest.mark.parametrize("keyword", ["$id", "id", "$ref", "$anchor"])
    def test_long_references_are_refused(self, keyword: str) -> None:
        with pytest.raises(SchemaUnusable, match="1000 characters"):
            JsonSchema({keyword: "http://x/" + "a/" * 1000})

    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            # Data that a reference makes a schema was not checked to be one.
            ({"$ref": "#/default", "default": {"properties": 5}}, {"a": 1}),
            ({"$ref": "#/default", "default": {"minLength": "x"}}, "a"),
            ({"$ref": "#/default", "default": {"type": "nonsense"}}, "a"),
            ({"$ref": "#/default", "default": [1]}, "a"),
            ({"$schema": DRAFT_3, "type": "nonsense"}, 1),
            # Values of an application that are not JSON.
            ({"multipleOf": 0.5}, math.nan),
            pytest.param({"type": "string"}, 10**5000, id="long number"),
            ({"pattern": "a"}, "\ud800"),
        ],
    )
    def test_whatever_else_goes_wrong_says_nothing_about_the_value(self, schema: dict[str, Any], value: Any) -> None:
        with pytest.raises(SchemaUnusable):
            JsonSchema(schema).problems(value)

    def test_problems_with_large_values_are_short(self) -> None:
        value = {"k" * 9_000_000: LARGE}
        schema = {"additionalProperties": {"anyOf": [{"type": "string"}, {"const": "x" * 999}, {"items": False}]}}
        (problem,) = JsonSchema(schema).problems(value)
        assert problem.endswith("[… 150 items …] is not valid under any of the given schemas")
        assert len(problem) < 700
        (problem,) = JsonSchema({"type": "string"}).problems({"a": LARGE})
        assert problem == "{… 1 members …} is not of type 'string'"

    def test_what_real_servers_return_is_checked(self) -> None:
        row = {"properties": {f"c{n}": {"type": "string"} for n in range(10)}, "required": ["c1"], "type": "object"}
        rows = [{f"c{n}": "text" for n in range(10)} for _ in range(1000)]
        schema = JsonSchema({"type": "array", "items": row, "uniqueItems": False})
        assert schema.problems(rows) == []
        assert schema.problems([*rows, {}]) == ["[1000]: 'c1' is a required property"]


def values() -> st.SearchStrategy[Any]:
    plain = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.just(1.5), st.sampled_from(["a", "b", "a" * 300]))

    def larger(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        many = st.sampled_from([1, 30, 300])
        return st.one_of(
            st.builds(lambda part, times: [part] * times, parts, many),
            st.lists(parts, max_size=3),
            st.dictionaries(st.sampled_from("abc"), parts),
            st.builds(lambda part, times: {f"a{n}": part for n in range(times)}, parts, many),
        )

    return st.recursive(plain, larger, max_leaves=6)


def schemas() -> st.SearchStrategy[Any]:
    patterns = st.sampled_from([*EXPONENTIAL, "a", "(?=a)"])
    plain = st.one_of(
        st.booleans(),
        st.just({"$ref": "#"}),
        st.just({"$ref": "#/$defs/d"}),
        st.fixed_dictionaries({"type": st.sampled_from(["array", "object", "string", "number"])}),
        st.fixed_dictionaries({"const": values()}),
        st.fixed_dictionaries({"enum": st.builds(lambda value: [value] * 50, values())}),
        st.fixed_dictionaries({"pattern": patterns}),
        st.just({"uniqueItems": True}),
        st.just({"required": [f"r{n}" for n in range(100)]}),
        st.just({"format": "date"}),
    )

    def larger(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        lists = st.builds(lambda part, times: [part] * times, parts, st.sampled_from([1, 2, 40]))
        named = st.dictionaries(st.sampled_from("abc"), parts, min_size=1)
        return st.one_of(
            st.fixed_dictionaries({}, optional=dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), lists)),
            st.fixed_dictionaries(
                {},
                optional=dict.fromkeys(("not", "if", "then", "items", "contains", "propertyNames"), parts)
                | dict.fromkeys(("additionalProperties", "unevaluatedProperties", "unevaluatedItems"), parts)
                | dict.fromkeys(("properties", "dependentSchemas", "$defs"), named)
                | {"patternProperties": st.dictionaries(patterns, parts)},
            ),
        )

    return st.recursive(plain, larger, max_leaves=8)


def calls_of(function: Callable[[], object]) -> int:
    """How many functions are called, those in C too."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls


@settings(max_examples=60, deadline=None)
@given(schemas(), schemas(), values())
def test_any_check_does_a_bounded_amount_of_work(schema: Any, definition: Any, value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(schema, dict):
            schema = {**schema, "$defs": {"d": definition}}
        try:
            ready = JsonSchema(schema)
        except SchemaUnusable:
            return
        patch.setattr(json_schema, "_MAX_WORK", 20_000)

        def problems() -> None:
            with suppress(SchemaUnusable):
                assert all(len(problem) < 700 for problem in ready.problems(value))

        assert calls_of(problems) < 5 * 20_000
