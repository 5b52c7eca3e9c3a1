"""Comments and trailing commas are read over; everything else is JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.cli.importers import loads_with_comments

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1} // the end', {"a": 1}),
        ('// first\n{"a": /* inside */ 1}', {"a": 1}),
        ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}),
        ('{"a": 1, // why\n /* more */ }', {"a": 1}),
        ("[1, /* , ] */ 2]", [1, 2]),
    ],
)
def test_comments_and_trailing_commas_are_read_over(text: str, value: object) -> None:
    assert loads_with_comments(text) == value


@pytest.mark.parametrize(
    "string", ["https://example.org", "/* no comment */", "a,}", "a,]", 'quoted \\" // more', "back\\slash\\\\"]
)
def test_strings_are_not_touched(string: str) -> None:
    assert loads_with_comments(json.dumps({"a": [string]})) == {"a": [string]}


@given(VALUES)
def test_plain_json_reads_as_it_does_elsewhere(value: object) -> None:
    assert loads_with_comments(json.dumps(value)) == value
    assert loads_with_comments(json.dumps(value, indent=2, ensure_ascii=False)) == value


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{\n  // fine\n  "a" 1\n}', 3, 7),
        ('{\n /* two\n lines */ "a": ,"b": 1}', 3, 16),
        ('{"a": "open // }', 1, 7),
        ("[1,,2]", 1, 4),
        ("{} {}", 1, 4),
    ],
)
def test_a_mistake_is_reported_where_it_stands(text: str, line: int, column: int) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        loads_with_comments(text)

    assert (caught.value.lineno, caught.value.colno) == (line, column)
