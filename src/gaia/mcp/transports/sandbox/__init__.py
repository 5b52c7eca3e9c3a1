"""Servers in a sandbox (Linux): what a process may read, write and reach, and how much it may use.

This module has the ``"sandbox"`` of a server's entry, checked. `profile` works it out for this machine, `cage` makes
the server's command run in it.
"""

from __future__ import annotations

import re

import msgspec

_SIZE = re.compile(r"(\d+)([KMG]?)i?B?", re.IGNORECASE)
_FACTORS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_MIN_MEMORY = 16 * 1024**2
"""Less than this starts no interpreter, so it can only be a mistake in the unit."""


class Sandbox(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a server may do beyond the default profile, and how much it may use.

    The default profile: the file system read-only and without the homes, a private ``/tmp``, no network, its own
    processes only. The constructor raises ValueError for unusable values.
    """

    read: list[str] = msgspec.field(default_factory=list)
    """Files and directories of hidden places that the server may read. ``~`` is expanded; relative paths start at the
    server's working directory."""
    write: list[str] = msgspec.field(default_factory=list)
    """Files and directories that it may read and change."""
    network: bool = False
    """Whether it has the network of this machine, the loopback addresses included."""
    memory: str | int | None = None
    """Bytes, or a text such as ``512M`` (K, M and G are powers of 1024)."""
    processes: int | None = None
    """Processes and threads that may exist at once."""
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
