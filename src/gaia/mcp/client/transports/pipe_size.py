"""Makes a pipe larger where the system allows it, so that a large message needs fewer turns between two processes."""

from __future__ import annotations

import contextlib

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["enlarge"]

_LARGE_BYTES = 1024 * 1024
"""What an ordinary user may have (Linux: fs.pipe-max-size)."""


def enlarge(descriptor: int) -> None:
    """Call it for pipes that have been full: all pipes of a user share one allowance."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        # Not allowed any more once the allowance is used up; the pipe works as it is.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _LARGE_BYTES)
