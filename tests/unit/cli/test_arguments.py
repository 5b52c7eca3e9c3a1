"""From typed words to the arguments of a tool."""

import io
import re
from pathlib import Path
from typing import Any

import pytest

from gaia.cli import arguments
from gaia.cli.terminal import USAGE, CommandFailed
from tests.unit.cli.fixture_types import Json


def resolve(schema: Json, *words: str) -> Json:
    parsed = arguments.parse(list(words))
    assert isinstance(parsed, arguments.Assignments)
    return parsed.resolve(schema)


def typed(**properties: Any) -> Json:
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
        ("1e999", {"type": "number"}, "1e999"),
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


def test_a_parameter_may_stand_behind_a_reference_or_be_unknown_and_one_object_is_taken_as_it_is() -> None:
    schema = {"$defs": {"Zone": {"type": "string"}}, **typed(zone={"$ref": "#/$defs/Zone"})}
    assert resolve(schema, "zone=1", "a=1", "b=x", "to=@@ann") == {"zone": "1", "a": 1, "b": "x", "to": "@ann"}
    assert arguments.parse(['{"a": "1", "b": [2]}']) == {"a": "1", "b": [2]}
    assert arguments.parse([]) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{"], "line 1, column 2"),
        (['{"a": NaN}'], "NaN"),
        (['{"a": 1e999}'], "1e999"),
        (["word"], "neither key=value nor a JSON object"),
        (["=value"], "neither key=value nor a JSON object"),
        (["a=1", "a=2"], "given twice"),
    ],
)
def test_words_that_are_no_arguments_are_a_usage_error(words: list[str], message: str) -> None:
    with pytest.raises(CommandFailed, match=message) as caught:
        arguments.parse(words)
    assert caught.value.exit_code == USAGE


class TestFiles:
    @pytest.mark.parametrize("word", ["-", "@-", "@arguments.json"])
    def test_a_file_or_standard_input_has_the_object(
        self, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "arguments.json").write_text('\ufeff{"a": "ü"}', encoding="utf-8")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"a": "\xc3\xbc"}')))
        assert arguments.parse([word]) == {"a": "ü"}

    def test_a_value_may_be_the_text_of_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "note.md").write_text("# One\ntwo\n")
        schema = typed(text={"type": "string"}, count={"type": "integer"})
        (tmp_path / "count").write_text("5\n")
        given = resolve(schema, f"text=@{tmp_path / 'note.md'}", f"count=@{tmp_path / 'count'}")
        assert given == {"text": "# One\ntwo\n", "count": 5}

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"[1]", "are JSON, but not an object"),
            (b"{", "are not valid JSON"),
            (b'{"a": NaN}', "are not usable JSON"),
            (b"\xff", "is no UTF-8 text"),
            (None, "cannot be read: No such file or directory"),
        ],
    )
    def test_what_cannot_be_used_names_the_file(self, content: bytes | None, said: str, tmp_path: Path) -> None:
        file = tmp_path / "arguments.json"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(CommandFailed, match=re.escape(said)) as failure:
            arguments.parse([f"@{file}"])
        assert str(file) in failure.value.message
        assert failure.value.exit_code == USAGE

    def test_a_missing_file_of_a_value_says_how_to_write_the_sign(self) -> None:
        with pytest.raises(CommandFailed, match="write to=@@ann for a value that begins with @"):
            arguments.parse(["to=@ann"])

    def test_a_person_is_told_that_the_text_is_waited_for(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        typed_text = io.TextIOWrapper(io.BytesIO(b"{}"))
        monkeypatch.setattr(typed_text, "isatty", lambda: True)
        monkeypatch.setattr("sys.stdin", typed_text)
        assert arguments.parse(["-"]) == {}
        assert "Ctrl-D" in capsys.readouterr().err
