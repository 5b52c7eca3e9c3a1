"""The files of this program that a sandbox hides, and the directories that are shown without them.

A file that is replaced (as each save of a configuration does) is another file: what is mounted over its name is gone
then, in all namespaces. So the directory is shown entry by entry, as it is when the server is started.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator

from gaia.mcp.errors import StartFailed
from gaia.mcp.transports.sandbox.places import is_below
from gaia.runtime.private_files import private_files

_MOUNTS = "/proc/self/mountinfo"
_MAX_ENTRIES = 500
"""Of a directory that is shown entry by entry: each takes about half a millisecond of a server's start."""


def hidden_files(named: Iterable[str], opened: Iterable[str], is_shown: Callable[[str], bool]) -> list[str]:
    """The paths that the sandbox hides, of those that it would show otherwise. They have no links in them.

    At some of them there may be nothing yet. They are the files of this program and others that belong to them by their
    names: older logs, locks, copies. What not every user can read beside such a file is hidden too, but not in places
    that were `opened` for the server. Paths that are `named` by its entry are left out.
    """
    opened, named, mounts = list(opened), set(named), _mounts()
    found: dict[str, None] = {}
    for file in private_files():
        real = os.path.realpath(file)
        if real not in named:
            link = os.path.join(os.path.realpath(os.path.dirname(file)), os.path.basename(file))
            for path in (place for one in dict.fromkeys((real, link)) for place in _places_of(one, mounts)):
                if is_shown(path):
                    found.update(dict.fromkeys((path, *_beside(path, opened))))
    return sorted(path for path in found if path not in named and is_shown(path))


def can_be_left_out(file: str) -> bool:
    """Whether there is such a file, in a directory that may be shown entry by entry."""
    directory = os.path.dirname(file)
    return os.path.isfile(file) and os.access(directory, os.R_OK) and len(os.listdir(directory)) <= _MAX_ENTRIES


def entries_without(directory: str, hidden: Iterable[str]) -> list[str]:
    """The paths of what is in a directory, but for the hidden ones. Raises StartFailed if there are too many."""
    hidden = set(hidden)
    try:
        entries = sorted(os.path.join(directory, name) for name in os.listdir(directory))
    except OSError:
        return []
    if len(entries) > _MAX_ENTRIES:
        raise StartFailed(
            f"{directory} holds files that this program is configured with among {len(entries)} entries; "
            "for servers in a sandbox, keep them in a directory of their own"
        )
    return [path for path in entries if path not in hidden]


def _beside(file: str, opened: list[str]) -> Iterator[str]:
    directory, name = os.path.split(file)
    of_file = re.compile(rf"\.?{re.escape(name.lstrip('.'))}([^A-Za-z0-9].*)?", re.DOTALL)
    is_opened = any(is_below(directory, one) for one in opened)
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if of_file.fullmatch(entry.name):
                    yield entry.path
                elif not is_opened and not any(is_below(one, entry.path) for one in opened):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if not mode & stat.S_IROTH:
                        yield entry.path
    except OSError:
        return


def _mounts() -> list[tuple[str, str, str]]:
    """Of each mounted file system: its number, which directory of it is mounted, and where; those on top come first."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
            found = [line.split(" ", 5) for line in lines]
    except OSError:
        return []
    return [(words[2], _unescaped(words[3]), _unescaped(words[4])) for words in reversed(found)]


def _places_of(path: str, mounts: list[tuple[str, str, str]]) -> Iterator[str]:
    """A path, and the others of the same file, where a part of its file system is mounted again."""
    yield path
    around = [mount for mount in mounts if is_below(path, mount[2])]
    if not around:
        return
    device, root, point = max(around, key=lambda mount: len(mount[2]))
    inner = os.path.normpath(os.path.join(root, os.path.relpath(path, point)))
    for other, part, place in mounts:
        if other == device and is_below(inner, part):
            found = os.path.normpath(os.path.join(place, os.path.relpath(inner, part)))
            if found != path:
                yield found


def _unescaped(text: str) -> str:
    """A path of the kernel's table, where some characters are written as numbers."""
    return re.sub(r"\\([0-7]{3})", lambda number: chr(int(number[1], 8)), text)
