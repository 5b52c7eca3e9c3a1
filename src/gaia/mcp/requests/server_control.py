"""What a session needs of a supervisor, or of what stands for one whose server runs elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gaia.mcp.protocol.eras import ServerProfile
from gaia.mcp.requests.caller import Supervised
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.status import CallStatistics, ServerStatus


class Condition(Protocol):
    """What a session reads of a server's condition."""

    @property
    def profile(self) -> ServerProfile | None: ...

    @property
    def last_error(self) -> str | None: ...

    @property
    def keep_trying(self) -> bool: ...

    @property
    def ever_ready(self) -> bool: ...

    def status(self, statistics: CallStatistics, tool_count: int) -> ServerStatus: ...


class ServerControl(Supervised, Protocol):
    """What a session needs of a supervisor; see `Supervisor`."""

    @property
    def is_forked(self) -> bool: ...

    @property
    def state(self) -> ServerState: ...

    @property
    def condition(self) -> Condition: ...

    def start(self, *, keep_trying: bool = False) -> bool: ...

    def stop(self, drain: float = 0.0) -> None: ...

    def request_stop(self, drain: float = 0.0) -> None: ...

    def abandon(self, release: Callable[[], object], /) -> bool: ...

    def wake(self) -> None: ...

    def replace_now(self, drain: float, /) -> bool: ...

    def subscriptions_changed(self) -> None: ...

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None: ...


class ServerContext(Protocol):
    """What a session needs to know of a server's configuration. Durations in seconds."""

    @property
    def name(self) -> str: ...

    @property
    def timeout(self) -> float: ...

    @property
    def drain_timeout(self) -> float: ...
