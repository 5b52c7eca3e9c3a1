"""Output of commands: cleaned text for people, JSON for programs, and errors.

Names, descriptions, results and errors come from servers, which are not trusted. Terminal sequences and control
characters are removed. The text is always wrapped in `Text`, so that rich never parses it as markup.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from gaia.cli import time_limit
from gaia.runtime.untrusted_text import clean, indented, one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_UNLIMITED = 10_000
"""Columns if the output is not a terminal, because programs that read a table want no wrapped lines."""


def text(untrusted: object, style: str = "") -> Text:
    from rich.text import Text

    return Text(clean(untrusted), style=style)


def out(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() or "COLUMNS" in os.environ else _UNLIMITED
    # rich keeps bold and dim under NO_COLOR. Without a colour system, it writes no sequences at all.
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(stderr=stderr, width=wide, color_system=colours, highlight=False)


def err() -> Console:
    return out(stderr=True)


def show(*renderables: RenderableType, console: Console | None = None, wrap: bool = True) -> None:
    """Print rich objects. Lines to a pipe are not wrapped and have no trailing blanks."""
    console = out() if console is None else console
    if console.is_terminal:
        console.print(*renderables, soft_wrap=not wrap)
        return
    with console.capture() as capture:
        console.print(*renderables, soft_wrap=not wrap)
    console.file.write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))


def say(words: object, style: str = "", *, console: Console | None = None) -> None:
    """Show one of gaia's sentences, which may quote untrusted text. Continuation lines are indented.

    If the sentence contains a command to copy, only the terminal breaks the line, so the copied command has no line
    break.
    """
    shown = indented(words)
    show(text(shown, style), console=console, wrap="; run: " not in shown)


def note(words: object, style: str = "") -> None:
    say(words, style, console=err())


def say_lines(words: str, *, console: Console | None = None) -> None:
    for line in words.split("\n"):
        say(f"    {line}", console=console)


def answer(as_json: bool, document: dict[str, Any], words: str, style: str = "") -> None:
    """Print the only result of a command: `document` for programs, or `words` for people."""
    if as_json:
        print_json(document)
    else:
        say(words, style)


def print_json(value: Any) -> None:
    """Print one JSON document. It is ASCII, so that no terminal interprets it and every encoding can write it."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def can_ask() -> bool:
    """Whether a person can be asked, because standard input and standard error are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> str | None:
    """Ask on standard error. Returns the typed line, or None at the end of the input (Ctrl-D).

    Blanks before the question stay, because they distinguish a server's question from gaia's own.
    """
    indent = " " * (len(question) - len(question.lstrip(" ")))
    sys.stderr.write(f"{indent}{one_line(question)} ")
    sys.stderr.flush()
    with time_limit.paused():
        line = sys.stdin.readline()
    if not line:
        sys.stderr.write("\n")
        return None
    return line.rstrip("\r\n")


def yes(question: str) -> bool:
    """Ask on standard error. Only yes means yes, and the end of the input means no."""
    return (ask(f"{question} [y/N]") or "").strip().casefold() in {"y", "yes"}


FAILED = 1
"""Exit status if the command was tried and failed: a server failed, or a tool reported an error."""

USAGE = 2
"""Exit status if the command could not be tried: wrong command line, unknown name, unusable configuration."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells give for SIGINT."""


class CommandFailed(Exception):
    """Ends the command with `message`. `hint` is a remedy; `facts` are further members for ``--json``."""

    def __init__(self, message: str, *, exit_code: int = FAILED, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.hint = hint
        self.facts = facts


def usage_error(message: str, hint: str | None = None, error_type: str = "usage", **facts: Any) -> CommandFailed:
    return CommandFailed(message, exit_code=USAGE, hint=hint, error_type=error_type, **facts)


def unknown_name(kind: str, name: str, known: Iterable[str], *, place: str = "") -> CommandFailed:
    """The error for an unknown name, with the known names and the most similar one."""
    import difflib

    names = sorted(known)
    message = f"there is no {kind} named {name!r}{place}"
    if close := difflib.get_close_matches(name, names, n=1):
        message += f"; did you mean {close[0]!r}?"
    hint = f"Known names: {', '.join(names)}" if names else f"There are no {kind}s at all."
    return usage_error(message, hint, f"unknown_{kind}", known=names)
