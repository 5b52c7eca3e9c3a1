"""A room's tests are found by its path: those of ``src/gaia/a`` are in ``tests/unit/a``."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

ALIASES = {"mcp/client/transports"}
"""Rooms that only give `gaia.mcp.transports` its public path."""


def rooms(root: Path, pattern: str) -> set[str]:
    """The folders below `root` that hold such modules themselves, as paths relative to it."""
    return {path.parent.relative_to(root).as_posix() for path in root.rglob(pattern) if path.name != "__init__.py"}


def test_each_room_has_tests_and_each_folder_of_tests_has_a_room() -> None:
    of_gaia = rooms(ROOT / "src" / "gaia", "*.py") - ALIASES
    tested = rooms(ROOT / "tests" / "unit", "test_*.py")
    assert of_gaia - tested == set()
    assert tested - of_gaia == {"benchmarks"}


def test_each_test_module_has_tests() -> None:
    modules = sorted((ROOT / "tests" / "unit").rglob("test_*.py"))
    assert [
        path for path in modules if not re.search(r"^ *(async )?def test_", path.read_text("utf-8"), re.MULTILINE)
    ] == []
