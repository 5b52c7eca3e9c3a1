"""What people are shown of a change."""

from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.config.trust import difference, text_difference


def test_only_what_differs_is_shown_part_by_part() -> None:
    old = {"name": "pay", "description": "Pays.\nOnce.", "annotations": {"readOnlyHint": True}}
    new = {"name": "pay", "description": "Pays.\nTwice.", "annotations": {"readOnlyHint": True}}
    assert difference(old, new) == ["@ description", " Pays.", "-Once.", "+Twice."]


def test_a_new_tool_is_all_additions() -> None:
    assert difference(None, {"name": "pay"}) == ["@ name", "+pay"]


def test_distant_changes_are_kept_apart() -> None:
    lines = [str(number) for number in range(20)]
    changed = ["first", *lines[1:19], "last"]
    shown = difference({"description": "\n".join(lines)}, {"description": "\n".join(changed)})
    assert shown == ["@ description", "-0", "+first", *(f" {n}" for n in (1, 2, 3)), "  …",
                     *(f" {n}" for n in (16, 17, 18)), "-19", "+last"]  # fmt: skip


def test_parts_of_a_schema_are_compared_line_by_line() -> None:
    old = {"inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}}}
    new = {"inputSchema": {"properties": {"to": {"type": "number"}}, "type": "object"}}
    assert [line for line in difference(old, new) if line[0] in "+-"] == [
        '-      "type": "string"',
        '+      "type": "number"',
    ]


def test_a_key_forges_no_line() -> None:
    assert difference({}, {"a\n+b": 1})[0] == "@ a\\u{000a}+b"


def test_texts_that_are_safe_are_shown_as_they_are() -> None:
    assert text_difference({"a": "x\\u{000a}y\nz"}, {"a": "x\\u{000a}y"}) == ["@ a", " x\\u{000a}y", "-z"]


@given(st.text(), st.text())
def test_no_change_is_invisible(old: str, new: str) -> None:
    shown = difference({"description": old}, {"description": new})
    assert bool(shown) == (old != new)
    assert all(character.isprintable() for line in shown for character in line)
