"""The thread of a server: how it stops, and what its mistakes cost. Time is a number, and the server a list."""

import queue
import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock, call

import pytest

from gaia.mcp.errors import (
    CallCancelled,
    JsonRpcError,
    NotConnected,
    ServerCrashed,
    ServerUnavailable,
    StartFailed,
)
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.supervision import supervisor as supervisor_module
from gaia.mcp.supervision.events import (
    Event,
    GaveUp,
    Restarted,
    ServerLog,
    ServerState,
    StateChanged,
    ToolsChanged,
)
from gaia.mcp.supervision.generation import Generation, Handlers
from gaia.mcp.supervision.policy import Loss
from gaia.mcp.supervision.supervisor import Supervisor
from gaia.runtime import log
from gaia.runtime.event_loop import EventLoop
from gaia.testing import FakeClock
from tests.fake_transport import FakeTransport
from tests.interruption import Interruption, places
from tests.supervised import FRAGILE, Supervised, open_circuit, restart
from tests.waiting import PATIENCE

Supervise = Callable[..., Supervised]

TEXT = {"content": [{"type": "text", "text": "hello"}]}


class TestStopping:
    def test_it_closes_the_server_and_says_so_last(self, server: Supervised) -> None:
        server.supervisor.stop()
        assert server.transport.channel().closed_with_grace is not None
        assert server.supervisor.state is ServerState.CLOSED
        assert server.states[-1] is ServerState.CLOSED
        with pytest.raises(NotConnected, match="disconnected"):
            server.call().result(PATIENCE)

    def test_it_never_restarts(self, server: Supervised) -> None:
        server.supervisor.stop()
        server.transport.channel().end(exit_code=1)
        server.clock.advance(3600.0)
        assert server.transport.starts == 1
        assert server.clock.deadlines() == []

    def test_calls_under_way_are_cancelled(self, server: Supervised) -> None:
        result = server.submit()
        server.transport.channel().wait_for("tools/call")
        server.supervisor.stop()
        error = result.exception(PATIENCE)
        assert isinstance(error, CallCancelled)
        assert error.delivery == "unknown"

    def test_waiting_calls_are_cancelled(self, server: Supervised) -> None:
        restart(server)
        server.transport.channel(2).end(exit_code=1)
        server.wait_for_state(ServerState.RESTARTING)
        result = server.submit()
        server.supervisor.stop()
        error = result.exception(PATIENCE)
        assert isinstance(error, CallCancelled)
        assert error.delivery == "not_sent"

    def test_during_the_handshake_it_is_prompt(self, supervise: Supervise) -> None:
        server = supervise()
        del server.transport.answers["initialize"]
        ready = server.in_background(server.supervisor.start)
        channel = server.transport.channel()
        channel.wait_for("initialize")
        server.supervisor.stop()
        assert ready.result(PATIENCE) is False
        assert channel.closed_with_grace is not None
        assert server.supervisor.state is ServerState.CLOSED

    def test_during_the_backoff_it_is_prompt(self, server: Supervised) -> None:
        restart(server)
        server.transport.channel(2).end(exit_code=1)
        server.clock.wait_for_waiter(server.clock.monotonic() + 0.5)
        server.supervisor.stop()
        assert server.supervisor.state is ServerState.CLOSED
        assert server.transport.starts == 2

    def test_during_the_handshake_of_a_restart_it_is_prompt(self, server: Supervised) -> None:
        del server.transport.answers["initialize"]
        server.transport.channel().end(exit_code=1)
        second = server.transport.channel(2)
        second.wait_for("initialize")
        server.supervisor.stop()
        assert second.closed_with_grace is not None
        assert server.supervisor.state is ServerState.CLOSED

    def test_while_a_lost_server_ends_slowly_it_waits_for_that_and_no_longer(self, server: Supervised) -> None:
        first = server.transport.channel()
        first.end_slowly()
        stopped = server.in_background(server.supervisor.stop)
        server.wait_for_state(ServerState.CLOSED)
        assert not stopped.done()
        first.let_close()
        stopped.result(PATIENCE)
        assert server.transport.starts == 1

    def test_while_the_circuit_is_open(self, supervise: Supervise) -> None:
        server = supervise(policy=FRAGILE).started()
        open_circuit(server)
        server.supervisor.stop()
        assert server.supervisor.state is ServerState.CLOSED

    def test_after_a_first_start_that_failed(self, supervise: Supervise) -> None:
        server = supervise()
        server.transport.start_errors.append(StartFailed("no such program"))
        server.supervisor.start()
        server.supervisor.stop()
        assert server.supervisor.state is ServerState.CLOSED
        with pytest.raises(NotConnected):
            server.call().result(PATIENCE)

    def test_twice_from_many_threads_is_once(self, server: Supervised) -> None:
        for stopped in [server.in_background(server.supervisor.stop) for _ in range(8)]:
            stopped.result(PATIENCE)
        assert server.states.count(ServerState.CLOSED) == 1

    def test_on_its_own_thread_it_does_not_wait_for_itself(self, server: Supervised) -> None:
        """As by a finalizer of the application, which the garbage collector calls on any thread."""
        server.reactions.append(lambda event: server.supervisor.stop() if isinstance(event, ToolsChanged) else None)
        server.supervisor._loop.post(lambda: server.happened(ToolsChanged("fake")))
        server.wait_for_state(ServerState.CLOSED)
        server.supervisor.stop()
        assert not server.supervisor._thread.is_alive()

    def test_by_another_thread_at_any_line_of_the_start_it_leaves_nothing_behind(self, supervise: Supervise) -> None:
        held: list[tuple[str, int, bool]] = []

        def interrupt(place: int) -> Interruption:
            server = supervise()
            transport = server.transport

            def stop() -> None:
                server.in_background(server.supervisor.stop).result(PATIENCE)
                channels = [transport.channel(number) for number in range(1, transport.starts + 1)]
                is_closed = all(channel.closed_with_grace is not None for channel in channels)
                held.append((interruption.where, transport.starts, is_closed))

            def start() -> None:
                server.supervisor.start()
                if interruption.happened:
                    where, starts, is_closed = held[-1]
                    assert is_closed, where
                    assert transport.starts == starts, where
                    assert server.supervisor.state is ServerState.CLOSED, where

            interruption = Interruption(start, stop, place, files=(supervisor_module.__file__,))
            return interruption

        for interruption in places(interrupt):
            assert interruption.error is None, interruption.where
        assert len(held) > 10

    def test_a_stop_that_comes_before_the_start_wins(self, supervise: Supervise) -> None:
        server = supervise()
        server.supervisor.request_stop()
        assert not server.supervisor.start()
        assert server.transport.starts == 0
        assert server.supervisor.state is ServerState.CLOSED


class TestPreparing:
    """What its transport keeps for the next start, such as the process that forks servers."""

    def test_it_is_kept_over_restarts_and_released_before_a_stop_is_over(self, supervise: Supervise) -> None:
        server = supervise()
        told = Mock()
        server.transport.prepare, server.transport.release = told.prepare, told.release
        server.started()
        restart(server)
        assert told.mock_calls == [call.prepare(server.supervisor)]
        server.supervisor.stop()
        assert told.mock_calls == [call.prepare(server.supervisor), call.release(server.supervisor)]

    def test_it_is_released_after_a_first_start_that_failed(self, supervise: Supervise) -> None:
        server = supervise()
        server.transport.release = released = Mock()
        server.transport.start_errors.append(StartFailed("not there"))
        assert not server.supervisor.start()
        server.supervisor.stop()
        released.assert_called_once_with(server.supervisor)

    def test_the_server_is_started_without_it_if_it_fails(
        self, supervise: Supervise, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = supervise()
        server.transport.prepare = Mock(side_effect=OSError("no memory"))
        assert server.supervisor.start()
        assert "no memory" in caplog.text


class TestMistakesOfOurs:
    """What raises in a step of the supervisor costs a restart; `tests/chaos/test_call_outs.py` has more."""

    def test_in_a_hook(self, server: Supervised) -> None:
        result = server.submit()
        channel = server.transport.channel()
        channel.wait_for("tools/call")
        raise_once(server, ServerLog)
        channel.notify("notifications/message", {"data": "boom"})
        error = result.exception(PATIENCE)
        assert isinstance(error, ServerCrashed)
        assert error.delivery == "unknown"
        assert "a mistake" in error.message
        channel.wait_until_closing()
        server.wait_for(Restarted)
        assert "a mistake" in str(server.supervisor.condition.last_error)
        assert server.is_answered_by(server.transport.starts)

    def test_it_is_logged_with_its_traceback(self, server: Supervised, caplog: pytest.LogCaptureFixture) -> None:
        raise_once(server, ServerLog)
        server.transport.channel().notify("notifications/message", {"data": "boom"})
        server.wait_for(Restarted)
        assert log.flush()
        (record,) = [record for record in caplog.records if record.message.startswith("supervisor_task_failed")]
        assert "ZeroDivisionError('a mistake')" in record.message
        assert "in break_down\n" in str(record.exc_text)
        assert record.threadName == "mcp-fake-supervisor"

    def test_while_starting(self, supervise: Supervise) -> None:
        server = supervise()
        server.transport.start_errors.append(ZeroDivisionError("a mistake"))
        assert not server.supervisor.start()
        assert server.supervisor.state is ServerState.FAILED
        assert "a mistake" in str(server.supervisor.condition.last_error)

    @pytest.mark.parametrize("state", [ServerState.STARTING, ServerState.READY])
    def test_a_first_start_fails_of_it(self, supervise: Supervise, state: ServerState) -> None:
        server = supervise()
        raise_once(server, StateChanged, state)
        assert not server.supervisor.start()
        assert server.supervisor.state is ServerState.FAILED
        assert "a mistake" in str(server.supervisor.condition.last_error)
        for number in range(1, server.transport.starts + 1):
            server.transport.channel(number).wait_until_closing()

    def test_while_a_server_is_lost(self, server: Supervised) -> None:
        channel = server.transport.channel()
        raise_once(server, StateChanged, ServerState.RESTARTING)
        channel.stop_reading()
        result = server.submit()
        channel.end()
        channel.wait_until_closing()
        server.wait_for(Restarted)
        assert server.is_answered_by(2, result)

    def test_again_and_again_opens_the_circuit(self, supervise: Supervise) -> None:
        server = supervise(policy=FRAGILE).started()

        def break_down(event: Event) -> None:
            if isinstance(event, StateChanged) and event.new is ServerState.READY:
                raise ZeroDivisionError("a mistake")

        server.reactions.append(break_down)
        server.transport.channel().end(exit_code=1)
        server.pass_time(0.5)
        gave_up = server.wait_for(GaveUp)
        assert "a mistake" in gave_up.reason
        assert gave_up.retry_in == 60.0
        server.reactions.clear()
        server.pass_time(60.0)
        server.wait_for(Restarted)
        assert server.is_answered_by(server.transport.starts)

    def test_in_the_recovery_itself_is_followed_by_one_attempt_after_the_cooldown(self, server: Supervised) -> None:
        def break_down(event: Event) -> None:
            raise ZeroDivisionError("a mistake")

        result = server.submit()
        channel = server.transport.channel()
        channel.wait_for("tools/call")
        server.reactions.append(break_down)
        channel.notify("notifications/message", {"data": "boom"})
        assert isinstance(result.exception(PATIENCE), ServerCrashed)
        channel.wait_until_closing()
        server.wait_for_state(ServerState.FAILED)
        assert isinstance(server.submit().exception(PATIENCE), ServerUnavailable)
        server.reactions.clear()
        server.pass_time(60.0)
        server.wait_for(Restarted)
        assert server.is_answered_by(server.transport.starts)

    def test_while_stopping_the_server_is_stopped_all_the_same(self, server: Supervised) -> None:
        raise_once(server, StateChanged, ServerState.CLOSED)
        result = server.submit()
        server.supervisor.stop()
        assert isinstance(result.exception(PATIENCE), CallCancelled)
        assert server.supervisor.state is ServerState.CLOSED
        server.transport.channel().wait_until_closing()

    def test_a_clock_that_fails_for_a_while_costs_no_core_and_no_supervision(
        self, server: Supervised, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failed = threading.Semaphore(0)
        get = FakeClock.get

        def fail(*arguments: Any) -> object:
            if threading.current_thread() is not server.supervisor._thread:
                return get(*arguments)
            failed.release()
            raise OverflowError("timestamp too large")

        with monkeypatch.context() as patch:
            patch.setattr(FakeClock, "get", fail)
            server.supervisor.subscriptions_changed()
            for _ in range(3):
                assert failed.acquire(timeout=PATIENCE)
        server.clock.wait_for_waiter(server.clock.monotonic() + 0.5)
        server.clock.advance(0.5)
        server.wait_for(Restarted)
        assert server.is_answered_by(server.transport.starts)


def raise_once(server: Supervised, kind: type[Event], state: ServerState | None = None) -> None:
    """Have the hooks raise at the next event of this kind, of a change to this state."""

    def break_down(event: Event) -> None:
        if isinstance(event, kind) and state in (None, getattr(event, "new", None)):
            server.reactions.remove(break_down)
            raise ZeroDivisionError("a mistake")

    server.reactions.append(break_down)


class TestIndependence:
    def test_one_server_that_does_not_end_delays_no_other(self, supervise: Supervise) -> None:
        stubborn, other = supervise().started(), supervise().started()
        stubborn.transport.channel().hold_closing()
        stubborn.transport.channel().end()
        stubborn.transport.channel().wait_until_closing()
        restart(other)
        result = other.submit()
        assert other.is_answered_by(2, result)
        assert stubborn.transport.starts == 1

    def test_an_error_answer_is_the_callers_business_only(self, server: Supervised) -> None:
        channel = server.transport.channel()
        result = server.submit()
        channel.answer_error(channel.wait_for("tools/call"), -32000, "no")
        error = result.exception(PATIENCE)
        assert isinstance(error, JsonRpcError)
        assert error.code == -32000
        assert server.states == [ServerState.STARTING, ServerState.READY]


def first_messages(transport: FakeTransport, number: int) -> list[str]:
    """The methods that were sent to open the conversation on this channel."""
    channel = transport.channel(number)
    channel.wait_for("notifications/initialized")
    return [method for method in ("server/discover", "initialize") if channel.requests(method)]


def test_a_supervisor_knows_what_the_one_before_it_found_out(supervise: Callable[..., Supervised]) -> None:
    server = supervise(protocol="auto")
    started = server.in_background(server.supervisor.start)
    channel = server.transport.channel()
    channel.answer_error(channel.wait_for("server/discover"), -32601, "no such method")
    assert started.result(PATIENCE)
    assert first_messages(server.transport, 1) == ["server/discover", "initialize"]
    server.supervisor.stop()
    again = Supervisor(server.context)
    assert again.start()
    assert first_messages(server.transport, 2) == ["initialize"]
    again.stop()


def test_without_an_executor_of_its_own_span_processors_run_on_the_thread_that_ends_a_span(server: Supervised) -> None:
    threads: list[threading.Thread] = []
    server.context.executor(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]


class Ended(Generation):
    """A started server that is ended."""

    def __init__(self, server: Supervised) -> None:
        handlers = Handlers(*(lambda *_: None,) * 5)
        super().__init__(server.context, EventLoop(server.clock), 1, server.supervisor.call_queue, handlers)
        self.channel = server.transport.channel(1)


@pytest.fixture
def ended(supervise: Callable[..., Supervised]) -> Ended:
    return Ended(supervise())


LOSS = Loss(None, Ending(), was_ready=True)


@pytest.fixture
def closed() -> "queue.SimpleQueue[Ending]":
    return queue.SimpleQueue()


def test_it_closes_beside_its_maker_and_tells_how_the_server_ended(
    ended: Ended, closed: "queue.SimpleQueue[Ending]"
) -> None:
    ended.channel.hold_closing()
    ended.channel.end(signal="SIGKILL")
    ended.terminate(LOSS, closed.put)
    ended.channel.wait_until_closing()
    assert ended.channel.closed_with_grace == 2.0
    assert closed.empty()
    assert not ended.is_terminated
    ended.channel.let_close()
    ended.stop()
    assert closed.get(timeout=PATIENCE) == Ending(signal="SIGKILL")
    assert closed.empty()


def test_without_a_thread_to_spare_it_closes_all_the_same(
    ended: Ended, closed: "queue.SimpleQueue[Ending]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ended.channel.end(exit_code=1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    ended.terminate(LOSS, closed.put)
    ended.stop()
    assert closed.get(timeout=PATIENCE) == Ending(exit_code=1)


def test_a_channel_that_cannot_be_closed_is_not_waited_for_for_ever(
    ended: Ended, closed: "queue.SimpleQueue[Ending]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: float) -> Ending:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(ended.channel, "close", fail)
    ended.terminate(LOSS, closed.put)
    ended.stop()
    assert closed.get(timeout=PATIENCE) == Ending()
