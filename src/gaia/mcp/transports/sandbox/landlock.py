"""The engine where bubblewrap cannot be used: Landlock of the kernel, with a filter for what it does not cover."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence

from gaia.mcp.transports.sandbox.bubblewrap import Unusable
from gaia.mcp.transports.sandbox.places import is_below
from gaia.mcp.transports.sandbox.profile import Profile

READ, WRITE, USE, LIST = "read", "write", "use", "list"
"""What a rule permits: to read and run; to change as well; to read from a device and write to it; to list names."""

_CREATE_RULESET = 444
_VERSION_FLAG = 1
_NEEDED = 6
"""The first version that keeps signals and abstract sockets within the sandbox, of Linux 6.12."""

_DEVICES = ("null", "zero", "full", "random", "urandom")
_FACTS = (
    *("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version"),
    *("self", "sys/kernel", "sys/vm", "sys/fs", "sys/net"),
)
"""What programs look up in ``/proc``. Other processes' directories stay closed."""


def landlock_version() -> int:
    """The version of Landlock's interface in this kernel; 0 if it has none, or it is turned off."""
    library = ctypes.CDLL(None, use_errno=True)
    return max(0, int(library.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)))


def require_landlock(profile: Profile) -> None:
    """Raises Unusable if Landlock of this kernel cannot enforce the profile."""
    version = landlock_version()
    if version < _NEEDED:
        state = f"version {version}" if version else "none"
        raise Unusable(f"Landlock of version {_NEEDED} is needed (Linux 6.12 or newer), and this kernel has {state}")
    torn = [secret for secret in profile.masked if any(is_below(secret, place) for place in profile.write)]
    if torn:
        raise Unusable(f'Landlock cannot keep {torn[0]} from a server that may write around it; name less in "write"')


def rules_of(profile: Profile, scratch: str) -> Iterator[tuple[str, str]]:
    """What is permitted, as pairs of a path and READ, WRITE, USE or LIST. `scratch` is the server's private directory.

    Landlock only permits, and with a directory all that is in it; so of a directory with hidden places each other entry
    is named.
    """
    closed = [*profile.hidden, *profile.masked, *profile.left_out, "/proc", "/dev"]
    for path in _without("/", closed):
        yield path, READ
    for place in profile.read:
        for path in _without(place, [one for one in (*profile.masked, *profile.left_out) if is_below(one, place)]):
            yield path, READ
    for place in (*profile.write, scratch):
        yield place, WRITE
    for directory in {os.path.dirname(file) for file in profile.left_out}:
        # Of which only the entries were named. The right holds for all that is in it.
        if not any(is_below(place, directory) for place in (*profile.hidden, *profile.masked)):
            yield directory, LIST
    for name in _DEVICES:
        yield f"/dev/{name}", USE
    for name in _FACTS:
        yield f"/proc/{name}", READ


def _without(place: str, closed: Sequence[str]) -> Iterator[str]:
    """The fewest paths that cover `place` but not the closed ones."""
    if any(is_below(place, path) for path in closed):
        return
    inner = [path for path in closed if is_below(path, place)]
    if not inner:
        yield place
        return
    try:
        with os.scandir(place) as entries:
            names = sorted(entry.path for entry in entries if not entry.is_symlink())
    except OSError:
        return
    for path in names:
        yield from _without(path, inner)
