"""Another configuration for a manager that runs: what it changes, and what has become of each change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from gaia.runtime.locks import reentrant_lock
from gaia.runtime.threads import EngineThread


class AppliedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `MCPClientManager.apply` has done. Each is names of servers, sorted; a server is in one of them."""

    unchanged: tuple[str, ...] = ()
    """Nothing was done about them."""
    started: tuple[str, ...] = ()
    """They run, and did not before."""
    replaced: tuple[str, ...] = ()
    """They have another configuration: a process that was started with it has taken over without a gap."""
    removed: tuple[str, ...] = ()
    """They are not in the configuration any more, or are disabled there. They have finished their calls and ended."""
    failed: Mapping[str, str] = {}
    """Servers that could not be started, with the reason. One that was to be replaced goes on as it was; a new one is
    tried again in the background."""
    pending: tuple[str, ...] = ()
    """Their change was still under way when the time was up, and goes on."""


class Changes:
    """Makes the changes of several servers at once, each on a thread of its own, and knows what has come of them."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        """Owns the outcomes."""
        self._outcomes: dict[str, tuple[str, str | None]] = {}
        """What was to be done with each server, and why it has failed, if it has."""
        self._begun: dict[str, threading.Thread | None] = {}

    def begin(
        self, name: str, what: str, change: Callable[[], str | None], *, after: threading.Thread | None = None
    ) -> threading.Thread | None:
        """Have `change` made, which returns why it has failed, or None. Returns its thread, unless it had to be ours.

        `what` is a field of `AppliedConfig`. It is made when the thread `after` has ended.
        """

        def run() -> None:
            failure: str | None = "it was interrupted"
            try:
                if after is not None:
                    after.join()
                failure = change()
            finally:
                with self._lock:
                    self._outcomes[name] = (what, failure)

        # A log handler that never returns must not hold up `disconnect_all`, which waits for this thread.
        thread = EngineThread(run, f"mcp-{name}-apply")
        self._begun[name] = None
        try:
            thread.start()
        except RuntimeError:
            # The system starts no more threads: this one makes the change.
            run()
            return None
        self._begun[name] = thread
        return thread

    def wait(self, timeout: float | None) -> None:
        """Return when all changes are made, after `timeout` seconds at the latest (None: no limit)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in self._begun.values():
            if thread is not None:
                thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def result(self, unchanged: list[str]) -> AppliedConfig:
        """What has been done until now, besides nothing about the `unchanged` ones."""
        with self._lock:
            outcomes = dict(self._outcomes)

        def done(what: str) -> tuple[str, ...]:
            return tuple(sorted(name for name, outcome in outcomes.items() if outcome == (what, None)))

        return AppliedConfig(
            unchanged=tuple(sorted(unchanged)),
            started=done("started"),
            replaced=done("replaced"),
            removed=done("removed"),
            failed={name: failure for name, (_, failure) in sorted(outcomes.items()) if failure is not None},
            pending=tuple(sorted(name for name in self._begun if name not in outcomes)),
        )
