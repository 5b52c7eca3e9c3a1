"""Which servers of a manager are ready, why the others are not, and how a thread or a task waits for them."""

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
"""Seconds for which connecting the servers of a configuration waits for slow ones, by default."""

_USABLE = {ServerState.READY, ServerState.EXITED}
"""States in which calls are accepted: the next call starts a server that has exited by itself."""

_FINAL = {ServerState.NEEDS_AUTHORIZATION, ServerState.CLOSED}

_WORDS = {
    ServerState.CREATED: "it is being started",
    ServerState.STARTING: "it is being started",
    ServerState.AUTHORIZING: "a person is being asked to log in",
    ServerState.RESTARTING: "it is being started again",
    ServerState.CLOSED: "it was disconnected",
}


class Absence(NamedTuple):
    error: ServerUnavailable
    is_final: bool
    """Whether only the application or a person can end the absence."""


def absence_of(name: str, status: ServerStatus | None, config: MCPConfig, *, joined: bool) -> Absence | None:
    """Why the server `name` is not ready; None if it is. Without a `status` it was not started."""
    if status is None:
        if not config.server_exists(name):
            reason = "there is no server of this name, neither in the configuration nor added"
        elif is_disabled(config, name):
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
    is_over: Callable[[], bool]
    outcome: Callable[[], T]
    """Returns the outcome of the wait, or raises why it failed. May be called at any time, also after a timeout."""


class Readiness:
    """Lets threads and tasks wait for a condition of a manager's servers. Thread-safe."""

    def __init__(self) -> None:
        self._waiting: set[Callable[[], object]] = set()
        """One function for each waiting thread or task, which adds and removes its own. Other threads copy the set."""

    def changed(self) -> None:
        for wake in list(self._waiting):
            wake()

    @contextlib.contextmanager
    def watched(self, wake: Callable[[], object]) -> Iterator[None]:
        """Call `wake` after each change inside the block, on any thread. It must return at once and must not raise."""
        self._waiting.add(wake)
        try:
            yield
        finally:
            self._waiting.discard(wake)

    def wait(self, is_over: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until `is_over` returns true, at most `timeout` seconds (None: no limit). Returns whether it did."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            latch = Latch()
            with self.watched(latch.open):
                # A change after this check opens the latch.
                if is_over():
                    return True
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    return False
                latch.wait(remaining)


def require_wait(timeout: float | None, name: str = "timeout") -> None:
    """Raise ValueError unless `timeout` is None (no limit), 0 (no wait) or a duration."""
    if timeout not in (None, 0):
        require_seconds(name, timeout)


def enabled_servers(config: MCPConfig) -> list[str]:
    return [name for name in config.get_entries() if not is_disabled(config, name)]


def is_disabled(config: MCPConfig, name: str) -> bool:
    return config.get_server(name).get("disabled") is True
