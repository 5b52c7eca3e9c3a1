"""A supervisor over a `FakeTransport` and a `FakeClock`, with everything it says recorded."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from gaia.mcp.errors import MCPError
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.eras import ClientIdentity, ServerProfile
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.requests.caller import Caller
from gaia.mcp.requests.client_requests import ClientRequests
from gaia.mcp.requests.exchange import CallOptions, OnProgress, RequestExchange, RequestSession
from gaia.mcp.requests.response_cache import ResponseCache
from gaia.mcp.requests.submitted_request import CallFuture
from gaia.mcp.rpc.call import Call
from gaia.mcp.supervision.callbacks import CallbackPool
from gaia.mcp.supervision.client_features import ClientFeatures
from gaia.mcp.supervision.context import KnownServer, Listing, RecyclingLimits, SupervisionContext
from gaia.mcp.supervision.events import Event, GaveUp, Restarted, ServerState, StateChanged
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.mcp.supervision.spare import OnReplaced
from gaia.mcp.supervision.status import CallStatistics
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.mcp.supervision.supervisor import Supervisor
from gaia.mcp.transports.base import Authorization
from gaia.runtime.clock import Clock, SystemClock
from gaia.runtime.deadlines import deadlines_of
from gaia.runtime.threads import DaemonPool
from gaia.testing import FakeClock
from tests.fake_transport import FakeChannel, FakeTransport, stateless_answers
from tests.waiting import PATIENCE, wait_until

E = TypeVar("E", bound=Event)

NO_FEATURES = ClientFeatures()
NO_LIMITS = RecyclingLimits()

STEADY = RestartPolicy(jitter=0.0)
"""The default policy without chance: the first restart is immediate, the next backoffs are 0.5 s, 1 s and 2 s."""

FRAGILE = RestartPolicy(jitter=0.0, max_restarts=2)
"""Gives up at the third end within a minute."""


class SessionOf(Caller[Supervisor]):
    """A session that is always connected."""

    waits_in_caller = False

    @property
    def profile(self) -> ServerProfile | None:
        return self.supervisor.condition.profile

    def is_connected(self) -> bool:
        return True

    def require_connected(self) -> None: ...

    def subscriptions_changed(self) -> None: ...


def made(session: RequestSession, exchange: RequestExchange, clock: Clock | None = None) -> dict[str, Any]:
    """Make one round of a request, and wait for its answer."""
    call = session.new_call(exchange)
    call.perform(clock or SystemClock())
    session.record(call)
    if call.error is not None:
        raise call.error
    return call.result


class Supervised:
    """A server under supervision. It is the hooks of its supervisor, too."""

    def __init__(
        self,
        clock: FakeClock,
        policy: RestartPolicy = STEADY,
        *,
        health_interval: float = 1_000_000.0,
        health_timeout: float = 10.0,
        max_pending: int = 100,
        timeout: float = 30.0,
        start_timeout: float | None = None,
        stateless: bool = False,
        protocol: str = "",
        features: ClientFeatures = NO_FEATURES,
        authorization: Authorization | None = None,
        standby: bool = False,
        recycling: RecyclingLimits = NO_LIMITS,
        drain_timeout: float = 30.0,
        lazy: bool = False,
        idle_stop: float | None = None,
        known: KnownServer | None = None,
    ) -> None:
        """A server of the handshake era, or a `stateless` one; the client knows, unless `protocol` says "auto".

        Without `health_interval` the idle server is never asked whether it lives. Without `start_timeout` it has
        `timeout` to get ready.
        """
        self.clock = clock
        self.transport = FakeTransport(timeout, stateless_answers() if stateless else None)
        self.transport.authorization = authorization
        self.callbacks = CallbackPool("test")
        self.subscriptions = Subscriptions()
        self.server_request_threads = CallbackPool("test", "server-requests")
        self.server_requests = ServerRequests("fake", features, self.server_request_threads, clock, 600.0, max_pending)
        self.context = SupervisionContext(
            name="fake",
            transport=self.transport,
            identity=ClientIdentity("test", "1", features.capabilities),
            negotiation=Negotiation(protocol or ("stateless" if stateless else "handshake")),
            policy=policy,
            start_timeout=timeout if start_timeout is None else start_timeout,
            health_interval=health_interval,
            health_timeout=health_timeout,
            max_pending=max_pending,
            standby=standby,
            recycling=recycling,
            drain_timeout=drain_timeout,
            lazy=lazy,
            idle_stop=idle_stop,
            hooks=self,
            server_requests=self.server_requests,
            clock=self.clock,
            rng=random.Random(1),
            observer=Observer("fake"),
        )
        self.supervisor = Supervisor(self.context)
        self.caller = SessionOf(self.supervisor, clock, timeout)
        self.requests = ClientRequests(
            self.caller,
            self.server_requests,
            ResponseCache(clock),
            Observer("fake"),
            clock,
            DaemonPool("test-steps", 8),
        )
        self._threads = ThreadPoolExecutor(64, "test-caller")
        self.adoptions: list[SupervisionContext] = []
        """What was adopted, on the supervisor's thread."""
        self.known = known
        self.unsafe: set[str] = set()
        """Tools that must not be repeated any more."""
        self._happened = threading.Condition()
        """Owns everything below."""
        self.events: list[Event] = []
        self.reactions: list[Callable[[Event], None]] = []
        """Called with each event on the supervisor's thread: what happens at exactly that moment."""
        self.listings: list[list[Any]] = []
        self._seen = 0

    def close(self) -> None:
        for number in range(1, self.transport.starts + 1):
            self.transport.channel(number).let_close()
        self.supervisor.stop()
        self._threads.shutdown()
        self.callbacks.close()
        self.server_request_threads.close()

    # The supervisor's hooks.

    def listing_begins(self) -> Listing:
        return Listing(0, self.clock.monotonic())

    def tools_listed(self, definitions: list[Any] | None, listing: Listing) -> None:
        with self._happened:
            self.listings.append(definitions or [])
            self._happened.notify_all()

    def tools_remembered(self, definitions: list[Any]) -> None:
        self.tools_listed(definitions, self.listing_begins())

    def refusal_of(self, tool: str) -> MCPError | None:
        return None

    def safe_to_repeat(self, tool: str) -> bool:
        return tool not in self.unsafe

    def adopted(self, context: SupervisionContext) -> None:
        self.adoptions.append(context)

    def last_known(self) -> KnownServer | None:
        return self.known

    def happened(self, event: Event) -> None:
        with self._happened:
            self.events.append(event)
            self._happened.notify_all()
        for react in self.reactions:
            react(event)

    # What tests do.

    def started(self) -> "Supervised":
        assert self.supervisor.start(), self.supervisor.condition.last_error
        self.wait_for_state(ServerState.READY)
        return self

    def in_background(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        return self._threads.submit(function, *args, **kwargs)

    def call(
        self,
        tool: str = "echo",
        timeout: float = 30.0,
        *,
        repeatable: bool = False,
        on_progress: OnProgress | None = None,
    ) -> "Future[dict[str, Any]]":
        """A tool call in a thread of its own, which waits for it."""
        options = CallOptions(timeout, on_progress)
        wanted = RequestExchange("tools/call", {"name": tool}, options, tool=tool, repeatable=repeatable)
        return self.in_background(self.request, wanted)

    def request(self, wanted: RequestExchange) -> dict[str, Any]:
        """Make a request and wait for it."""
        return self.requests.request(wanted)

    def replace(self, drain: float, on_done: OnReplaced) -> None:
        """Have a fresh process take the server's place."""
        self.supervisor._loop.post(lambda: self.supervisor._lifecycle.replacements.ask(drain, on_done, "requested"))

    @property
    def statistics(self) -> CallStatistics:
        return self.caller.statistics

    def submit(
        self,
        tool: str = "echo",
        timeout: float = 30.0,
        *,
        repeatable: bool = False,
        on_progress: OnProgress | None = None,
    ) -> CallFuture:
        """A tool call that no thread waits for."""
        options = CallOptions(timeout, on_progress)
        wanted = RequestExchange("tools/call", {"name": tool}, options, tool=tool, repeatable=repeatable)
        return self.requests.submit(wanted, self.callbacks.lane())

    def wait_for(self, kind: type[E], matches: Callable[[E], bool] = lambda _: True) -> E:
        """Wait for an event that comes after the last one waited for; events in between are passed over."""
        found: list[E] = []

        def is_there() -> bool:
            for position, event in enumerate(self.events[self._seen :], self._seen + 1):
                if isinstance(event, kind) and matches(event):
                    found.append(event)
                    self._seen = position
                    return True
            return False

        with self._happened:
            assert self._happened.wait_for(is_there, PATIENCE), f"no such {kind.__name__} in {self.events}"
        return found[0]

    def wait_for_state(self, state: ServerState) -> StateChanged:
        return self.wait_for(StateChanged, lambda event: event.new is state)

    def wait_for_listing(self, number: int) -> list[Any]:
        with self._happened:
            assert self._happened.wait_for(lambda: len(self.listings) >= number, PATIENCE), self.listings
            return self.listings[number - 1]

    def is_answered_by(self, number: int, call: CallFuture | None = None) -> bool:
        """Answer from the start of this number; whether the caller gets that: of its first call, or of a new one."""
        is_first = call is not None or self.transport.starts < number
        nth = 1 if is_first else len(self.transport.channel(number).requests("tools/call")) + 1
        call = call or self.submit()
        channel = self.transport.channel(number)
        channel.answer(channel.wait_for("tools/call", nth), {"content": "text"})
        return call.result(PATIENCE) == {"content": "text"}

    def unfinished_call(self) -> Call:
        """A call that nobody makes, due in an hour."""
        return Call(self.supervisor.next_id(), "nothing", None, self.clock.monotonic(), 3600.0)

    @property
    def in_flight(self) -> int:
        connection = self.supervisor.call_queue.ready
        return 0 if connection is None else connection.in_flight

    def settle(self) -> None:
        """Return when what is late has ended, and the supervisor has run all its tasks."""
        read = threading.Event()
        post = self.supervisor._loop.post
        marker = Call(0, "marker", None, self.clock.monotonic(), 0.0, on_done=lambda _: post(read.set), bound=True)
        deadlines_of(self.clock).watch(marker, self.supervisor.call_queue.expire)
        assert read.wait(PATIENCE), "the supervisor does not run its tasks"

    def pass_time(self, seconds: float) -> None:
        """Let `seconds` pass as soon as some thread waits for exactly that moment."""
        self.clock.wait_for_waiter(self.clock.monotonic() + seconds)
        self.clock.advance(seconds)

    def wait_for_waiters(self, deadline: float, count: int) -> None:
        """Return when so many threads wait for this moment."""
        self.clock.wait_for_waiter(deadline)
        assert wait_until(lambda: self.clock.deadlines().count(deadline) >= count)

    @property
    def states(self) -> list[ServerState]:
        """All states it was in, in order."""
        return [event.new for event in self.events if isinstance(event, StateChanged)]


def restart(server: Supervised, delay: float = 0.0) -> FakeChannel:
    """Let the server crash, and wait until it is ready again; `delay` is the expected backoff in seconds."""
    number = server.transport.starts
    server.transport.channel(number).end(exit_code=1)
    if delay > 0:
        server.pass_time(delay)
    server.wait_for(Restarted)
    return server.transport.channel(number + 1)


def open_circuit(server: Supervised) -> GaveUp:
    """Let a server with the policy `FRAGILE` crash until it is given up."""
    restart(server)
    restart(server, 0.5)
    server.transport.channel(3).end(exit_code=1)
    return server.wait_for(GaveUp)
