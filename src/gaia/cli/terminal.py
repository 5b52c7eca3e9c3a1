"""How commands write: text for people that is safe to show on a terminal, JSON for programs, and how they fail.

Names, descriptions, results and errors come from other people's servers. Nothing of that is trusted: terminal sequences
and control characters are removed, and rich never parses it as markup, because it is always wrapped in `Text`.
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


def show(*renderables: RenderableType, console: Console | None = None, wrap: bool = True) -> None:
    """Print what rich can draw; to a pipe without wrapping and without blanks at the ends of lines."""
    console = out() if console is None else console
    if console.is_terminal:
        console.print(*renderables, soft_wrap=not wrap)
        return
    with console.capture() as capture:
        console.print(*renderables, soft_wrap=not wrap)
    console.file.write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))


def say(words: object, style: str = "", *, console: Console | None = None) -> None:
    """`show` a sentence of ours, which may repeat untrusted text: it goes on in indented lines.

    What is no sentence of ours, such as the result of a tool, is shown as `text`. Where there is a command to copy,
    only the terminal breaks the line: what is copied from there is still the command.
    """
    shown = indented(words)
    show(text(shown, style), console=console, wrap="; run: " not in shown)


def note(words: object, style: str = "") -> None:
    """`say` it on standard error."""
    say(words, style, console=err())


def answer(as_json: bool, document: dict[str, Any], words: str, style: str = "") -> None:
    """Print the one result of a command: `document` for programs, or `words` for people."""
    if as_json:
        print_json(document)
    else:
        say(words, style)


def print_json(value: Any) -> None:
    """Print one JSON document. All ASCII, so that no terminal acts on it and every stream can carry it."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def can_ask() -> bool:
    """Whether a person can be asked: standard input and standard error are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> str | None:
    """Ask on standard error; the line that is typed, or None at the end of the input (Ctrl-D).

    Blanks before the question stay: they tell a server's question from one of this program.
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
    """Ask on standard error. Anything but yes is no, and so is the end of the input."""
    return (ask(f"{question} [y/N]") or "").strip().casefold() in {"y", "yes"}


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() or "COLUMNS" in os.environ else _UNLIMITED
    # rich keeps bold and dim under NO_COLOR; without a colour system it writes no sequences at all.
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(stderr=stderr, width=wide, color_system=colours, highlight=False)


FAILED = 1
"""What was asked for was tried and did not succeed: a server failed, a tool reported an error."""

USAGE = 2
"""It could not even be tried: a wrong command line, an unknown name, an unusable configuration."""

INTERRUPTED = 130
"""Ctrl-C; the status that shells give for SIGINT."""


class CommandFailed(Exception):
    """Ends the command with `message`. `hint` says what to do about it; `facts` are for ``--json``."""

    def __init__(self, message: str, *, exit_code: int = FAILED, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.hint = hint
        self.facts = facts


def usage_error(message: str, hint: str | None = None, error_type: str = "usage", **facts: Any) -> CommandFailed:
    """The failure of a command that could not even be tried; see `USAGE`."""
    return CommandFailed(message, exit_code=USAGE, hint=hint, error_type=error_type, **facts)


def unknown_name(kind: str, name: str, known: Iterable[str], *, place: str = "") -> CommandFailed:
    """The failure for a name that does not exist: says which ones do, and which one was probably meant."""
    names = sorted(known)
    message = f"there is no {kind} named {name!r}{place}"
    import difflib  # only what is misspelt needs it

    if close := difflib.get_close_matches(name, names, n=1):
        message += f"; did you mean {close[0]!r}?"
    hint = f"Known names: {', '.join(names)}" if names else f"There are no {kind}s at all."
    return usage_error(message, hint, f"unknown_{kind}", known=names)
