"""How commands write: text for people that is safe to show on a terminal, and JSON for programs.

Names, descriptions, results and errors come from other people's servers. Nothing of that is trusted: terminal sequences
and control characters are removed, and rich never parses it as markup, because it is always wrapped in `Text`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from gaia.untrusted_text import clean, one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

__all__ = ["can_ask", "clean", "err", "one_line", "out", "print_json", "show", "text", "yes"]

_UNLIMITED = 10_000
"""Columns of what is not a terminal: a program that reads a table wants no wrapped lines."""


def text(untrusted: object, style: str = "") -> Text:
    """Untrusted text as something that rich shows as it is."""
    from rich.text import Text

    return Text(clean(untrusted), style=style)


def out() -> Console:
    """The console on standard output."""
    return _console(stderr=False)


def err() -> Console:
    """The console on standard error: for errors, hints and progress."""
    return _console(stderr=True)


def show(*renderables: RenderableType, console: Console | None = None) -> None:
    """Print what rich can draw; to a pipe without wrapping and without blanks at the ends of lines."""
    console = out() if console is None else console
    if console.is_terminal:
        console.print(*renderables)
        return
    with console.capture() as capture:
        console.print(*renderables)
    console.file.write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))


def print_json(value: Any) -> None:
    """Print one JSON document. All ASCII, so that no terminal acts on it and every stream can carry it."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def can_ask() -> bool:
    """Whether a person can be asked: standard input and standard error are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def yes(question: str) -> bool:
    """Ask on standard error. Anything but yes is no, and so is the end of the input."""
    sys.stderr.write(f"{one_line(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in {"y", "yes"}


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() or "COLUMNS" in os.environ else _UNLIMITED
    # rich keeps bold and dim under NO_COLOR; without a colour system it writes no sequences at all.
    if os.environ.get("NO_COLOR"):
        return Console(stderr=stderr, width=wide, color_system=None, highlight=False)
    return Console(stderr=stderr, width=wide, highlight=False)
