"""The end of a host: its server is stopped there, or this program leaves it to others; then nothing is left of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gaia.mcp.cluster.cluster_loop import ClusterLoop
from gaia.mcp.cluster.link import HostGone, HostLink

_STOP_SECONDS = 30.0
"""That a host has to stop its server, before it is killed."""
_KILL_SECONDS = 10.0
"""That the engine has to end a host, before it is left alone."""
ENDING_SECONDS = _STOP_SECONDS + _KILL_SECONDS
"""Within which a host is ended."""
_SECONDS_BETWEEN_LOOKS = 0.02
"""At whether a host that was killed is gone."""


class PlacedEnding:
    """Ends one host, once. For the thread of the loop."""

    def __init__(
        self,
        link: HostLink,
        incarnation: str | None,
        *,
        is_shared: bool,
        loop: ClusterLoop,
        on_stopped: Callable[[], object],
        on_ended: Callable[[], object],
    ) -> None:
        """`incarnation` is None if the host was not greeted, or is lost. One that `is_shared` may have other users.

        `on_stopped` is called when its server answers no more calls, `on_ended` when nothing is left to be done: both
        on the loop's thread, and once.
        """
        self._link = link
        self._incarnation = incarnation
        self._is_shared = is_shared
        self._loop = loop
        self._on_stopped = on_stopped
        self._on_ended = on_ended
        self._is_stopped = False
        self._is_over = False

    def begin(self) -> None:
        if self._incarnation is not None:
            self._stop()
            self._loop.alarm(_STOP_SECONDS, lambda: self._stopped(is_needed=self._is_shared))
        elif self._is_shared:
            # One that has a place ends by itself, unless others use it.
            self._loop.steps.submit(self._withdraw, keep=True)
        else:
            self._kill()

    def _withdraw(self) -> None:
        try:
            self._link.withdraw()
        finally:
            self._loop.post(self._end)

    def _stop(self) -> None:
        def answered(is_last: Any, failure: BaseException | None) -> None:
            # Others may be using a shared host, unless it says that there are none.
            is_needed = self._is_shared and is_last is not True and not isinstance(failure, HostGone)
            self._loop.post(lambda: self._stopped(is_needed=is_needed))

        if self._is_shared:
            self._link.tell("leave", self._incarnation, on_answer=answered)
        else:
            self._link.tell("stop", on_answer=answered)

    def _stopped(self, *, is_needed: bool) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        self._on_stopped()
        if is_needed:
            self._end()
        else:
            self._kill()

    def _kill(self) -> None:
        self._link.kill()
        deadline = time.monotonic() + _KILL_SECONDS

        def look() -> None:
            if not self._is_over:
                self._link.tell("is_there", on_answer=lambda _, failure: self._loop.post(lambda: looked(failure)))

        def looked(failure: BaseException | None) -> None:
            if isinstance(failure, HostGone) or time.monotonic() > deadline:
                self._end()
            else:
                self._loop.alarm(_SECONDS_BETWEEN_LOOKS, look)

        self._loop.alarm(_KILL_SECONDS, self._end)
        look()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_ended()
