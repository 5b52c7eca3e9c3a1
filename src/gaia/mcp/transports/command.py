"""From a configured command to an argument vector. No shell is ever involved."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence

from gaia.mcp.errors import ConfigError, StartFailed

_SHOWN_PLACES = 3

# What a shell takes literally: an escaped character, and quoted text (within double quotes it still substitutes).
_LITERAL = re.compile(r"""\\.|'[^']*'|"((?:\\.|[^"\\])*)\"""", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\(|`")
_OPERATOR = re.compile(r"\$\(|`|[();<>|&]+")


def split_command(command: str) -> list[str]:
    """The words of a command line such as ``"npx -y some-server /tmp"``.

    Raises ConfigError (a ValueError) for an empty or unbalanced line, and for shell operators: they would silently be
    passed to the server as arguments.
    """
    try:
        words = shlex.split(command, posix=os.name != "nt")
    except ValueError as error:
        raise ConfigError(f"the command {command!r} cannot be split into words: {error}") from error
    if not words:
        raise ConfigError("the command is empty; give the program to start, for example 'uvx mcp-server-time'")
    operator = _shell_operator(command)
    if operator is not None:
        raise ConfigError(
            f"the command {command!r} contains {operator!r}, but servers are started without a shell. "
            f"Give command and args apart: "
            f'{{"command": {_json(words[0])}, "args": [...]}}; if you need a shell, name it: '
            f'{{"command": "sh", "args": ["-c", {_json(command)}]}}'
        )
    return words


def _json(text: str) -> str:
    """`text` as it is written in a configuration file, for messages from which it is copied."""
    return json.dumps(text, ensure_ascii=False)


def _shell_operator(command: str) -> str | None:
    """The first thing in it that a shell would act upon, apart from quotes and escapes."""

    def active(literal: re.Match[str]) -> str:
        unescaped = re.sub(r"\\.", " ", literal[1] or "", flags=re.DOTALL)
        return " ".join(_SUBSTITUTION.findall(unescaped))

    found = _OPERATOR.search(_LITERAL.sub(active, command))
    return None if found is None else found[0]


def find_executable(command: str, environment: Mapping[str, str], cwd: str | None) -> str:
    """The absolute path of `command`, looked up on the PATH the server will have; ``~`` is expanded.

    A path that is not absolute starts at `cwd`. On Windows ``npx`` also finds ``npx.cmd``. Raises StartFailed with what
    to do about it.
    """
    expanded = os.path.expanduser(command)
    if os.path.dirname(expanded):
        expanded = os.path.join(cwd or "", expanded)
    search_path = environment.get("PATH", os.defpath)
    found = shutil.which(expanded, path=search_path)
    if found is not None:
        # A relative entry of PATH starts here, not in the directory where the server is about to be started.
        return os.path.abspath(found)
    if os.path.dirname(expanded):
        state = "is not executable" if os.path.exists(expanded) else "does not exist"
        raise StartFailed(f"the command {command!r} cannot be started: {expanded} {state}")
    places = [entry for entry in search_path.split(os.pathsep) if entry]
    raise StartFailed(
        f"the command {command!r} was not found on the server's PATH ({_shortened(places)}); "
        "install it, or give its full path as the command"
    )


def _shortened(places: Sequence[str]) -> str:
    shown = ", ".join(places[:_SHOWN_PLACES])
    return shown if len(places) <= _SHOWN_PLACES else f"{shown}, …"


def argument_vector(command: str, args: Sequence[str] | None) -> list[str]:
    """`command` with `args`; a command without args may be a whole command line."""
    return split_command(command) if args is None else [command, *args]
