"""Questions to the person at the terminal."""

from __future__ import annotations

import sys

from gaia.cli import terminal

__all__ = ["can_ask", "yes"]


def can_ask() -> bool:
    """Whether there is somebody to ask: standard input and standard error are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def yes(question: str) -> bool:
    """Ask on standard error. Anything but yes is no, and so is the end of the input."""
    sys.stderr.write(f"{terminal.one_line(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in {"y", "yes"}
