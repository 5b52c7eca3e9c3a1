"""Locks and other tools for code that a signal handler, a finalizer or a fork may interrupt at any line.

A signal handler runs in the main thread between two instructions, and a finalizer in any thread that allocates memory.
Both may call gaia while the interrupted code holds a lock. A forked child has copies of all locks; threads that do not
exist in the child may hold some of them.
"""

from __future__ import annotations

import contextlib
import importlib
import operator
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class WeakObjects(Generic[T]):
    """A set of weak references. Unlike `weakref.WeakSet`, a thread may iterate over it while others change it."""

    def __init__(self, after_fork: Callable[[T], object] | None = None) -> None:
        self._objects: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()
        """By identity. Each operation below is a single operation of a dict, so no lock is needed."""
        if after_fork is not None and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: [after_fork(one) for one in self.present()])

    def add(self, one: T) -> None:
        self._objects[id(one)] = one

    def discard(self, one: T) -> None:
        self._objects.pop(id(one), None)

    def clear(self) -> None:
        self._objects = weakref.WeakValueDictionary()

    def present(self) -> list[T]:
        return [one for reference in self._objects.valuerefs() if (one := reference()) is not None]


def _free(lock: Any) -> None:
    # A lock that this thread held when it forked stays held: this thread releases it.
    if lock.acquire(False):
        lock.release()
    else:
        lock._at_fork_reinit()


_reentrant: WeakObjects[Any] = WeakObjects(_free)
"""Registered first, so these locks are free when the fork hooks of other modules run in the child."""


def reentrant_lock() -> threading.RLock:
    """A lock that its holder may take again, and that is free in a forked child.

    Code that interrupts the holder in the same thread sees the protected data between two lines, so the data must be
    usable there. The holder must not wait for a thread that needs the lock.
    """
    lock = threading.RLock()
    _reentrant.add(lock)
    return lock


def lock_held_over_forks() -> threading.RLock:
    """Like `reentrant_lock`, but a fork waits until the lock is free, so the child finds complete data.

    A thread that forks holds all of these locks, so no thread may take one of them while it holds another.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


_imported: set[str] = set()


def import_apart(*modules: str) -> None:
    """Import modules on a separate thread, before an import statement inside a function uses them.

    Otherwise a signal handler that interrupts the import, and needs the same module, would find a half-initialised
    module.
    """
    if _imported.issuperset(modules):
        return

    def load() -> None:
        # The caller's import statement raises the same exception.
        with contextlib.suppress(Exception):
            for module in modules:
                importlib.import_module(module)
            _imported.update(modules)

    thread = threading.Thread(target=load, name="gaia-import", daemon=True)
    with contextlib.suppress(RuntimeError):
        thread.start()
        thread.join()


class Latch:
    """Closed until `open` is called, then open for ever. Thread-safe.

    A `threading.Event` has a lock that an interrupted thread may hold in `set` or `wait`. A latch is one lock, which is
    free when the latch is open.
    """

    __slots__ = ("_gate", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def open(self) -> None:
        try:
            self.is_open = True
        finally:
            self._let_pass()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the latch is open, at most `timeout` seconds (None: for ever). Returns whether it is open."""
        if self.is_open:
            return True
        try:
            self._gate.acquire(True, -1 if timeout is None else max(0.0, timeout))
        finally:
            # A signal handler may raise just after this thread acquired the gate, and other threads wait for the gate.
            if self.is_open:
                self._let_pass()
        return self.is_open

    def _let_pass(self) -> None:
        # Another thread that found the latch open may have released it.
        with contextlib.suppress(RuntimeError):
            self._gate.release()


class SteadyCondition(threading.Condition):
    """A condition that no exception of a signal handler leaves locked at the beginning of a ``with`` statement.

    `threading.Condition` has a method in Python that takes the lock, and a handler may raise between the two. Then the
    thread that completes a future, or that has just been started, would wait for the lock for ever.
    """

    __enter__ = property(operator.attrgetter("_lock.__enter__"))
    __exit__ = property(operator.attrgetter("_lock.__exit__"))


def steady_start(thread: threading.Thread) -> None:
    """Prepare a thread that is not started yet: if an exception interrupts `start`, the thread runs all the same."""
    thread._started._cond = SteadyCondition()  # type: ignore[attr-defined]


class TimedQueue(queue.SimpleQueue[T]):
    """A queue for `get_within`, with one reader.

    In Python 3.11 and 3.12 a `SimpleQueue.get` with a timeout may wait for ever: after a signal (any with a handler, or
    `os.seteuid`, which signals every thread) it computes the remaining time anew, and takes a negative one for no
    timeout. Locks do not have this defect.
    """

    def __init__(self) -> None:
        self._gate = threading.Lock()

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Never waits. Signal handlers and finalizers may put items too."""
        super().put(item, block, timeout)
        if self._gate.locked():
            # Another thread may have just released it.
            with contextlib.suppress(RuntimeError):
                self._gate.release()

    def wait(self, seconds: float) -> bool:
        """Wait until an item may have come since the last wait; False if none has after `seconds`."""
        return self._gate.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


def get_within(source: TimedQueue[T], seconds: float) -> T:
    """The next item of a queue; raises `queue.Empty` after `seconds`."""
    deadline, remaining = time.monotonic() + seconds, seconds
    while True:
        try:
            return source.get_nowait()
        except queue.Empty:
            if remaining <= 0 or not source.wait(remaining):
                break
            remaining = deadline - time.monotonic()
    return source.get_nowait()


def end_once(claim: dict[None, tuple[Any, ...]], outcome: tuple[Any, ...], conclude: Callable[..., object]) -> bool:
    """Call ``conclude(*outcome)``, unless another thread has claimed the same end; then return False.

    `claim` belongs to the object that ends, and is empty until then. It is not a lock, because an interrupted thread
    must be able to find out whether its claim was made. After an interruption `conclude` is called again.
    """
    try:
        if claim.setdefault(None, outcome) is not outcome:
            return False
        conclude(*outcome)
    except BaseException:
        if claim.get(None) is outcome:
            conclude(*outcome)
        raise
    return True


def completed(step: Callable[[], T]) -> T:
    """Run `step`, and once more if an exception, such as a signal handler's, interrupts it."""
    try:
        return step()
    except BaseException:
        step()
        raise
