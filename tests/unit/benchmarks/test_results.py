"""Results of runs as files."""

from pathlib import Path

import pytest

from benchmarks.results import Run, UnusableResults
from tests.unit.benchmarks.runs import against_floor, run_of


def test_are_the_same_after_being_saved(tmp_path: Path) -> None:
    run = run_of(("latency: 64 B: p50", "seconds", against_floor([1.5, 2.0], [1.0, 1.0])))
    run.failures["recovery"] = {"mcp": "no good answer"}
    run.save(tmp_path / "run.json")

    assert Run.load(tmp_path / "run.json") == run


@pytest.mark.parametrize(
    "text", ["", "junk", "[]", '{"rows": 1}', '{"command":"c","date":"d","machine":{},"version":9}']
)
def test_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(text)

    with pytest.raises(UnusableResults, match=r"run\.json"):
        Run.load(file)


def test_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableResults, match="No such file"):
        Run.load(tmp_path / "run.json")


def test_tables_keep_sections_together() -> None:
    run = run_of(("a: one: p50", "seconds", {}), ("b: two: x", "seconds", {}), ("a: one: p99", "seconds", {}))

    assert [(key, len(rows)) for key, rows in run.tables().items()] == [(("a", "one"), 2), (("b", "two"), 1)]
