"""Whatever happens in whatever order: every call ends exactly once, and an unsafe one is written at most once.

Every request for a fresh process ends exactly once, too, and no process is left over.

There are no threads here. The supervisor takes a step when the machine says so, so callers, server and time can come
between any two of its steps.
"""

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from opentelemetry.context import Context

from gaia.mcp.errors import MCPError, StartFailed
from gaia.mcp.observation.request_spans import Observer
from gaia.mcp.protocol.eras import ClientIdentity
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.requests.client_requests import ClientRequests
from gaia.mcp.requests.exchange import CallOptions, RequestExchange
from gaia.mcp.requests.response_cache import ResponseCache
from gaia.mcp.requests.submitted_request import CallFuture
from gaia.mcp.supervision import generation, supervisor
from gaia.mcp.supervision.callbacks import CallbackPool, Lane
from gaia.mcp.supervision.client_features import ClientFeatures
from gaia.mcp.supervision.context import KnownServer, Listing, RecyclingLimits, SupervisionContext
from gaia.mcp.supervision.events import Event, ServerState
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.supervision.server_requests import ServerRequests
from gaia.mcp.supervision.spare import OnReplaced
from gaia.mcp.supervision.subscriptions import Subscriptions
from gaia.mcp.supervision.supervisor import Supervisor
from gaia.runtime.deadlines import deadlines_of
from gaia.runtime.event_loop import Timer
from gaia.runtime.threads import DaemonPool, EngineThread
from gaia.testing import FakeClock
from tests.chaos.profile import Profile
from tests.fake_transport import FakeChannel, FakeTransport, handshake_answers, stateless_answers
from tests.supervised import SessionOf

JUNK = [
    b"",
    b"not json",
    b"\xff\xfe\x00",
    b"[]",
    b"[1, 2]",
    b"null",
    b'{"jsonrpc": "2.0"}',
    b'{"jsonrpc": "2.0", "id": 99999, "result": {}}',
    b'{"jsonrpc": "2.0", "id": true, "result": {}}',
    b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "?"}}',
    b'{"jsonrpc": "2.0", "id": "7", "method": "ping"}',
    b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}}',
    b'{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}',
]
ENDINGS: list[dict[str, Any]] = [{}, {"exit_code": 0}, {"exit_code": 1}, {"signal": "SIGKILL"}]


class InlineLane(Lane):
    """Runs callbacks where they are posted."""

    def post(self, task: Callable[[], object], server: str | None = None, size: int = 0) -> None:
        task()


class InlineThread(EngineThread):
    """Has done its work when it has been started."""

    def start(self) -> None:
        # Not `run`, which would make this thread one of the engine's.
        self._body()


class Hooks:
    def refusal_of(self, tool: str) -> None:
        return None

    def listing_begins(self) -> Listing:
        return Listing(0, 0.0)

    def tools_listed(self, definitions: list[Any], listing: Listing) -> None: ...

    subscriptions = Subscriptions()
    known: KnownServer | None = None

    def last_known(self) -> KnownServer | None:
        return self.known

    def tools_remembered(self, definitions: list[Any]) -> None: ...

    def adopted(self, context: SupervisionContext) -> None: ...

    def safe_to_repeat(self, tool: str) -> bool:
        return True

    def happened(self, event: Event) -> None: ...


class Submitted:
    """A call, and how often its future was completed."""

    def __init__(self, tag: str, safe: bool, future: CallFuture) -> None:
        self.tag = tag
        self.safe = safe
        self.future = future
        self.completions = 0
        future.add_done_callback(self._completed)

    def _completed(self, _: object) -> None:
        self.completions += 1


class Wait:
    """What a thread waits for that has asked for a fresh process, or for another configuration."""

    def __init__(self) -> None:
        self.was_asked = False
        self.outcomes: list[MCPError | None] = []


class HandshakeMachine(RuleBasedStateMachine):
    """A server of the handshake era."""

    protocol = "handshake"
    answers = staticmethod(handshake_answers)

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.transport = FakeTransport(answers=self.answers())
        self.lane = InlineLane(lambda _: None)
        self.calls: list[Submitted] = []
        self.answered: set[str] = set()
        self.waits: list[Wait] = []
        self.hooks = Hooks()
        self.stopped = False
        server_requests = ServerRequests("fake", ClientFeatures(), CallbackPool("server-requests"), self.clock, 600.0)
        self.supervisor = Supervisor(
            SupervisionContext(
                name="fake",
                transport=self.transport,
                identity=ClientIdentity("test", "1"),
                negotiation=Negotiation(self.protocol),
                policy=RestartPolicy(max_restarts=3, max_delay=0.9, window=30.0),
                health_interval=30.0,
                health_timeout=10.0,
                max_pending=4,
                hooks=self.hooks,
                server_requests=server_requests,
                clock=self.clock,
                rng=random.Random(1),
                observer=Observer("fake"),
            )
        )
        self.requests = ClientRequests(
            SessionOf(self.supervisor, self.clock, 30.0),
            server_requests,
            ResponseCache(self.clock),
            Observer("fake"),
            self.clock,
            DaemonPool("test-steps", 1),
        )
        self.deadlines = deadlines_of(self.clock)
        # Late calls end when the machine takes a step.
        self.deadlines._start = lambda: None  # type: ignore[method-assign]

    @initialize(
        failures=st.integers(0, 2),
        standby=st.booleans(),
        lazy=st.booleans(),
        idle_stop=st.sampled_from([None, None, 5.0]),
        lifetime=st.sampled_from([None, None, 20.0]),
    )
    def start(self, failures: int, standby: bool, lazy: bool, idle_stop: float | None, lifetime: float | None) -> None:
        """The server may be down at first: then it is tried again."""
        context = self.supervisor._context
        context.standby, context.lazy, context.idle_stop = standby, lazy, idle_stop
        context.recycling = RecyclingLimits(max_lifetime=lifetime)
        self.hooks.known = (None, []) if lazy else None
        self.transport.start_errors.extend(StartFailed("not yet") for _ in range(failures))
        # This machine's steps are the supervisor's thread.
        assert self.supervisor._claims(supervisor._THREAD)
        self.supervisor._loop.post(lambda: self.supervisor._lifecycle.begin(keep_trying=True))
        while self.step():
            pass

    def step(self) -> bool:
        """One turn of the supervisor's loop, and of the thread for deadlines; False if the supervisor would wait."""
        self.deadlines._take_arrived()
        self.deadlines._end_late(self.clock.monotonic())
        supervisor = self.supervisor
        loop = supervisor._loop
        if supervisor._is_over():
            return False
        deadline = loop.timers.next_deadline()
        if deadline is not None and deadline <= self.clock.monotonic():
            supervisor._fire_timers()
        elif loop.pending == 0:
            return False
        else:
            task = loop.next_task()
            assert task is not None, "there is one"
            task()
        return True

    @property
    def channel(self) -> FakeChannel | None:
        return self.transport.channel(self.transport.starts) if self.transport.starts else None

    def written(self) -> list[tuple[FakeChannel, dict[str, Any]]]:
        """All tool calls that reached a server, of any generation."""
        channels = [self.transport.channel(number) for number in range(1, self.transport.starts + 1)]
        return [(channel, request) for channel in channels for request in channel.requests("tools/call")]

    # What the supervisor does.

    @rule(turns=st.sampled_from([1, 2, 3, 1000]))
    def work(self, turns: int) -> None:
        for _ in range(turns):
            if not self.step():
                break

    # What callers do.

    @rule(safe=st.booleans(), timeout=st.sampled_from([0.001, 1.0, 30.0, 1000.0]))
    def submit(self, safe: bool, timeout: float) -> None:
        tag = f"call-{len(self.calls)}"
        wanted = RequestExchange("tools/call", {"name": tag}, CallOptions(timeout), tool=tag, repeatable=safe)
        self.calls.append(Submitted(tag, safe, self.requests.submit(wanted, self.lane)))

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        submitted = data.draw(st.sampled_from(self.calls), "call")
        was_done = submitted.future.done()
        cancelled = submitted.future.cancel()
        assert submitted.future.done()
        assert cancelled == submitted.future.cancelled()
        assert not (was_done and cancelled and submitted.completions != 1)

    # What the server does.

    @precondition(lambda self: self.written())
    @rule(data=st.data(), kind=st.sampled_from(["result", "result", "error", "no object"]))
    def answer(self, data: st.DataObject, kind: str) -> None:
        """Any request of any generation: in time, late, or for the second time."""
        channel, request = data.draw(st.sampled_from(self.written()), "request")
        self.answered.add(request["params"]["name"])
        if kind == "result":
            channel.answer(request, {"content": request["params"]["name"]})
        elif kind == "error":
            channel.answer_error(request, -32000, request["params"]["name"])
        else:
            channel.answer(request, [request["params"]["name"]])

    @precondition(lambda self: self.channel)
    @rule(line=st.sampled_from(JUNK))
    def write_junk(self, line: bytes) -> None:
        assert self.channel is not None
        self.channel.write(line)

    @precondition(lambda self: self.channel)
    @rule(ending=st.sampled_from(ENDINGS))
    def end(self, ending: dict[str, Any]) -> None:
        assert self.channel is not None
        self.channel.end(**ending)

    @precondition(lambda self: self.channel)
    @rule(room=st.integers(0, 3))
    def stop_reading(self, room: int) -> None:
        assert self.channel is not None
        self.channel.stop_reading(room)

    @precondition(lambda self: self.channel)
    @rule()
    def resume_reading(self) -> None:
        assert self.channel is not None
        self.channel.resume_reading()

    @rule(method=st.sampled_from(["initialize", "server/discover", "tools/list", "ping"]), number=st.integers(1, 3))
    def fall_silent(self, method: str, number: int) -> None:
        """From now on, or from the next start on, this is not answered."""
        channel = self.channel
        if number == 1 and channel is not None:
            channel.take_over(method)
        else:
            self.transport.answers.pop(method, None)

    @rule()
    def be_well_again(self) -> None:
        self.transport.answers = FakeTransport(answers=self.answers()).answers

    @precondition(lambda self: self.channel)
    @rule(ending=st.sampled_from(ENDINGS[2:]))
    def crash_and_come_back(self, ending: dict[str, Any]) -> None:
        """What would take a random walk long to get to."""
        self.be_well_again()
        self.end(ending)
        self.work(1000)
        self.pass_time(1.0)
        self.work(1000)

    @precondition(lambda self: self.transport.starts > 1)
    @rule(ending=st.sampled_from(ENDINGS), is_reported=st.booleans())
    def end_the_one_before(self, ending: dict[str, Any], is_reported: bool) -> None:
        """If there is a fresh process, or a stand-by, that is the one whose place it is to take."""
        channel = self.transport.channel(self.transport.starts - 1)
        if is_reported:
            channel.end(**ending)
        else:
            channel.die(**ending)

    @rule()
    def fail_to_start(self) -> None:
        self.transport.start_errors.append(StartFailed("not this time"))

    # What the owner does.

    def ask(self, request: Callable[[OnReplaced], None]) -> None:
        wait = Wait()
        self.waits.append(wait)

        def asked() -> None:
            wait.was_asked = True
            request(wait.outcomes.append)

        self.supervisor._loop.post(asked)

    @rule()
    def restart(self) -> None:
        replacements = self.supervisor._lifecycle.replacements
        self.ask(lambda done: replacements.ask(30.0, done, "requested"))

    @rule()
    def reconfigure(self) -> None:
        context = msgspec.structs.replace(self.supervisor._context)
        self.ask(lambda done: self.supervisor._lifecycle.reconfigure(context, 30.0, done, Context()))

    @precondition(lambda self: self.channel)
    @rule(ending=st.sampled_from(ENDINGS), is_silent=st.booleans(), turns=st.integers(0, 3))
    def restart_and_lose_the_server(self, ending: dict[str, Any], is_silent: bool, turns: int) -> None:
        """What would take a random walk long to get to."""
        self.be_well_again()
        self.pass_time(100.0)
        self.work(1000)
        if is_silent:
            for method in ("initialize", "server/discover"):
                self.fall_silent(method, 2)
        channel = self.channel
        self.restart()
        self.work(turns)
        assert channel is not None
        channel.end(**ending)

    @rule()
    def wake(self) -> None:
        self.supervisor.wake()

    # What time does.

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 100.0, 8 * 3600.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: not self.stopped and len(self.calls) > 3)
    @rule(drain=st.sampled_from([0.0, 5.0]))
    def stop(self, drain: float) -> None:
        self.stopped = True
        self.supervisor.request_stop(drain)

    # What must hold.

    @invariant()
    def nothing_is_completed_twice(self) -> None:
        for submitted in self.calls:
            assert submitted.completions == submitted.future.done()

    @invariant()
    def no_thread_that_waits_is_told_twice(self) -> None:
        assert all(len(wait.outcomes) <= 1 for wait in self.waits)

    @invariant()
    def something_happens_next(self) -> None:
        """A server that is to run is being started, or a timer says when it will be."""
        supervisor, loop = self.supervisor, self.supervisor._loop
        if loop.pending or supervisor.state not in (ServerState.STARTING, ServerState.RESTARTING, ServerState.FAILED):
            return
        timers = loop.timers.any_set(Timer.BACKOFF, Timer.COOLDOWN)
        assert timers or (supervisor.state is not ServerState.FAILED and supervisor.condition.current is not None)

    @invariant()
    def nothing_is_written_too_often(self) -> None:
        writes = Counter(request["params"]["name"] for _, request in self.written())
        for submitted in self.calls:
            assert writes[submitted.tag] <= (2 if submitted.safe else 1)
        identifiers = Counter(request["id"] for _, request in self.written())
        assert all(count == 1 for count in identifiers.values())

    @invariant()
    def everybody_gets_his_own_outcome(self) -> None:
        writes = {request["params"]["name"] for _, request in self.written()}
        for submitted in self.calls:
            if not submitted.future.done():
                continue
            try:
                error = submitted.future.exception()
            except CancelledError:
                continue
            if error is None:
                assert submitted.future.result() == {"content": submitted.tag}
                assert submitted.tag in self.answered
            else:
                assert isinstance(error, MCPError)
                if error.delivery == "not_sent":
                    assert submitted.tag not in writes

    @invariant()
    def nothing_that_has_ended_is_waited_for(self) -> None:
        connection = self.supervisor.call_queue.ready
        if connection is not None:
            assert not any(call.ended for call in list(connection._in_flight.values()))

    def teardown(self) -> None:
        # Time alone ends everything that nobody else has ended.
        for _ in range(3):
            while self.step():
                pass
            self.clock.advance(1001.0)
        for submitted in self.calls:
            assert submitted.future.done(), f"{submitted.tag} was lost"
        assert self.supervisor._settled.is_open or self.stopped
        for wait in self.waits:
            # The thread itself finds out that a supervisor has ended before it was asked.
            assert wait.outcomes or not wait.was_asked, "a thread waits for ever"
        self.supervisor.request_stop()
        while self.step():
            pass
        assert self.supervisor._is_over()
        self.nothing_is_completed_twice()
        self.nothing_is_written_too_often()
        self.everybody_gets_his_own_outcome()
        for number in range(1, self.transport.starts + 1):
            assert self.transport.channel(number).closed_with_grace is not None


class StatelessMachine(HandshakeMachine):
    """A server of the stateless era, which the client has to find out."""

    protocol = "auto"
    answers = staticmethod(stateless_answers)

    @invariant()
    def every_request_says_what_it_is(self) -> None:
        for _, request in self.written():
            assert request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"

    @invariant()
    def the_server_is_never_answered(self) -> None:
        for number in range(1, self.transport.starts + 1):
            assert self.transport.channel(number).answers_written() == []


@pytest.mark.timeout(0)
@pytest.mark.parametrize("machine", [HandshakeMachine, StatelessMachine])
def test_every_call_ends_once_and_unsafe_ones_are_written_at_most_once(
    chaos: Profile, monkeypatch: pytest.MonkeyPatch, machine: type[HandshakeMachine]
) -> None:
    monkeypatch.setattr(generation, "EngineThread", InlineThread)
    chaos.explore(machine, examples=60, steps=40)
