"""What supervision needs of a login at a server. The transport puts it on requests, in a way of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

__all__ = ["Authorization"]


@runtime_checkable
class Authorization(Protocol):
    """The login at one server. Thread-safe."""

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked to log in."""

    @property
    def secrets(self) -> Iterable[str]:
        """The tokens that must not be shown."""

    def changed(self) -> bool:
        """Whether there is a login that the server has not refused yet. Quick enough for each call."""

    def log_in(self) -> None:
        """Have a person log in. Raises MCPError; may take minutes."""

    def abort(self) -> None:
        """End `log_in`, and refuse it from now on."""

    def reopen(self) -> None:
        """After `abort`: allow it again."""
