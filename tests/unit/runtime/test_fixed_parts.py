"""Texts of which only some parts are fixed."""

import pytest

from gaia.runtime.fixed_parts import consists_of


@pytest.mark.parametrize(
    ("parts", "text", "expected"),
    [
        (["a", "b"], "ab", True),
        (["a", "b"], "a-b", True),
        (["a", "b"], "b-a", False),
        (["", ""], "anything", True),
        (["ab", "ba"], "aba", False),
        (["a", "b", "c"], "a-b-c", True),
        (["a", "b", "c"], "a-c", False),
        (["a", "x", "y", "c"], "a-y-x-c", False),
        (["a", "bc", "cd"], "a-bcd", False),
        (["a", "", "a"], "a", False),
    ],
)
def test_the_parts_stand_in_their_order_and_do_not_overlap(parts: list[str], text: str, expected: bool) -> None:
    assert consists_of(text, parts) is expected
