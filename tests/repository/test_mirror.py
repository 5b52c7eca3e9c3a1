"""A module's tests are found by its name and place: ``src/gaia/a/b.py`` is tested in ``tests/unit/a/test_b.py``.

The adapters for agent frameworks are tested in ``tests/adapters`` instead, which environments with the frameworks run.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EXCEPTIONS = {
    "tests/unit/benchmarks/test_documented.py": "about the documents in which several modules write their figures",
    "tests/unit/benchmarks/test_measuring.py": "about a whole measurement, which all modules take part in",
}
"""Modules without a test module, and test modules without a module: path to reason."""


def modules(root: Path) -> set[str]:
    """The modules below `root`, as paths relative to it."""
    return {path.relative_to(root).as_posix() for path in root.rglob("*.py") if path.name != "__init__.py"}


def place_of_tests(module: str) -> str:
    path = Path(module)
    with_framework = f"tests/adapters/test_{path.name}"
    if path.parent == Path("adapters") and (ROOT / with_framework).exists():
        return with_framework
    return ("tests/unit" / path.parent / f"test_{path.name}").as_posix()


def mirrored() -> dict[str, str]:
    """All modules, by the paths of their test modules."""
    of_gaia = {place_of_tests(module): f"src/gaia/{module}" for module in modules(ROOT / "src" / "gaia")}
    benchmarks = [f"benchmarks/{module}" for module in modules(ROOT / "benchmarks")]
    return {**of_gaia, **{place_of_tests(module): module for module in benchmarks}}


def unit_tests() -> set[str]:
    paths = modules(ROOT / "tests" / "unit")
    return {f"tests/unit/{path}" for path in paths if Path(path).name.startswith("test_")}


def test_each_module_has_its_test_module() -> None:
    without = {module for test, module in mirrored().items() if not (ROOT / test).exists()}
    assert {module for module in without if module.startswith("src/")} - EXCEPTIONS.keys() == set()


def test_each_test_module_has_its_module() -> None:
    assert unit_tests() - mirrored().keys() - EXCEPTIONS.keys() == set()


def test_each_test_module_has_tests() -> None:
    def has_tests(path: str) -> bool:
        nodes = ast.walk(ast.parse((ROOT / path).read_text("utf-8")))
        return any(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in nodes)

    assert [path for path in sorted(unit_tests()) if not has_tests(path)] == []


@pytest.mark.parametrize("path", EXCEPTIONS)
def test_an_exception_is_needed(path: str) -> None:
    counterpart = next((test for test, module in mirrored().items() if module == path), mirrored().get(path))
    assert (ROOT / path).exists()
    assert counterpart is None or not (ROOT / counterpart).exists()
