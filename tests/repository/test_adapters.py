"""Adapters for agent frameworks are small, use public names only, have a page, and say what to install."""

from __future__ import annotations

import ast
import re
import tokenize
from pathlib import Path

import pytest

from tests.repository.test_public_names import PUBLIC_NAMES

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "src/gaia/adapters").glob("*.py"))
FRAMEWORKS = [path for path in MODULES if "except ImportError" in path.read_text("utf-8")]
"""Adapters for what may not be installed. The other modules are shared by adapters, or are for APIs."""

ADAPTERS = [*FRAMEWORKS, *(path for path in MODULES if path.stem in {"anthropic", "openai"})]
MOST_LINES = 120

adapters = pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)


def lines_of_code(path: Path) -> int:
    """Without blank lines, comments and docstrings."""
    drawn = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    with tokenize.open(path) as file:
        text = file.read()
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    with tokenize.open(path) as file:
        tokens = [token for token in tokenize.generate_tokens(file.readline) if token.type not in drawn]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - docstrings)


@adapters
def test_an_adapter_is_small(path: Path) -> None:
    assert lines_of_code(path) < MOST_LINES


@adapters
def test_an_adapter_uses_public_names_only(path: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    own = [node for node in imports if node.module is not None and node.module.partition(".")[0] == "gaia"]
    used = {(str(node.module), alias.name) for node in own for alias in node.names}

    assert {(module, name) for module, name in used if name not in public_names(module)} == set()


def public_names(module: str) -> set[str]:
    """Those of other adapters too, which cannot be imported without their frameworks, and of what adapters share."""
    if not module.startswith("gaia.adapters."):
        return PUBLIC_NAMES.get(module, set())
    tree = ast.parse((ROOT / "src" / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    defined = (node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return {name for name in defined if not name.startswith("_")} | PUBLIC_NAMES.get(module, set())


@adapters
def test_an_adapter_has_a_page(path: Path) -> None:
    pages = {page.stem: page.read_text("utf-8") for page in (ROOT / "docs" / "adapters").glob("*.md")}
    about = {name for name, text in pages.items() if re.search(rf"gaia\.adapters\.{path.stem}\b", text)}

    # The first one lists all of them.
    assert "index" in about
    assert about - {"index"} != set()


@pytest.mark.parametrize("path", FRAMEWORKS, ids=lambda path: path.stem)
def test_an_adapter_says_what_to_install(path: Path) -> None:
    assert re.search(rf"gaia\.adapters\.{path.stem} needs .+: pip install \S+", path.read_text("utf-8"))


def test_lines_of_code_are_counted_without_comments_and_docstrings(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""Of a\nmodule."""\n\n# A comment.\nx = (\n    1,\n)  # three\n\n\ndef f():\n    """Of f."""\n    return x\n'
    )
    assert lines_of_code(file) == 5
