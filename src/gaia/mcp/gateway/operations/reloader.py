"""`Reloader`: reads the configuration again when its files change, and applies it to the gateway."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from gaia.mcp.aio.threads import in_thread
from gaia.mcp.gateway.access.gate import Scheduler, Timer
from gaia.mcp.gateway.operations.status import ReloadStatus
from gaia.runtime.log import exception_text, get_logger

logger = get_logger(__name__)

_LOOK_SECONDS = 1.0
"""Seconds between two looks. A change counts when two successive looks find the same state."""


class FileWatch:
    """Compares the metadata of files whenever `look` is called. Not thread-safe.

    It polls because network file systems send no notifications, and because editors and Kubernetes replace files by
    renaming, which notifications about a file miss.
    """

    def __init__(self, files: Callable[[], Iterable[Path]]) -> None:
        """`files` is called for each look, and returns files that need not exist. Their present state is the base."""
        self._files = files
        self._known = self._last = self._stamps()

    def look(self) -> bool:
        """Whether the files have changed since `taken`, and have been at rest since the last look."""
        found = self._stamps()
        is_settled = found == self._last
        self._last = found
        if found == self._known or not is_settled:
            return False
        self._known = found
        return True

    def taken(self) -> None:
        self._known = self._last = self._stamps()

    def _stamps(self) -> dict[Path, tuple[int, int, int] | None]:
        return {file: _stamp(file) for file in self._files()}


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class Source(NamedTuple):
    files: Callable[[], Iterable[Path]]
    load: Callable[[], Callable[[], Any]]
    """On a thread: reads the files or raises. Returns a function that applies them and returns the changes."""


class Reloader:
    """Reads the sources again when their files change, and on request. For the gateway's event loop.

    One reload runs at a time. Requests during a reload lead to one further reload.
    """

    def __init__(
        self,
        sources: Iterable[Source],
        scheduler: Scheduler,
        *,
        began: Callable[[], None] = lambda: None,
        ended: Callable[[ReloadStatus], None] = lambda _: None,
    ) -> None:
        self._sources = list(sources)
        self._scheduler = scheduler
        self._began = began
        self._ended = ended
        self._watch = FileWatch(lambda: [file for source in self._sources for file in source.files()])
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_wanted = False

    def start(self) -> None:
        self._timer = self._scheduler.call_later(_LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Stop watching. A reload continues in its thread, and `stop` does not wait for it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_wanted = False
        if self._task is not None:
            self._task.cancel()

    def reload(self) -> None:
        self._is_wanted = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._reload())

    async def wait(self) -> None:
        while self._task is not None:
            await asyncio.wait([self._task])

    def _look(self) -> None:
        self._timer = self._scheduler.call_later(_LOOK_SECONDS, self._look)
        if self._watch.look():
            self.reload()

    async def _reload(self) -> None:
        try:
            while self._is_wanted:
                self._is_wanted = False
                self._began()
                self._watch.taken()
                error = await self._attempt()
                self._ended(ReloadStatus(at=time.time(), error=error))
        finally:
            self._task = None

    async def _attempt(self) -> str | None:
        def run() -> None:
            # All sources are read before the first is applied, so that an error in one changes nothing.
            for apply in [source.load() for source in self._sources]:
                apply()

        try:
            await in_thread(run)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the files, the gateway goes on as it is
            reason = str(error) if isinstance(error, ValueError) else exception_text(error)
            logger.error("gateway_reload_refused", error=reason)
            return reason
        logger.info("gateway_reloaded")
        return None
