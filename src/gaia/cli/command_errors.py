"""How a command fails: an exit status, one sentence that says why, and no traceback."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from typing import Any

from gaia.cli import terminal
from gaia.cli.options import Options
from gaia.mcp.errors import ConfigError, MCPError
from gaia.runtime.untrusted_text import clean

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


def unknown_name(kind: str, name: str, known: Iterable[str], *, place: str = "") -> CommandFailed:
    """The failure for a name that does not exist: says which ones do, and which one was probably meant."""
    names = sorted(known)
    message = f"there is no {kind} named {name!r}{place}"
    import difflib  # only what is misspelt needs it

    if close := difflib.get_close_matches(name, names, n=1):
        message += f"; did you mean {close[0]!r}?"
    hint = f"Known names: {', '.join(names)}" if names else f"There are no {kind}s at all."
    return CommandFailed(message, exit_code=USAGE, hint=hint, error_type=f"unknown_{kind}", known=names)


def report(error: CommandFailed | MCPError, options: Options) -> int:
    """Tell the user why the command failed; returns the exit status."""
    if options.debug:
        # Messages may repeat what a server has said.
        sys.stderr.write(clean("".join(traceback.format_exception(error))))
    console = terminal.err()
    terminal.say(f"Error: {error.message}", "red", console=console)
    document: dict[str, Any] = {"error": error.message}
    if isinstance(error, CommandFailed):
        exit_code = error.exit_code
        document |= error.facts
        if error.hint is not None:
            document["hint"] = error.hint
            terminal.say(error.hint, console=console)
    else:
        exit_code = USAGE if isinstance(error, ConfigError) else FAILED
        document["error_type"] = error.error_type
    if options.json:
        terminal.print_json(document)
    return exit_code
