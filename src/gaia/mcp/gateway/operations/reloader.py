"""`Reloader`: reads the configuration again when its files have changed, and applies it to the gateway."""

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
"""Seconds between two looks at the files. A change counts once two looks have found the same state."""


class FileWatch:
    """Compares the metadata of files each time that `look` is called. Not thread-safe.

    It polls instead of using file notifications: network file systems send none, and editors and Kubernetes replace
    files by renaming, which notifications about a file miss.
    """

    def __init__(self, files: Callable[[], Iterable[Path]]) -> None:
        """`files` returns the files, each time it is called; they need not exist. Their current state is no change."""
        self._files = files
        self._known = self._last = self._stamps()

    def look(self) -> bool:
        """Whether the files have changed since they were `taken`, and are the same as at the last look.

        The second condition waits for a program that writes a file in several steps.
        """
        found = self._stamps()
        is_settled = found == self._last
        self._last = found
        if found == self._known or not is_settled:
            return False
        self._known = found
        return True

    def taken(self) -> None:
        """Take the current state of the files as known: they are about to be read."""
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
    """A part of the configuration: its files, and a function to load them."""

    files: Callable[[], Iterable[Path]]
    load: Callable[[], Callable[[], Any]]
    """Reads the files, on a thread, and returns a function that applies them. That function runs on the same thread and
    returns the changes. Raises an exception with the problem, before anything has changed."""


class Reloader:
    """Reads the sources again when their files change and when told to. For the gateway's event loop.

    One reload runs at a time. Requests that come meanwhile lead to one further reload.
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
        """Stop watching. A reload that runs in its thread continues, and is not waited for."""
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
        """Return when no reload is running."""
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
        """Read and apply the sources. Returns the reason why nothing was changed."""

        def run() -> None:
            # Read all sources before applying the first one, so that an error in one changes nothing.
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
