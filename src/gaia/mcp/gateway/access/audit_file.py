"""`AuditFile`: a file of lines with bounded size, and a bounded number of older files."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

from filelock import FileLock, Timeout

from gaia.mcp.errors import ConfigError
from gaia.runtime.private_files import keep_private

_PRIVATE = 0o600


class AuditFile:
    """Writes ``audit.jsonl``. Older files are ``audit.jsonl.1`` (the newest) to ``audit.jsonl.<keep>``.

    Only one thread at a time may use it.

    Only the owner can read the files. One program at a time writes to them, and holds ``.audit.jsonl.lock``. Nothing is
    synced to the disk: a line survives the program, but not a power failure.
    """

    def __init__(self, path: Path, *, max_bytes: int = 64 * 1024 * 1024, keep: int = 9) -> None:
        """Open the file. Raises ConfigError if it cannot be opened, or if another program writes to it."""
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._descriptor = -1
        self._size = 0
        self._is_torn = False
        """Whether the file ends with part of a line that could not be removed."""
        if not path.name:
            raise ConfigError(f"{path}: the audit cannot be written: it is a folder")
        keep_private(path)
        self._lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=0, mode=_PRIVATE)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire()
            self._open()
        except Timeout as error:
            raise ConfigError(f"{path}: another program writes to it; give each gateway a file of its own") from error
        except OSError as error:
            self._lock.release()
            raise ConfigError(f"{path}: the audit cannot be written: {error.strerror or error}") from error

    def write(self, lines: bytes) -> None:
        """Append whole lines, either all or none. Raises OSError, for example if the disk is full."""
        if self._descriptor < 0:
            self._open()
        if self._size and self._size + len(lines) > self._max_bytes:
            self._rotate()
        data = memoryview(b"\n" + lines if self._is_torn else lines)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            if written:
                try:
                    os.ftruncate(self._descriptor, self._size)
                except OSError:
                    self._size += written
                    self._is_torn = True
            raise
        self._is_torn = False
        self._size += written

    def reopen(self) -> None:
        """Open the path again, for example after another program has moved the file. Raises OSError."""
        self._close()
        self._open()

    def close(self) -> None:
        self._close()
        self._lock.release()

    def _open(self) -> None:
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _PRIVATE)
        self._size = os.fstat(self._descriptor).st_size
        # A program that was killed during a write leaves part of a line.
        self._is_torn = self._size > 0 and not self._ends_with_line()

    def _ends_with_line(self) -> bool:
        os.lseek(self._descriptor, -1, os.SEEK_END)
        return os.read(self._descriptor, 1) == b"\n"

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _rotate(self) -> None:
        self._close()
        names = [self.path, *(self.path.with_name(f"{self.path.name}.{number}") for number in range(1, self._keep + 1))]
        if len(names) == 1:
            os.unlink(self.path)
        for newer, older in reversed(list(pairwise(names))):
            if newer.exists():
                os.replace(newer, older)
        self._open()
