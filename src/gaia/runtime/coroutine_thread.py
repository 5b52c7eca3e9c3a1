"""One thread with an event loop, for the application's async functions that have no loop of their own.

A caller that awaits its call has a loop; a caller that blocks has none. The thread runs while it has users, so that an
object which an async function keeps for its next run, such as an HTTP client, stays with the same loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from gaia.runtime.locks import WeakObjects, reentrant_lock, steady_start
from gaia.runtime.loop_work import LoopWork

T = TypeVar("T")

_END_SECONDS = 1.0
"""How long cancelled tasks have to end."""

_JOIN_SECONDS = 2.0


class CoroutineThread:
    """Thread-safe."""

    def __init__(self) -> None:
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._lock = reentrant_lock()
        """Owns everything below."""
        self._users: set[object] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: LoopWork | None = None
        self._thread: threading.Thread | None = None

    def loop_for(self, user: object) -> LoopWork:
        """The loop, which runs until its last user calls `let_go`. Raises RuntimeError if no thread can be started."""
        with self._lock:
            if self._work is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_run, args=(loop,), name="mcp-coroutines", daemon=True)
                steady_start(thread)
                try:
                    thread.start()
                except RuntimeError:
                    loop.close()
                    raise
                self._loop, self._work, self._thread = loop, LoopWork(loop), thread
            self._users.add(user)
            return self._work

    def let_go(self, user: object) -> None:
        """End the loop, and cancel its tasks, if `user` was its last user. Waits two seconds at most."""
        with self._lock:
            self._users.discard(user)
            if self._users or self._loop is None:
                return
            loop, thread = self._loop, self._thread
            self._loop = self._work = self._thread = None
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=_END_SECONDS))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def run_apart(coroutine: Coroutine[Any, Any, T], work: LoopWork) -> T:
    """Run a coroutine on the loop of `work`, in this context, while this thread waits."""
    loop = work.loop
    assert loop is not None, "it runs until its last user lets go"
    if work.is_current():
        coroutine.close()
        raise RuntimeError("a coroutine cannot wait for another one on its own loop: await the call, with gaia.mcp.aio")
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


_all = WeakObjects(CoroutineThread._begin)

coroutine_thread = CoroutineThread()
"""The one of this process."""
