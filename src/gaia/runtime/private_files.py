"""A register of this program's private files (configurations, tokens, keys, pins, …), which sandboxes hide."""

from __future__ import annotations

import os

VARIABLE = "GAIA_PRIVATE_FILES"
"""Names further private files, separated as in ``PATH``, such as the file from which systemd read the environment."""

_files: dict[str, None] = {}


def keep_private(file: str | os.PathLike[str]) -> None:
    """Hide a file from servers that are started later in a sandbox. Thread-safe."""
    _files[os.path.abspath(file)] = None


def private_files() -> list[str]:
    """The absolute paths. A path may contain symbolic links, and its file need not exist yet."""
    named = (os.path.expanduser(path) for path in os.environ.get(VARIABLE, "").split(os.pathsep))
    return list(dict.fromkeys([*list(_files), *(path for path in named if os.path.isabs(path))]))
