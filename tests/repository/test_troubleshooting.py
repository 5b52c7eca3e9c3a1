"""The page about errors has every kind of error, and quotes messages that exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from gaia.mcp import errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
BY_TYPE, _, BY_TEXT = PAGE.partition("## By text")
QUOTED = [
    text
    for line in BY_TEXT.partition("## Without an error")[0].splitlines()
    if line.startswith("| `")
    for text in re.findall(r"`([^`]+)`", line.split("|")[1])
]
CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MCPError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_kind_of_error_is_explained(kind: type[errors.MCPError]) -> None:
    (row,) = (line for line in BY_TYPE.splitlines() if line.startswith(f"| `{kind.error_type}` |"))
    assert f"`{kind.__name__}`" in row


@functools.cache
def messages() -> list[str]:
    """All texts of the source, with ``…`` for what is filled in."""
    found = []
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


@pytest.mark.parametrize("quoted", QUOTED)
def test_quoted_messages_exist(quoted: str) -> None:
    parts = re.compile(".*".join(re.escape(part.strip()) for part in quoted.split("…")), re.DOTALL)
    assert any(parts.search(message) for message in messages())
