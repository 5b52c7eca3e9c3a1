"""What a client decides about its placed server, for all hosts that the server has one after the other."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gaia.mcp.cluster.link import Engine
from gaia.mcp.cluster.wire import HostSettings
from gaia.mcp.config.placement import Placement
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.supervision.context import SupervisionHooks
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.telemetry.spans import Executor


class PlacedContext(msgspec.Struct, frozen=True, kw_only=True):
    """Made once by a client, for all placed servers that it has one after the other. Durations in seconds."""

    name: str
    placement: Placement
    engine: Callable[[], Engine]
    settings: Callable[[], HostSettings]
    """Asked at each start: variables are filled in then. Raises ConfigError."""
    timeout: float
    """For requests without one of their own."""
    start_timeout: float
    """That a host and its server have to get ready."""
    drain_timeout: float = 30.0
    """That a process whose place was taken has to finish its calls."""
    is_lazy: bool = False
    """Whether its process is started by its first use."""
    max_pending: int
    hooks: SupervisionHooks
    server_requests: ServerRequests
    observer: Observer
    replica: int | None = None
    """The number of the replica, if it is one."""
    executor: Executor = lambda task: task()
    """Runs the application's span processors, for which the thread of the loop may not wait."""
