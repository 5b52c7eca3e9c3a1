"""The files that this program is configured with: a server in a sandbox sees none of them.

Each component that reads or writes such a file says so here: configurations, tokens, keys, pins, the audit.
"""

from __future__ import annotations

import os

VARIABLE = "GAIA_PRIVATE_FILES"
"""The variable that names further files, such as the one that systemd has read the environment from. They are separated
as the folders of ``PATH`` are."""

_files: dict[str, None] = {}


def keep_private(file: str | os.PathLike[str]) -> None:
    """Hide a file from the servers that are started from now on in a sandbox. For any thread."""
    _files[os.path.abspath(file)] = None


def private_files() -> list[str]:
    """As absolute paths. There may be symbolic links in them, and no file yet."""
    named = (os.path.expanduser(path) for path in os.environ.get(VARIABLE, "").split(os.pathsep))
    return list(dict.fromkeys([*list(_files), *(path for path in named if os.path.isabs(path))]))
