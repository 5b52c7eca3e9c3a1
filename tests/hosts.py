"""An engine for tests of placed servers: hosts in this process, which can be lost, cut off and brought back."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import orjson

from gaia import __version__
from gaia.mcp.cluster.host import ServerHost
from gaia.mcp.cluster.link import HostGone, HostLost, OnAnswer
from gaia.mcp.cluster.wire import (
    AskedCall,
    Greeting,
    HostEvent,
    HostSettings,
    Launch,
    Reply,
    StateReached,
    ToolsListed,
    decode_events,
    decode_greeting,
    decode_reply,
    encode,
)
from gaia.mcp.config.placement import Placement
from gaia.mcp.rpc.channel import Outgoing
from gaia.mcp.supervision.context import RecyclingLimits
from gaia.mcp.supervision.events import ServerState
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.runtime.clock import Clock, SystemClock
from gaia.runtime.threads import DaemonPool
from tests.waiting import PATIENCE


class LocalLink:
    """Messages run on threads of this process; a lost host's messages fail, and greetings wait for the next host."""

    actor_id = "local"
    is_left = False

    def __init__(self, new_host: Callable[[], ServerHost], *, has_place: bool = True) -> None:
        self._new_host = new_host
        self._pool = DaemonPool("test-hosts", 64)
        self._lock = threading.Lock()
        self._open: list[OnAnswer] = []
        self._greetings: list[tuple[bytes, OnAnswer]] = []
        self._held: list[tuple[str, tuple[object, ...], OnAnswer]] | None = None
        """What was sent while the host is cut off."""
        self._has_ended = False
        self.is_gone = False
        self.greetings_to_lose = 0
        self.greetings_to_hold = 0
        self.held_greetings: list[OnAnswer] = []
        self.host: ServerHost | None = new_host() if has_place else None
        self.sent: list[str] = []
        """The names of the methods, as they were sent."""

    def greet(self, settings: bytes, on_answer: OnAnswer) -> None:
        if self.greetings_to_lose:
            self.greetings_to_lose -= 1
            on_answer(None, HostLost("it is being started"))
            return
        if self.greetings_to_hold:
            self.greetings_to_hold -= 1
            self.held_greetings.append(on_answer)
            return
        with self._lock:
            if self.host is None and not self.is_gone:
                self._greetings.append((settings, on_answer))
                return
        self._send("greet", (settings,), on_answer)

    def call(self, asked: bytes, on_answer: OnAnswer, call: Outgoing) -> None:
        self._send("call", (asked,), on_answer)

    def poll(self, incarnation: str, acknowledged: int, on_answer: OnAnswer) -> None:
        self._send("poll", (incarnation, acknowledged), on_answer)

    def tell(self, method: str, *arguments: object, on_answer: OnAnswer = lambda *_: None) -> None:
        self._send(method, arguments, on_answer)

    def why_not_placed(self) -> str:
        return "no node has the resource 'browser'"

    def _send(self, method: str, arguments: tuple[object, ...], on_answer: OnAnswer) -> None:
        with self._lock:
            host, gone = self.host, self.is_gone
            self.sent.append(method)
            if host is not None:
                self._open.append(on_answer)
                if self._held is not None:
                    self._held.append((method, arguments, on_answer))
                    return
        if host is None:
            on_answer(None, HostGone("killed") if gone else HostLost("there is no host"))
            return
        self._pool.submit(lambda: self._run(getattr(host, method), arguments, on_answer))

    def _run(self, method: Callable[..., object], arguments: tuple[object, ...], on_answer: OnAnswer) -> None:
        answer = method(*arguments)
        with self._lock:
            if on_answer not in self._open:
                return
            self._open.remove(on_answer)
        on_answer(answer, None)

    # What tests do.

    def cut_off(self) -> None:
        """Let no message reach the host from now on."""
        with self._lock:
            self._held = []

    def heal(self) -> None:
        """Let all messages reach the host, or fail if its process has ended meanwhile."""
        with self._lock:
            held, self._held = self._held or [], None
            host, has_ended = self.host, self._has_ended
        if has_ended:
            self.replace()
            return
        for method, arguments, on_answer in held:
            self._pool.submit(lambda one=(method, arguments, on_answer): self._run(getattr(host, one[0]), *one[1:]))

    def replace(self) -> None:
        """Have another host in the place of one whose process has ended, as soon as that can be noticed."""
        with self._lock:
            self._has_ended = self._held is not None
        if self._has_ended:
            return
        self.lose()
        self.renew()

    def lose(self) -> ServerHost | None:
        """Lose the host, as an engine that has noticed it: what was sent to it fails. Returns the host."""
        with self._lock:
            host, self.host = self.host, None
            failed, self._open = self._open, []
        for on_answer in failed:
            on_answer(None, HostGone("killed") if self.is_gone else HostLost("the node died"))
        return host

    def renew(self, host: ServerHost | None = None) -> None:
        """Have another host in the place of a lost one."""
        with self._lock:
            self.host = host or self._new_host()
            greetings, self._greetings = self._greetings, []
        for settings, on_answer in greetings:
            self._send("greet", (settings,), on_answer)

    def kill(self) -> None:
        self.is_gone = True
        host = self.lose()
        for _, on_answer in self._greetings:
            on_answer(None, HostGone("killed"))
        if host is not None:
            host.stop()

    def withdraw(self) -> None:
        if self.host is None:
            self.kill()

    def close(self) -> None:
        """End the threads, after the test."""
        self._pool.drain(PATIENCE)


class LocalEngine:
    """Its hosts are in this process."""

    def __init__(self, *, has_place: bool = True) -> None:
        self._has_place = has_place
        self._shared: ServerHost | None = None
        self.unused = threading.Event()
        """Set when a shared host is of no use any more."""
        self.hosts: list[ServerHost] = []
        self.links: list[LocalLink] = []

    @property
    def link(self) -> LocalLink | None:
        """The last one."""
        return self.links[-1] if self.links else None

    def close(self) -> None:
        """End all threads, after the test."""
        for link in self.links:
            link.close()

    def _shared_host(self) -> ServerHost:
        """The one that all programs use, as long as it has not been stopped."""
        if self._shared is None or self._shared._stopped:
            self._shared = ServerHost("node-1", on_unused=self.unused.set)
            self.hosts.append(self._shared)
        return self._shared

    def _new_host(self) -> ServerHost:
        host = ServerHost("node-1", on_over=self._replace)
        self.hosts.append(host)
        return host

    def _replace(self) -> None:
        self.links[-1].replace()

    def start(self, name: str, placement: Placement) -> LocalLink:
        new_host = self._shared_host if placement.lifetime == "detached" else self._new_host
        self.links.append(LocalLink(new_host, has_place=self._has_place))
        return self.links[-1]


class Driver:
    """Talks to one host as the driver does, without an engine in between."""

    def __init__(self, server: dict[str, Any], clock: Clock | None = None) -> None:
        self.over = threading.Event()
        self.clock = clock or SystemClock()
        self.host = ServerHost("node-1", self.clock, self.over.set)
        self.settings = HostSettings(
            version=__version__,
            name="it",
            launch=Launch(command=server["command"], args=server["args"]),
            timeout=PATIENCE,
            capabilities={},
            question_timeout=PATIENCE,
            protocol="auto",
            start_timeout=60.0,
            probe_timeout=5,
            policy=RestartPolicy(initial_delay=0.01),
            health_interval=30,
            health_timeout=10,
            recycling=RecyclingLimits(),
            drain_timeout=5,
            standby=False,
        )
        self.incarnation = ""
        self.events: list[HostEvent] = []
        self._numbers = itertools.count(1)

    def greet(self, **changed: Any) -> Greeting:
        greeting = decode_greeting(self.host.greet(encode(msgspec.structs.replace(self.settings, **changed))))
        self.incarnation = greeting.incarnation
        return greeting

    def wait_for(self, state: ServerState, times: int = 1) -> StateReached:
        while True:
            found = [one for one in self.events if isinstance(one, StateReached) and one.state is state]
            if len(found) >= times:
                return found[-1]
            self.events += decode_events(self.host.poll(self.incarnation, len(self.events))).events

    @property
    def last_listing(self) -> int:
        """The number of the last listing of tools that was fetched."""
        return max((event.number for event in self.events if isinstance(event, ToolsListed)), default=0)

    def call(
        self,
        tool: str,
        number: int | None = None,
        *,
        sent: float | None = None,
        start: int | None = None,
        listing: int | None = None,
        **arguments: Any,
    ) -> Reply:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        number = number or next(self._numbers)
        sent = self.clock.monotonic() if sent is None else sent
        frame = orjson.dumps(message)
        listing = self.last_listing if listing is None else listing
        asked = AskedCall(self.incarnation, number, PATIENCE, None, False, True, tool, sent, frame, listing, start)
        return decode_reply(self.host.call(encode(asked)))
