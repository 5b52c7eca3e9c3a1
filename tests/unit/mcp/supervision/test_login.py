"""A server that lets nobody in without a login: who asks for one, who waits, and who is refused."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable

import pytest

from gaia.mcp.errors import CallCancelled, MCPError, NeedsAuthorization
from gaia.mcp.supervision import login
from gaia.mcp.supervision.events import GaveUp, ServerState
from gaia.mcp.supervision.login import Logins
from tests.fake_transport import FakeChannel
from tests.supervised import Supervised
from tests.waiting import PATIENCE

Supervise = Callable[..., Supervised]

TEXT = {"content": [{"type": "text", "text": "hello"}]}


class FakeAuthorization:
    """A login that comes when the test says so."""

    def __init__(self, *, interactive: bool) -> None:
        self.interactive = interactive
        self.new_login = False
        self.logins = 0
        self.secrets: list[str] = []
        self.outcomes: deque[MCPError | None] = deque()
        """Of the next logins; those that are not foreseen wait for `abort`."""
        self._aborted = threading.Event()

    def changed(self) -> bool:
        return self.new_login

    def log_in(self) -> None:
        self.logins += 1
        if not self.outcomes:
            assert self._aborted.wait(PATIENCE), "nobody ends the login"
            raise CallCancelled("given up")
        outcome = self.outcomes.popleft()
        if outcome is not None:
            raise outcome

    def abort(self) -> None:
        self._aborted.set()

    def reopen(self) -> None:
        self._aborted.clear()


def lock_out(server: Supervised, number: int = 1) -> FakeChannel:
    """Refuse the client's first message on the channel of this number."""
    channel = server.transport.channel(number)
    channel.wait_for("initialize", 1)
    channel.lock_out()
    return channel


@pytest.fixture
def nobody() -> FakeAuthorization:
    return FakeAuthorization(interactive=False)


@pytest.fixture
def person() -> FakeAuthorization:
    return FakeAuthorization(interactive=True)


@pytest.fixture
def refused(supervise: Supervise, nobody: FakeAuthorization) -> Supervised:
    """A server that was ready and wants a login now, with nobody to ask."""
    server = supervise(authorization=nobody).started()
    server.transport.channel().lock_out()
    server.wait_for_state(ServerState.NEEDS_AUTHORIZATION)
    return server


class TestServersThatAreKeptTrying:
    def test_one_that_requires_a_login_is_not_tried_again_until_there_is_one(
        self, supervise: Supervise, nobody: FakeAuthorization
    ) -> None:
        server = supervise(authorization=nobody)
        server.transport.answers["initialize"] = lambda _: None
        started = server.in_background(lambda: server.supervisor.start(keep_trying=True))
        lock_out(server)
        assert not started.result(PATIENCE)
        server.clock.advance(10_000.0)
        server.settle()
        assert (server.supervisor.state, server.transport.starts) == (ServerState.NEEDS_AUTHORIZATION, 1)
        nobody.new_login = True
        call = server.submit()
        channel = server.transport.channel(2)
        channel.answer(channel.wait_for("initialize"), {"protocolVersion": "2025-11-25", "capabilities": {}})
        channel.answer(channel.wait_for("tools/call"), TEXT)
        assert call.result(PATIENCE) == TEXT

    def test_a_person_is_asked_twice_at_most_and_not_by_further_attempts(
        self, supervise: Supervise, person: FakeAuthorization
    ) -> None:
        server = supervise(authorization=person)
        server.transport.answers["initialize"] = lambda _: None
        person.outcomes.extend([None, None])
        started = server.in_background(lambda: server.supervisor.start(keep_trying=True))
        for number in (1, 2, 3):
            lock_out(server, number)
        assert not started.result(PATIENCE)
        server.clock.advance(10_000.0)
        server.settle()
        assert (person.logins, server.transport.starts) == (2, 3)
        assert server.supervisor.state is ServerState.NEEDS_AUTHORIZATION


class TestWithNobodyToAsk:
    def test_a_first_start_fails_and_says_why(self, supervise: Supervise, nobody: FakeAuthorization) -> None:
        server = supervise(authorization=nobody)
        server.transport.answers["initialize"] = lambda _: None
        started = server.in_background(server.supervisor.start)
        lock_out(server)
        assert not started.result(PATIENCE)
        assert server.states == [ServerState.STARTING, ServerState.NEEDS_AUTHORIZATION]
        assert server.supervisor.condition.last_error == "the server wants a login"

    def test_calls_are_refused_at_once(self, refused: Supervised) -> None:
        with pytest.raises(NeedsAuthorization, match="wants a login") as caught:
            refused.call().result(PATIENCE)
        assert caught.value.delivery == "not_sent"

    def test_a_call_that_it_was_working_on_may_have_been_done(
        self, supervise: Supervise, nobody: FakeAuthorization
    ) -> None:
        server = supervise(authorization=nobody).started()
        call = server.submit()
        server.transport.channel().wait_for("tools/call")
        server.transport.channel().lock_out()
        with pytest.raises(NeedsAuthorization, match="lost during tools/call") as lost:
            call.result(PATIENCE)
        assert lost.value.delivery == "unknown"

    def test_a_restart_that_was_asked_for_does_not_wait_for_a_login(
        self, supervise: Supervise, nobody: FakeAuthorization
    ) -> None:
        server = supervise(authorization=nobody).started()
        del server.transport.answers["initialize"]
        restarted = server.in_background(server.supervisor.replace_now, 20.0)
        server.transport.channel(2).wait_for("initialize")
        server.transport.channel(1).lock_out()
        assert not restarted.result(PATIENCE)
        assert server.supervisor.state is ServerState.NEEDS_AUTHORIZATION

    def test_it_is_not_tried_again_as_time_passes(self, refused: Supervised) -> None:
        refused.clock.advance(3600.0)
        refused.settle()
        assert refused.transport.starts == 1
        assert not [event for event in refused.events if isinstance(event, GaveUp)]

    def test_the_next_call_works_once_there_is_a_login(self, refused: Supervised, nobody: FakeAuthorization) -> None:
        nobody.new_login = True
        call = refused.call()
        assert refused.is_answered_by(2, call)
        assert refused.supervisor.condition.restarts == 1

    def test_a_login_that_is_refused_too_refuses_the_call(
        self, supervise: Supervise, nobody: FakeAuthorization
    ) -> None:
        server = supervise(authorization=nobody).started()
        server.transport.answers["initialize"] = lambda _: None
        server.transport.channel().lock_out()
        server.wait_for_state(ServerState.NEEDS_AUTHORIZATION)
        nobody.new_login = True
        call = server.call()
        lock_out(server, 2)
        with pytest.raises(NeedsAuthorization):
            call.result(PATIENCE)

    def test_a_server_without_any_login_says_so_too(self, supervise: Supervise) -> None:
        server = supervise().started()
        server.transport.channel().lock_out()
        server.wait_for_state(ServerState.NEEDS_AUTHORIZATION)
        with pytest.raises(NeedsAuthorization):
            server.call().result(PATIENCE)

    def test_it_can_be_stopped(self, refused: Supervised) -> None:
        refused.supervisor.stop()
        assert refused.supervisor.state is ServerState.CLOSED


class TestWithAPersonToAsk:
    def test_a_first_start_waits_for_the_login(self, supervise: Supervise, person: FakeAuthorization) -> None:
        server = supervise(authorization=person)
        person.outcomes.append(None)
        handshake = server.transport.answers["initialize"]
        server.transport.answers["initialize"] = lambda _: None
        started = server.in_background(server.supervisor.start)
        first = server.transport.channel()
        first.wait_for("initialize")
        server.transport.answers["initialize"] = handshake
        first.lock_out()
        assert started.result(PATIENCE)
        assert server.states == [
            ServerState.STARTING,
            ServerState.AUTHORIZING,
            ServerState.STARTING,
            ServerState.READY,
        ]

    def test_calls_wait_meanwhile(self, supervise: Supervise, person: FakeAuthorization) -> None:
        server = supervise(authorization=person).started()
        asked = threading.Event()
        person.outcomes.append(None)
        log_in = person.log_in

        def slowly() -> None:
            assert asked.wait(PATIENCE)
            log_in()

        person.log_in = slowly  # type: ignore[method-assign]
        server.transport.channel().lock_out()
        server.wait_for_state(ServerState.AUTHORIZING)
        call = server.submit()
        asked.set()
        assert server.is_answered_by(2, call)

    def test_calls_are_refused_when_the_login_fails(self, supervise: Supervise, person: FakeAuthorization) -> None:
        server = supervise(authorization=person).started()
        person.outcomes.append(NeedsAuthorization("the person said no"))
        server.transport.channel().lock_out()
        server.wait_for_state(ServerState.NEEDS_AUTHORIZATION)
        with pytest.raises(NeedsAuthorization, match="the person said no"):
            server.call().result(PATIENCE)
        assert person.logins == 1
        assert server.supervisor.condition.last_error == "the person said no"

    def test_nobody_is_asked_for_ever(self, supervise: Supervise, person: FakeAuthorization) -> None:
        server = supervise(authorization=person).started()
        server.transport.answers["initialize"] = lambda _: None
        person.outcomes.extend([None, None])
        server.transport.channel().lock_out()
        lock_out(server, 2)
        lock_out(server, 3)
        server.wait_for_state(ServerState.NEEDS_AUTHORIZATION)
        assert person.logins == 2

    def test_but_again_after_a_login_that_worked(self, supervise: Supervise, person: FakeAuthorization) -> None:
        server = supervise(authorization=person).started()
        person.outcomes.extend([None, None])
        for number in (1, 2):
            server.transport.channel(number).lock_out()
            server.wait_for_state(ServerState.READY)
        assert person.logins == 2

    def test_stopping_gives_the_login_up(self, supervise: Supervise, person: FakeAuthorization) -> None:
        server = supervise(authorization=person).started()
        server.transport.channel().lock_out()
        server.wait_for_state(ServerState.AUTHORIZING)
        call = server.submit()
        server.supervisor.stop()
        with pytest.raises(CallCancelled):
            call.result(PATIENCE)
        assert server.supervisor.state is ServerState.CLOSED


def test_a_login_that_no_thread_is_left_for_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    outcomes: list[MCPError | None] = []
    logins = Logins("notes", FakeAuthorization(interactive=True), outcomes.append)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    logins.ask()
    (error,) = outcomes
    assert error is not None
    assert error.message == "no thread for the login: can't start new thread"
    logins.abort()
    assert not logins.under_way


def test_the_end_of_a_login_that_was_given_up_is_not_that_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "_JOIN_SECONDS", 0.0)
    may_end: list[threading.Event] = []
    begun: queue.SimpleQueue[threading.Thread] = queue.SimpleQueue()

    class Stubborn(FakeAuthorization):
        """Its callback is in the middle of something, and does not look whether it is wanted."""

        def log_in(self) -> None:
            end = threading.Event()
            may_end.append(end)
            begun.put(threading.current_thread())
            assert end.wait(PATIENCE)

    done: list[MCPError | None] = []
    logins = Logins("x", Stubborn(interactive=True), done.append)
    threads = []
    for _ in range(2):
        logins.abort()
        logins.ask()
        threads.append(begun.get(timeout=PATIENCE))
    for number, thread in enumerate(threads):
        may_end[number].set()
        thread.join(PATIENCE)
        assert done == [None] * number
