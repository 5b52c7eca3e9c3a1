"""The fenced code blocks of a Markdown page, and the comments that say how a block is to be tested.

CONTRIBUTING.md, "Code blocks of the documentation", describes the comments.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

_DATA = frozenset({"json", "toml", "yaml", "ini"})
_DRAWN = frozenset({"text", "mermaid"})
_RUN = {"needs", "saves", "before", "env", "input", "exit", "shows", "until", "background", "model"}
_DIRECTIVES = {"python": _RUN | {"continues"}, "console": _RUN | {"skip"}}
_ANYWHERE = {"not-run", "file"}
_WITHOUT_VALUE = {"saves", "continues"}
_COMMENT = re.compile(r"<!-- example (?P<name>[a-z-]+)(?:: (?P<value>.*\S))? -->")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # The package that it would be in.
        return False


class UntestableBlock(Exception):
    """A block, or a comment above it, that the tests cannot handle; the message says where and why."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    """Path of the page from the root of the repository."""
    line: int
    """Of the opening fence, counted from 1."""
    language: str
    code: str
    argument: str = ""
    """What follows the language on the line of the fence."""
    directives: tuple[tuple[str, str], ...] = ()
    """Name and value of each comment above the block, in order."""

    def values(self, name: str) -> list[str]:
        """The values of all comments of this name."""
        return [value for each, value in self.directives if each == name]

    def value(self, name: str) -> str | None:
        """The value of the comment of this name, or None without one; empty if it has none."""
        return next(iter(self.values(name)), None)

    @property
    def missing(self) -> list[str]:
        """The packages that the block needs, by the names of their modules, and that are not installed."""
        return [name for name in self.values("needs") if not _is_installed(name)]

    @property
    def is_drawn(self) -> bool:
        """Whether GitHub or Sphinx handles it: shown text, a diagram, or a directive."""
        return self.language in _DRAWN or self.language.startswith("{")

    @property
    def is_data(self) -> bool:
        """Whether it is in a format that can be parsed."""
        return self.language in _DATA

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.language or 'no language'})"


def blocks_of(text: str, page: str) -> list[Block]:
    """The blocks of a page, from top to bottom. Raises UntestableBlock for one that has no handling."""
    blocks = []
    above: list[tuple[str, str]] = []
    for token in MarkdownIt("commonmark").parse(text):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block":
            comments = re.findall(r"<!--\s*example\b.*", token.content)
            above += [_directive(comment, f"{page}:{line}") for comment in comments]
        elif token.type == "fence":
            language, _, argument = token.info.strip().partition(" ")
            block = Block(page, line, language, token.content, argument, tuple(above))
            _check(block)
            blocks.append(block)
            above = []
        elif token.type == "code_block":
            raise UntestableBlock(f"{page}:{line}: an indented block has no language; use a fence")
        elif above:
            raise UntestableBlock(f"{page}:{line}: the comment above ({above[-1][0]}) has no block below it")
    if above:
        raise UntestableBlock(f"{page}: the last comment ({above[-1][0]}) has no block below it")
    return blocks


def pages(root: Path) -> list[Path]:
    """README.md and all pages below docs."""
    return [root / "README.md", *sorted(path for path in (root / "docs").rglob("*.md") if "_build" not in path.parts)]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # Not even the package that it would be in.
        return False


def _directive(comment: str, place: str) -> tuple[str, str]:
    match = _COMMENT.fullmatch(comment.strip())
    if match is None:
        raise UntestableBlock(f"{place}: write it as <!-- example NAME: VALUE --> on one line: {comment}")
    name, value = match["name"], match["value"] or ""
    if (name in _WITHOUT_VALUE) == bool(value):
        raise UntestableBlock(f"{place}: {name} has {'no' if name in _WITHOUT_VALUE else 'a'} value: {comment}")
    return name, value


def _check(block: Block) -> None:
    allowed = _DIRECTIVES.get(block.language, set()) | _ANYWHERE
    known = block.is_drawn or block.is_data or block.language in _DIRECTIVES
    if unknown := [name for name, _ in block.directives if name not in allowed]:
        raise UntestableBlock(f"{block}: a block of this language cannot have: {', '.join(unknown)}")
    if not known and not any(block.value(name) for name in _ANYWHERE):
        raise UntestableBlock(f"{block}: blocks of this language are not tested; say why with `example not-run`")
