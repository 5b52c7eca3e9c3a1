"""Servers in a sandbox (Linux): limits on the paths, the network and the resources of a process.

This module has `Sandbox`, the checked ``"sandbox"`` of a server's entry.

- `confinement` computes from it which paths of this machine are hidden, shown and writable; `places` knows the paths.
- `cage` changes the server's command so that it runs in the sandbox, with the first engine that can enforce everything,
  and limits its memory, processes and processor time.
- The engines are `bubblewrap` (namespaces) and `kernel` (Landlock). Both use the system call filter of `kernel`.
- `launcher` is the program that runs just before the server.

Invariant: if any part of the sandbox cannot be enforced, the server is not started.
"""

from __future__ import annotations

import re

import msgspec

_SIZE = re.compile(r"(\d+)([KMG]?)i?B?", re.IGNORECASE)
_FACTORS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_MIN_MEMORY = 16 * 1024**2
"""No interpreter starts with less, so a smaller value is a mistake in the unit."""


class Sandbox(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A server's permissions beyond the default sandbox, and its limits.

    In the default sandbox the file system is read-only and without the homes, ``/tmp`` is private, there is no network,
    and the server sees its own processes only. The constructor raises ValueError for invalid values.
    """

    read: list[str] = msgspec.field(default_factory=list)
    """Files and directories in hidden places that the server may read. ``~`` is expanded; relative paths start at the
    server's working directory."""
    write: list[str] = msgspec.field(default_factory=list)
    """Files and directories that it may read and change."""
    network: bool = False
    """Whether it has the network of this machine, including the loopback addresses."""
    memory: str | int | None = None
    """Bytes, or a text such as ``512M`` (K, M and G are powers of 1024)."""
    processes: int | None = None
    """The number of processes and threads at one time."""
    cpu_seconds: int | None = None
    """Processor time of each process."""

    def __post_init__(self) -> None:
        for name in ("read", "write"):
            for path in getattr(self, name):
                if not path.strip() or "\0" in path:
                    raise ValueError(f"{name}: {path!r} is no path")
        if self.memory is not None and memory_bytes(self.memory) < _MIN_MEMORY:
            raise ValueError(f"memory: must be at least 16M, got {self.memory!r}")
        for name in ("processes", "cpu_seconds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: must be 1 or more, got {value!r}")


def memory_bytes(size: str | int, name: str = "memory") -> int:
    """The bytes of a size such as ``512M``. Raises ValueError, naming `name`."""
    match = _SIZE.fullmatch(str(size))
    if match is None:
        raise ValueError(f'{name}: expected bytes, or a size such as "512M", got {size!r}')
    return int(match[1]) * _FACTORS[match[2].upper()]
