"""When a file has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaia.mcp.gateway.operations.reloader import FileWatch


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "a.json"
    file.write_text("{}")
    return file


def test_a_change_counts_once_and_only_when_it_stays(file: Path) -> None:
    watch = FileWatch(lambda: [file])
    assert [watch.look(), watch.look()] == [False, False]
    file.write_text("{ }")
    assert watch.look() is False
    file.write_text("{  }")
    assert watch.look() is False
    assert [watch.look(), watch.look()] == [True, False]


def test_a_file_that_appears_vanishes_or_is_replaced_has_changed(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "b.json"
    watch = FileWatch(lambda: [file, other])
    other.write_text("{}")
    assert [watch.look(), watch.look()] == [False, True]
    other.replace(file)
    assert [watch.look(), watch.look()] == [False, True]
    file.unlink()
    assert [watch.look(), watch.look()] == [False, True]


def test_what_was_taken_is_no_change(file: Path) -> None:
    watch = FileWatch(lambda: [file])
    file.write_text("{ }")
    watch.taken()
    assert [watch.look(), watch.look()] == [False, False]
