"""`FileWatch`: notices that files have changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

_Stamp = tuple[int, int, int] | None


class FileWatch:
    """Compares files by their metadata each time that `look` is called. Not thread-safe.

    Files are looked at, and the operating system is not asked to tell of changes: network file systems tell nothing,
    and editors and Kubernetes replace files by renaming, which notifications about a file miss.
    """

    def __init__(self, files: Callable[[], Iterable[Path]]) -> None:
        """`files` says which they are, each time; they need not exist. What they are now is no change."""
        self._files = files
        self._known = self._last = self._stamps()

    def look(self) -> bool:
        """Whether the files have changed since they were `taken`, and have stayed the same since the last look.

        A program that writes a file in several steps is waited for in this way.
        """
        found = self._stamps()
        is_settled = found == self._last
        self._last = found
        if found == self._known or not is_settled:
            return False
        self._known = found
        return True

    def taken(self) -> None:
        """The files are about to be read as they are now."""
        self._known = self._last = self._stamps()

    def _stamps(self) -> dict[Path, _Stamp]:
        return {file: _stamp(file) for file in self._files()}


def _stamp(file: Path) -> _Stamp:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
