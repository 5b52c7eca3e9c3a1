"""docs/security.md promises nothing that no test holds."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[^`]+::[^`]+)`", PAGE)))


@functools.cache
def names_in(file: str) -> frozenset[str]:
    """``test_name`` and ``Class::test_name`` of a module, without importing it."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return frozenset(found)


def threats() -> list[str]:
    """The rows of the tables whose last column is a test."""
    rows, inside = [], False
    for line in PAGE.splitlines():
        if line.startswith("| threat |"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            rows.append(line)
    return rows


def test_there_are_threats_of_every_kind() -> None:
    assert len(threats()) >= 40


@pytest.mark.parametrize("row", threats(), ids=lambda row: row.split("|")[1].strip()[:60])
def test_each_threat_has_a_defence_and_a_test(row: str) -> None:
    threat, defence, test = (cell.strip() for cell in row.strip("|").split("|"))
    assert threat
    assert defence
    assert re.fullmatch(r"`tests/[^`]+::[^`]+`", test), test


@pytest.mark.parametrize("name", NAMED)
def test_each_test_that_is_named_exists(name: str) -> None:
    file, _, test = name.partition("::")
    assert (ROOT / file).is_file()
    assert test in names_in(file)
