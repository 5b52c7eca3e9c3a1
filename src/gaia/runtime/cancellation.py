"""`CancelScope`: cancels work from another thread.

The code that starts work enters a `CancelScope`. Cancelling it cancels each call to an MCP server inside, and notifies
the server. The scope lies in the context (`contextvars`), so it follows the work into threads that run with a copy of
the context.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from gaia.runtime.locks import reentrant_lock


class CancelScope:
    """Work that can be cancelled as a whole, once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        """Owns the two attributes below. Never held while a callback runs."""
        self._cancelled = False
        self._callbacks: dict[object, Callable[[], object]] = {}

    @property
    def cancelled(self) -> bool:
        """Whether the work was cancelled. A long calculation should check it from time to time."""
        return self._cancelled

    def cancel(self) -> bool:
        """Cancel the work, and run the callbacks in the calling thread. False if it was cancelled before."""
        with self._lock:
            if self._cancelled:
                return False
            self._cancelled = True
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            callback()
        return True

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Run `callback` when the work is cancelled, or at once if it was. Returns a function that unregisters it.

        A callback must be quick and must not raise, because further callbacks follow.
        """
        key = object()
        with self._lock:
            late = self._cancelled
            if not late:
                self._callbacks[key] = callback
        if late:
            callback()

        def forget() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return forget

    @contextlib.contextmanager
    def entered(self) -> Iterator[CancelScope]:
        """Make the block, and threads with a copy of its context, part of this scope and of its outer scopes."""
        outer = current_scope()
        forget = None if outer is None else outer.on_cancel(self.cancel)
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)
            if forget is not None:
                forget()


_current: ContextVar[CancelScope | None] = ContextVar("gaia_cancel_scope", default=None)

current_scope: Callable[[], CancelScope | None] = _current.get
"""The innermost scope around the caller; None if there is none."""
