"""The live stream of a page: first everything, then what changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from gaia.dashboard import responses
from gaia.dashboard.journal import Journal

__all__ = ["Stream"]

LOOK_SECONDS = 0.25
"""How soon a page sees what happened."""
_STATUS_SECONDS = 1.0
"""How often the servers are looked at, which do not announce their figures."""
_PROOF_SECONDS = 15.0
"""Silence after which a comment shows that the connection lives."""


class Stream:
    """Server-sent events for any number of pages. Belongs to the event loop; reads what other threads write."""

    def __init__(
        self,
        journal: Journal,
        everything: Callable[[], dict[str, Any]],
        servers: Callable[[], list[dict[str, Any]]],
        running: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self._journal = journal
        self._everything = everything
        self._servers = servers
        self._running = running
        self._closing = False
        self.readers = 0

    def close(self) -> None:
        """End all streams soon. May be called from any thread."""
        self._closing = True

    async def events(self) -> AsyncIterator[bytes]:
        """The stream of one page. What cannot be told from the beginning is told by a new ``snapshot``."""
        self.readers += 1
        try:
            async for chunk in self._events():
                yield chunk
        finally:
            self.readers -= 1

    async def _events(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        # In this order nothing is missed. What happens in between is told twice, which the page sees by its ids.
        position = self._journal.position
        last = self._everything()
        yield responses.event("snapshot", last)
        looked = spoke = loop.time()
        while not self._closing:
            await asyncio.sleep(LOOK_SECONDS)
            found = self._journal.read(position)
            if found is None:
                position = self._journal.position
                last = self._everything()
                yield responses.event("snapshot", last)
                continue
            entries, position = found
            changes = [responses.event(entry.kind, entry.data) for entry in entries]
            now = loop.time()
            if now - looked >= _STATUS_SECONDS or entries:
                looked = now
                changes += self._changed(last, "servers", self._servers())
            changes += self._changed(last, "running", self._running())
            if changes:
                spoke = now
                yield b"".join(changes)
            elif now - spoke >= _PROOF_SECONDS:
                spoke = now
                yield b": still here\n\n"

    @staticmethod
    def _changed(last: dict[str, Any], kind: str, value: list[dict[str, Any]]) -> list[bytes]:
        if last[kind] == value:
            return []
        last[kind] = value
        return [responses.event(kind, value)]
