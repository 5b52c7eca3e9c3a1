"""Which servers of a manager are ready, what keeps the others from it, and waiting for that."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import ServerUnavailable
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import ServerStatus
from gaia.runtime.clock import require_seconds
from gaia.runtime.locks import Latch

T = TypeVar("T")

LOADING_SECONDS = 10.0
"""How long connecting the servers of a configuration waits for those that take long to start."""

_USABLE = {ServerState.READY, ServerState.EXITED}
"""A server that has exited by itself is started by the next call."""

_FINAL = {ServerState.NEEDS_AUTHORIZATION, ServerState.CLOSED}

_WORDS = {
    ServerState.CREATED: "it is being started",
    ServerState.STARTING: "it is being started",
    ServerState.AUTHORIZING: "a person is being asked to log in",
    ServerState.RESTARTING: "it is being started again",
    ServerState.CLOSED: "it was disconnected",
}


class Absence(NamedTuple):
    """Why a server is not ready."""

    error: ServerUnavailable
    is_final: bool
    """Whether it stays so until the application or a person does something."""


def absence_of(
    name: str, status: ServerStatus | None, *, is_configured: bool, is_disabled: bool, joined: bool
) -> Absence | None:
    """Why the server `name` is not ready; None if it is.

    `status` is None if it was not started. `joined`: its tools can be called.
    """
    if status is None:
        if not is_configured:
            reason = "there is no server of this name, neither in the configuration nor added"
        elif is_disabled:
            reason = "it is disabled in the configuration"
        else:
            reason = "it was not started; call load_from_config()"
        return Absence(ServerUnavailable.of(name, reason), is_final=True)
    state = status.state
    if state in _USABLE and joined:
        return None
    reason = status.last_error or _WORDS.get(state, f"it is {state.value}")
    is_final = state in _FINAL or (state is ServerState.FAILED and status.retry_in is None)
    return Absence(ServerUnavailable.of(name, reason, status.retry_in), is_final)


class Goal(NamedTuple, Generic[T]):
    """What a thread or a task waits for."""

    is_over: Callable[[], bool]
    """Whether there is nothing to wait for any more."""
    outcome: Callable[[], T]
    """What the wait has come to, or raises the reason why it failed; for any moment, when time is up too."""


class Readiness:
    """Lets threads and tasks wait until the servers of a manager are in some condition. Thread-safe."""

    def __init__(self) -> None:
        self._waiting: set[Callable[[], object]] = set()
        """What wakes up each thread or task that waits, which adds and removes it itself; others copy the set."""

    def changed(self) -> None:
        """The condition of a server may have changed."""
        for wake in list(self._waiting):
            wake()

    @contextlib.contextmanager
    def watched(self, wake: Callable[[], object]) -> Iterator[None]:
        """In the block, `wake` is called after each change, on any thread; it must be quick, and must not raise."""
        self._waiting.add(wake)
        try:
            yield
        finally:
            self._waiting.discard(wake)

    def wait(self, is_over: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until `is_over` says so, at most `timeout` seconds (None: for ever). Whether it does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            latch = Latch()
            with self.watched(latch.open):
                # A change after this look opens the latch.
                if is_over():
                    return True
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    return False
                latch.wait(remaining)


def require_wait(timeout: float | None, name: str = "timeout") -> None:
    """Raise ValueError unless a method can wait this long; None is without a limit, and 0 is not at all."""
    if timeout not in (None, 0):
        require_seconds(name, timeout)


def enabled_servers(config: MCPConfig) -> list[str]:
    """The servers that are configured and not disabled."""
    return [name for name in config.get_entries() if not is_disabled(config, name)]


def is_disabled(config: MCPConfig, name: str) -> bool:
    """Whether the entry of a server says ``"disabled": true``."""
    return config.get_server(name).get("disabled") is True
