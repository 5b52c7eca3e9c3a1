"""Regular expressions of others: those that could take for ever are told from those that cannot."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.client.protocol.json_schema import JsonSchema, SchemaUnusable
from gaia.mcp.client.protocol.patterns import steps_to_match

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
