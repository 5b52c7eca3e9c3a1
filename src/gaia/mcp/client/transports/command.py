"""From a configured command to an argument vector. No shell is ever involved."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from gaia.mcp.errors import ConfigError, StartFailed

__all__ = ["argument_vector", "find_executable", "split_command"]

_SHELL_TOKENS = frozenset("();<>|&")
_SUBSTITUTIONS = ("$(", "`")


def split_command(command: str) -> list[str]:
    """The words of a command line such as ``"npx -y some-server /tmp"``.

    Raises ConfigError (a ValueError) for an empty or unbalanced line, and for shell operators: they would silently be
    passed to the server as arguments, which nobody wants.
    """
    try:
        words = shlex.split(command, posix=os.name != "nt")
        # With punctuation_chars the operators that stand outside quotes become words of their own.
        tokens = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    except ValueError as error:
        raise ConfigError(f"the command {command!r} cannot be split into words: {error}") from error
    if not words:
        raise ConfigError("the command is empty; give the program to start, for example 'uvx mcp-server-time'")
    operators = [token for token in tokens if token and set(token) <= _SHELL_TOKENS]
    operators += [mark for mark in _SUBSTITUTIONS if mark in command]
    if operators:
        raise ConfigError(
            f"the command {command!r} contains {operators[0]!r}, but servers are started without a shell. "
            f"Give command and args apart: "
            f'{{"command": "{words[0]}", "args": [...]}}; if you need a shell, name it: '
            f'{{"command": "sh", "args": ["-c", {command!r}]}}'
        )
    return words


def find_executable(command: str, environment: Mapping[str, str], cwd: str | None) -> str:
    """The path of `command`, looked up on the PATH the server will have; ``~`` is expanded.

    On Windows this also finds ``npx.cmd`` for ``npx``. Raises StartFailed with what to do about it.
    """
    expanded = os.path.expanduser(command)
    if cwd is not None and os.path.dirname(expanded) and not os.path.isabs(expanded):
        expanded = str(Path(cwd) / expanded)
    search_path = environment.get("PATH", os.defpath)
    found = shutil.which(expanded, path=search_path)
    if found is not None:
        return found
    if os.path.dirname(expanded):
        state = "is not executable" if os.path.exists(expanded) else "does not exist"
        raise StartFailed(f"the command {command!r} cannot be started: {expanded} {state}")
    raise StartFailed(
        f"the command {command!r} was not found on the PATH ({search_path}); "
        "install it, or give its full path as the command"
    )


def argument_vector(command: str, args: Sequence[str] | None) -> list[str]:
    """`command` with `args`; a command without args may be a whole command line."""
    return split_command(command) if args is None else [command, *args]
