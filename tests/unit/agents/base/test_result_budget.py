from __future__ import annotations

import gc
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.agents.base.result_budget import ResultBudget, text_of_result

NOTE = re.compile(r"\n\n\[… (\d+) of (\d+) bytes left out; the full text is in (.+) …\]\n\n", re.DOTALL)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is", "as it is"),
        ({"ä": [1, None]}, '{"ä": [1, null]}'),
        (None, "null"),
        (Path("/a"), '"/a"'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
    ],
)
def test_a_result_is_told_as_text_or_json(result: Any, text: str) -> None:
    assert text_of_result(result) == text


def test_a_result_that_contains_itself_is_told_somehow() -> None:
    result: list[Any] = []
    result.append(result)
    assert text_of_result(result) == "[[...]]"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), st.integers(1, 100))
def test_head_and_tail_are_what_the_text_begins_and_ends_with_and_the_file_has_all_of_it(text: str, limit: int) -> None:
    fitted = ResultBudget(limit).fit(text, "t")
    size = len(text.encode())
    if size <= limit:
        assert fitted == text
        return
    head, omitted, total, path, tail = NOTE.split(fitted)[:5] if NOTE.search(fitted) else pytest.fail(fitted)
    assert (int(omitted), int(total)) == (size - limit, size)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head.encode()) + len(tail.encode()) <= limit
    assert "gaia-results-" in path


def test_files_are_private_and_go_with_the_budget() -> None:
    budget = ResultBudget(10)
    match = NOTE.search(budget.fit("x" * 100, "../../etc/passwd"))
    assert match is not None
    file = Path(match[3])
    assert file.read_text() == "x" * 100
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert file.name.startswith("______etc_passwd-")
    del budget
    gc.collect()
    assert not file.parent.exists()


def test_files_in_a_directory_of_ones_own_stay(tmp_path: Path) -> None:
    budget = ResultBudget(10, tmp_path / "deep" / "down")
    budget.fit("x" * 100, "t")
    budget.fit("y" * 100, "t")
    del budget
    gc.collect()
    assert sorted(file.read_text()[0] for file in (tmp_path / "deep" / "down").iterdir()) == ["x", "y"]


def test_a_text_that_cannot_be_saved_is_shortened_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    fitted = ResultBudget(10, tmp_path / "file").fit("x" * 100, "t")
    assert "could not be saved" in fitted
    assert fitted.startswith("xxxxxx\n")


def test_lone_surrogates_become_question_marks() -> None:
    assert ResultBudget(10).fit(json.loads('"a\\ud800"'), "t") == "a?"


def test_a_budget_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="positive"):
        ResultBudget(0)
