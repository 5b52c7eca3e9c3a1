"""Patterns of servers: which are made ready, and how they match."""

from __future__ import annotations

import pytest

from gaia.mcp.protocol.json_schema import linear_pattern


@pytest.mark.parametrize(("text", "occurs"), [("b12", True), ("12", True), ("twelve", False)])
def test_it_may_occur_anywhere_in_a_text(text: str, occurs: bool) -> None:
    pattern = linear_pattern("[0-9]{2}")
    assert pattern is not None
    assert pattern[0](text) is occurs


def test_a_pattern_that_makes_others_search_for_ever_is_linear() -> None:
    pattern = linear_pattern("^(a+)+$")
    assert pattern is not None
    assert not pattern[0]("a" * 100_000 + "b")


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("(?=a)b", id="look-ahead"),
        pytest.param(r"(a)\1", id="back-reference"),
        pytest.param("(", id="no pattern"),
        pytest.param("a" * 4001, id="long"),
        pytest.param(r"\W" * 101, id="many classes"),
        pytest.param("((a{1000}){1000}){1000}", id="large when compiled"),
    ],
)
def test_what_cannot_be_matched_in_linear_time_is_none(pattern: str) -> None:
    assert linear_pattern(pattern) is None
