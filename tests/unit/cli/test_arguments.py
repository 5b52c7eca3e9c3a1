"""From typed words to the arguments of a tool."""

from typing import Any

import pytest

from gaia.cli import arguments
from gaia.cli.command_errors import USAGE, CommandFailed


def resolve(schema: dict[str, Any], *words: str) -> dict[str, Any]:
    parsed = arguments.parse(list(words))
    assert isinstance(parsed, arguments.Assignments)
    return parsed.resolve(schema)


def typed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("5", {"type": "integer"}, 5),
        ("5", {"type": "string"}, "5"),
        ("5", {"type": ["string", "null"]}, "5"),
        ("5", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "5"),
        ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
        ("5", {"enum": ["5", "6"]}, "5"),
        ("true", {"type": "boolean"}, True),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("null", {"type": "null"}, None),
        ("five", {"type": "integer"}, "five"),
        ("NaN", {"type": "number"}, "NaN"),
        ("5", {}, 5),
        ("5", True, 5),
        ("5", {"title": "Anything"}, 5),
        ("UTC", {}, "UTC"),
        ("a=b", {"type": "string"}, "a=b"),
        ("", {"type": "string"}, ""),
    ],
)
def test_a_value_is_json_unless_the_schema_says_string(value: str, schema: Any, expected: object) -> None:
    assert resolve(typed(key=schema), f"key={value}") == {"key": expected}


def test_a_parameter_that_the_schema_does_not_know_is_json_if_it_can_be() -> None:
    assert resolve({}, "a=1", "b=x") == {"a": 1, "b": "x"}


def test_a_parameter_behind_a_reference_is_understood() -> None:
    schema = {"$defs": {"Zone": {"type": "string"}}, **typed(zone={"$ref": "#/$defs/Zone"})}

    assert resolve(schema, "zone=1") == {"zone": "1"}


def test_one_json_object_is_taken_as_it_is() -> None:
    assert arguments.parse(['{"a": "1", "b": [2]}']) == {"a": "1", "b": [2]}


def test_no_words_are_no_arguments() -> None:
    assert arguments.parse([]) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{"], "line 1, column 2"),
        (['{"a": NaN}'], "NaN"),
        (["word"], "neither key=value nor a JSON object"),
        (["=value"], "neither key=value nor a JSON object"),
        (["a=1", "a=2"], "given twice"),
    ],
)
def test_words_that_are_no_arguments_are_a_usage_error(words: list[str], message: str) -> None:
    with pytest.raises(CommandFailed, match=message) as caught:
        arguments.parse(words)

    assert caught.value.exit_code == USAGE
