"""What a client wants to hear of a server, whichever connection it has: each new one is told anew."""

from __future__ import annotations

import threading

__all__ = ["Subscriptions"]


class Subscriptions:
    """Thread-safe. What it holds is replaced as a whole, so reading takes no lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Owns the writing of the two below."""
        self.resources: tuple[str, ...] = ()
        """The URIs of resources whose changes are of interest."""
        self.log_level: str | None = None
        """The least severe log messages that are; None leaves it to the server."""

    def add_resource(self, uri: str) -> None:
        with self._lock:
            self.resources = tuple(dict.fromkeys((*self.resources, uri)))

    def remove_resource(self, uri: str) -> None:
        with self._lock:
            self.resources = tuple(other for other in self.resources if other != uri)

    def set_log_level(self, level: str) -> None:
        with self._lock:
            self.log_level = level
