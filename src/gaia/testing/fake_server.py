"""`FakeServer`: an MCP server in memory that fails on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gaia.mcp.errors import StartFailed
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS, STATELESS_REVISIONS
from gaia.mcp.rpc.channel import ChannelListener, Ending
from gaia.mcp.transports.base import InProcessServer
from gaia.runtime.clock import Clock, SystemClock, require_seconds
from gaia.runtime.locks import WeakObjects, reentrant_lock
from gaia.testing.fake_channel import FakeChannel
from gaia.testing.fake_state import Content, FakeCall, FakeServerState, Fault
from gaia.testing.fake_tool import FakePrompt, FakeTool, Json
from gaia.testing.in_memory import InMemoryTransport

if TYPE_CHECKING:
    from gaia.testing.fake_http import FakeHttp

_REVISIONS = (*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS)
_JUNK = b"Warning: this line is no JSON-RPC message"


class FakeServer(InProcessServer):
    """An MCP server in this process, for tests of code that uses servers. Thread-safe.

    It stands in place of a configuration entry: ``MCPClientManager({"time": server})``, ``MCPClient.from_config("time",
    server)``, ``mcp_servers={"time": server}`` of an agent. With further keys the entry is ``{**server, "timeout":
    5}``. Supervision, calls and deadlines work as for any other server.

    The methods for faults (`crash`, `hang`, `delay`, `junk`, `disconnect`) have the same keywords. Without keywords,
    the fault affects the whole server at once, and RuntimeError is raised if it is not running. Otherwise the fault
    happens at the `nth` call from now on (default 1) and at the following ones, `times` in all. With `tool`, the
    server's own name of a tool, only calls of this tool count. Restarts do not change pending faults.
    """

    clock: Clock | None = None
    """The clock of the server and its clients; None means the system's clock."""

    def __init__(
        self,
        name: str,
        tools: Iterable[FakeTool | Callable[..., object] | Mapping[str, Any]] = (),
        *,
        resources: Mapping[str, Content | Callable[[], Content]] | None = None,
        prompts: Iterable[FakePrompt | Callable[..., object]] = (),
        instructions: str | None = None,
        protocol: str = HANDSHAKE_REVISIONS[0],
        clock: Clock | None = None,
    ) -> None:
        """`name` is the server's name in the handshake.

        `tools` are functions, from which definitions are derived, or definitions, or both as `FakeTool`. `resources`
        are texts or bytes by URI, or functions that return them; `prompts` are functions. `protocol` is the server's
        revision: up to "2025-11-25" with a handshake, from "2026-07-28" on without one. `clock`, such as a `FakeClock`,
        is the clock of the server and its clients: of deadlines, backoff, health checks and delays.

        Raises ValueError for an invalid tool or an unknown revision.
        """
        if protocol not in _REVISIONS:
            raise ValueError(f"protocol: must be one of {', '.join(_REVISIONS)}, got {protocol!r}")
        self.name = name
        self.clock = clock
        self._state = FakeServerState(
            name, revision=protocol, instructions=instructions, clock=clock or SystemClock(), notify=self._tell
        )
        self._lock = reentrant_lock()
        self._generation = 0
        self._start_failures: list[str] = []
        self._transports: WeakObjects[InMemoryTransport] = WeakObjects()
        self.tools, self.prompts = self._state.tools, self._state.prompts
        """Clients are notified of added and removed items."""
        self.resources = self._state.resources
        """By URI. Clients are notified of added, removed and updated resources."""
        for tool in tools:
            self.tools.add(tool)
        for uri, content in (resources or {}).items():
            self.resources.add(uri, content)
        for prompt in prompts:
            self.prompts.add(prompt)

    @classmethod
    def from_server(
        cls, server: Any, *, protocol: str = HANDSHAKE_REVISIONS[0], clock: Clock | None = None
    ) -> FakeServer:
        """One's own server, which runs in this process: a ``FastMCP``, or a server of the official SDK.

        It has the server's tools, resources and prompts of this moment. Calls go to the server's own functions, with
        their progress, log messages and questions; the faults of this class happen before and after. Each request has a
        session and a lifespan of its own. Resource templates and completion are left out.

        Raises ImportError without the package ``mcp``, and TypeError for another object.
        """
        from gaia.testing.sdk_server import SdkServer

        own = SdkServer(server)
        fake = cls(
            own.name,
            own.tools(),
            prompts=own.prompts(),
            instructions=own.instructions,
            protocol=protocol,
            clock=clock,
        )
        for uri, content, definition in own.resources():
            fake.resources.add(uri, content, **definition)
        return fake

    def __repr__(self) -> str:
        return f"FakeServer({self.name!r}, tools={list(self.tools)})"

    def transport(self, timeout: float) -> InMemoryTransport:
        """A new transport for one client, not open yet; `timeout` is in seconds."""
        transport = InMemoryTransport(self.name, timeout, self._start, lambda: self.transport(timeout))
        self._transports.add(transport)
        return transport

    def over_http(self) -> FakeHttp:
        """The server behind a URL of this machine: a context manager, whose ``url`` is for the entry of a server.

        Calls over HTTP count in `calls`, and faults at calls happen there too.
        """
        from gaia.testing.fake_http import FakeHttp

        return FakeHttp(self._state)

    @property
    def calls(self) -> list[FakeCall]:
        """The tool calls so far, in order of arrival, including those with faults."""
        return self._state.calls

    @property
    def starts(self) -> int:
        """Number of starts so far, failed ones included."""
        with self._lock:
            return self._generation

    def wait_for_call(self, tool: str | None = None, nth: int = 1) -> FakeCall:
        """Wait for the `nth` call, of `tool` if that is given, and return it. Earlier calls count.

        Raises AssertionError after 60 real seconds. In a coroutine, use ``await asyncio.to_thread(…)``.
        """
        return self._state.wait_for_call(tool, nth)

    # Faults.

    def crash(
        self,
        *,
        tool: str | None = None,
        nth: int | None = None,
        times: int | None = None,
        exit_code: int | None = 1,
        signal: str | None = None,
        stderr: str = "",
        after: bool = False,
    ) -> None:
        """End the server like a process that exits with `exit_code`, or that `signal`, such as "SIGKILL", kills.

        `stderr` is its last output there. With `after`, the tool runs, and only the answer is missing.
        """
        self._end(Ending(None if signal else exit_code, signal, stderr), tool, nth, times, after)

    def disconnect(
        self, *, tool: str | None = None, nth: int | None = None, times: int | None = None, after: bool = False
    ) -> None:
        """Lose the connection to the server, so that the client does not know how the server ended."""
        self._end(Ending(cause="closed the connection"), tool, nth, times, after)

    def hang(self, *, tool: str | None = None, nth: int | None = None, times: int | None = None) -> None:
        """Never answer a call; or, at once, stop reading and writing until the next start.

        `clear_faults` ends both.
        """
        self._add(Fault("hang"), tool, nth, times, FakeChannel.hang)

    def delay(
        self, seconds: float, *, tool: str | None = None, nth: int | None = None, times: int | None = None
    ) -> None:
        """Let `seconds` of the clock pass before a call is answered; without a keyword, before each further call."""
        require_seconds("seconds", seconds)
        every = tool is None and nth is None and times is None
        self._state.plan(Fault("delay", seconds=seconds), tool, nth or 1, None if every else times or 1)

    def junk(
        self, data: bytes = _JUNK, *, tool: str | None = None, nth: int | None = None, times: int | None = None
    ) -> None:
        """Write a line that is not a message, before the answer of a call or at once."""
        self._add(Fault("junk", data=data), tool, nth, times, lambda channel: channel.write(data))

    def fail_starts(self, times: int = 1, reason: str = "it was told to") -> None:
        """Let the next `times` starts fail, as for a command that does not exist."""
        with self._lock:
            self._start_failures += [reason] * times

    def clear_faults(self) -> None:
        """Forget all pending faults, and answer hanging calls."""
        self._state.clear_faults()
        with self._lock:
            self._start_failures.clear()
        for channel in self._present():
            channel.resume()

    def _end(self, ending: Ending, tool: str | None, nth: int | None, times: int | None, after: bool) -> None:
        self._add(Fault("end", ending=ending, after=after), tool, nth, times, lambda channel: channel.end(ending))

    def _add(
        self, fault: Fault, tool: str | None, nth: int | None, times: int | None, at_once: Callable[[FakeChannel], None]
    ) -> None:
        if tool is not None or nth is not None or times is not None:
            self._state.plan(fault, tool, nth or 1, times or 1)
            return
        channels = self._present()
        if not channels:
            raise RuntimeError(
                f"the fake server {self.name!r} is not running; for a later call, say which with tool, nth or times"
            )
        for channel in channels:
            at_once(channel)

    def _start(self, listener: ChannelListener, name: str) -> FakeChannel:
        with self._lock:
            self._generation += 1
            if self._start_failures:
                raise StartFailed(f"the fake server could not be started: {self._start_failures.pop(0)}")
            return FakeChannel(self._state, listener, name, self._generation)

    def _present(self) -> list[FakeChannel]:
        channels = [transport.channel for transport in self._transports.present()]
        return [channel for channel in channels if isinstance(channel, FakeChannel)]

    def _tell(self, method: str, params: Json) -> None:
        for channel in self._present():
            channel.session.tell(method, params)
