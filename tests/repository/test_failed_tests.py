"""Which environments CI runs a second time."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def main() -> Callable[[Path, Path], int]:
    found: Callable[[Path, Path], int] = runpy.run_path(str(ROOT / ".ci" / "failed_tests.py"))["main"]
    return found


def a_run(folder: Path, **environments: list[str] | None) -> tuple[Path, Path]:
    """The files that tox and pytest leave: the failed tests of each environment, None for one that did not fail."""
    results: dict[str, Any] = {"testenvs": {"skipped": {}}}
    for name, tests in environments.items():
        results["testenvs"][name] = {"result": {"success": tests is None, "exit_code": int(tests is not None)}}
        if tests:
            cache = folder / name / ".pytest_cache/v/cache"
            cache.mkdir(parents=True)
            (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(tests, True)))
    file = folder / "tox.json"
    file.write_text(json.dumps(results))
    return file, folder


def test_few_tests_are_run_again(
    main: Callable[[Path, Path], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(*a_run(tmp_path, py313=["a.py::one"], docs=None, tests=["b.py::two"])) == 0
    assert capsys.readouterr() == ("py313,tests\n", "py313: a.py::one\ntests: b.py::two\n")


@pytest.mark.parametrize(
    "environments",
    [{"lint": []}, {"lint": [], "py313": ["a.py::one"]}, {"py313": ["1", "2"], "tests": ["3", "4"]}, {"docs": None}],
    ids=["no tests", "not only tests", "too many", "nothing"],
)
def test_all_else_stays_a_failure(
    environments: dict[str, list[str] | None],
    main: Callable[[Path, Path], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(*a_run(tmp_path, **environments)) == 1
    assert capsys.readouterr().out == ""
