"""What a server inherits from us: the few variables that programs need to run, and none of our secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["INHERITED", "server_environment"]

INHERITED = (
    # POSIX
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "USER", "LOGNAME", "SHELL", "TMPDIR",
    # Windows
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES",
    "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
)  # fmt: skip


def server_environment(extra: Mapping[str, str] | None, *, inherit_all: bool) -> dict[str, str]:
    """The environment for a server: the inherited part, overlaid with `extra`."""
    if inherit_all:
        inherited = dict(os.environ)
    else:
        # A value that starts with "()" is an exported bash function, which is code.
        inherited = {
            name: value
            for name in INHERITED
            if (value := os.environ.get(name)) is not None and not value.startswith("()")
        }
    return {**inherited, **(extra or {})}
