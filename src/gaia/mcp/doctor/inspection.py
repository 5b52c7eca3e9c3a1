"""One inspection of a server: start it, shake hands, list its tools, ask it for signs of life, and stop it again."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from gaia.mcp.client.mcp_client import MCPClient
from gaia.mcp.client.ping import ping
from gaia.mcp.errors import MCPError
from gaia.mcp.protocol.exchange import drive, paginate
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.channel import Channel, ChannelListener, Outgoing
from gaia.mcp.supervision.status import ServerStatus
from gaia.mcp.transports.base import ChannelTransport


@dataclass
class Inspection:
    """What was found out about a server. Durations are in seconds; None for what was not reached."""

    error: str | None = None
    """Why the server did not get ready."""
    pid: int | None = None
    start_seconds: float | None = None
    """How long it took to start the process, or to reach the endpoint."""
    handshake_seconds: float | None = None
    """How long the handshake took, or until the server was given up."""
    status: ServerStatus | None = None
    server_info: dict[str, Any] = field(default_factory=dict)
    capabilities: dict[str, Any] = field(default_factory=dict)
    definitions: list[Any] | None = None
    """The tools as the server lists them, nothing filtered."""
    denied: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    """The tools that wait for approval."""
    unmatched: list[str] = field(default_factory=list)
    """Patterns of the server's filter that match no tool."""
    list_seconds: float | None = None
    list_error: str | None = None
    pings: list[float] = field(default_factory=list)
    ping_error: str | None = None

    @property
    def server(self) -> str:
        """The server's name and version, by its own account."""
        known = [str(self.server_info[key]) for key in ("name", "version") if key in self.server_info]
        return " ".join(known) or "a server without a name"

    @property
    def ping(self) -> float | None:
        """The median."""
        return statistics.median(self.pings) if self.pings else None


def inspect_server(client: MCPClient, pings: int = 5) -> Inspection:
    """Inspect a server that is not connected. It has been stopped when this returns or raises."""
    seen = Inspection()
    try:
        watch = _Stopwatch.on(client)
        ready = client.connect()
        ended = time.perf_counter()
        if watch.opened is not None:
            seen.start_seconds, seen.pid = watch.opened - watch.began, watch.pid
        seen.handshake_seconds = (watch.listing or ended) - (watch.opened or watch.began)
        if ready:
            seen.server_info, seen.capabilities = client.server_info, client.capabilities
            _list(client, seen)
            _ping(client, seen, pings)
        else:
            seen.error = client.last_error or "the reason is not known"
        seen.status = client.status
    finally:
        client.disconnect()
    return seen


def _list(client: MCPClient, seen: Inspection) -> None:
    if "tools" not in seen.capabilities:
        seen.definitions = []
        return
    began = time.perf_counter()
    try:
        seen.definitions = drive(
            paginate("tools/list", "tools"),
            lambda step: client.request(step.method, step.params, timeout=step.timeout),
            _refuse_step,
        )
    except MCPError as error:
        seen.list_error = error.message
        return
    finally:
        seen.list_seconds = time.perf_counter() - began
    seen.denied, seen.blocked = client.denied_tools, frozenset(client.blocked_tools)
    names = [str(tool.get("name")) for tool in seen.definitions if isinstance(tool, dict)]
    seen.unmatched = client.tool_filter.unmatched(client.name, names)


def _ping(client: MCPClient, seen: Inspection, times: int) -> None:
    for _ in range(times):
        began = time.perf_counter()
        try:
            ping(client)
        except MCPError as error:
            seen.ping_error = error.message
            return
        finally:
            seen.pings.append(time.perf_counter() - began)


def _refuse_step(step: object) -> None:
    raise AssertionError(f"a list does not take the step {step!r}")


class _Stopwatch:
    """When the parts of a connection happened, by ``time.perf_counter()``; None for what has not happened."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.opened: float | None = None
        """The server's process had been started."""
        self.listing: float | None = None
        """Its tools were asked for, so the handshake was over."""
        self.pid: int | None = None

    @classmethod
    def on(cls, client: MCPClient) -> _Stopwatch:
        """Watch a client that is about to connect for the first time."""
        watch, transport = cls(), client.transport
        if isinstance(transport, ChannelTransport):
            # Of this transport alone; the client has it already.
            vars(transport)["open"] = functools.partial(watch._open, transport.open)
        return watch

    def _open(
        self, open_channel: Callable[[ChannelListener, str], Channel], listener: ChannelListener, name: str
    ) -> Channel:
        channel = open_channel(listener, name)
        self.opened = time.perf_counter()
        self.pid = channel.pid
        return cast(Channel, _WatchedChannel(channel, self))


class _WatchedChannel:
    def __init__(self, channel: Channel, watch: _Stopwatch) -> None:
        self._channel = channel
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def send(self, item: Outgoing) -> bool:
        if self._watch.listing is None and isinstance(item, Call) and item.method == "tools/list":
            self._watch.listing = time.perf_counter()
        return self._channel.send(item)
