"""The callers' side: waiting, giving up, progress, futures; and on which threads a caller's own code runs."""

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, wait
from queue import Queue
from typing import Any, NoReturn
from unittest.mock import Mock

import pytest

from gaia.mcp.errors import CallCancelled, CallTimeout, MCPError
from gaia.mcp.requests.exchange import CallOptions, RequestExchange
from gaia.mcp.rpc.call import Call
from gaia.runtime.deadlines import deadlines_of
from tests.fake_transport import FakeChannel
from tests.supervised import Supervised
from tests.waiting import PATIENCE, wait_until

TEXT = {"content": [{"type": "text", "text": "hello"}]}


@pytest.fixture
def channel(server: Supervised) -> FakeChannel:
    return server.transport.channel()


@contextlib.contextmanager
def collecting_nothing() -> Iterator[None]:
    """What only a collection of garbage would free is not freed in the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Something for callbacks to wait for; set at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


def cancellation(channel: FakeChannel, nth: int = 1) -> Any:
    return channel.wait_for("notifications/cancelled", nth)["params"]


def progress(channel: FakeChannel, request: dict[str, Any], **params: Any) -> None:
    channel.notify("notifications/progress", {"progressToken": request["params"]["_meta"]["progressToken"], **params})


class TestWaiting:
    def test_the_id_of_the_request_is_told_before_it_is_sent(self, server: Supervised, channel: FakeChannel) -> None:
        told: list[int] = []
        observer = Mock(context=None, numbered=told.append)
        result = server.in_background(
            server.request, RequestExchange("tools/call", {"name": "echo"}, observation=observer)
        )
        request = channel.wait_for("tools/call")
        assert told == [request["id"]]
        channel.answer(request, TEXT)
        result.result(PATIENCE)


class TestGivingUp:
    def test_an_answer_at_the_very_moment_of_the_deadline_counts(
        self, server: Supervised, channel: FakeChannel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def answered_just_after_waiting(*_: object) -> bool:
            channel.answer(channel.wait_for("tools/call"), TEXT)
            return False

        monkeypatch.setattr(server.clock, "acquire", answered_just_after_waiting)
        assert server.request(RequestExchange("tools/call", {"name": "a"}, CallOptions(5.0))) == TEXT
        assert channel.requests("notifications/cancelled") == []

    def test_a_call_that_was_not_written_in_time_never_will_be(self, server: Supervised, channel: FakeChannel) -> None:
        channel.stop_reading()
        results = [server.call(timeout=5.0), server.submit(timeout=5.0)]
        server.wait_for_waiters(server.clock.monotonic() + 5.0, 2)
        server.clock.advance(5.0)
        for result in results:
            error = result.exception(PATIENCE)
            assert isinstance(error, CallTimeout)
            assert error.delivery == "not_sent"
        channel.resume_reading()
        assert server.is_answered_by(server.transport.starts)
        assert len(channel.requests("tools/call")) == 1
        assert channel.requests("notifications/cancelled") == []

    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
    def test_an_interrupt_of_the_waiting_thread_tells_the_server_to_stop(
        self,
        server: Supervised,
        channel: FakeChannel,
        monkeypatch: pytest.MonkeyPatch,
        interrupt: type[BaseException],
    ) -> None:
        def interrupted(*_: object) -> NoReturn:
            raise interrupt

        monkeypatch.setattr(server.clock, "acquire", interrupted)
        with pytest.raises(interrupt):
            server.request(RequestExchange("tools/call", {"name": "echo"}, CallOptions(30.0)))
        assert cancellation(channel)["requestId"] == channel.wait_for("tools/call")["id"]
        assert server.in_flight == 0

    def test_so_does_one_that_a_progress_callback_raises(self, server: Supervised, channel: FakeChannel) -> None:
        def interrupt(*_: object) -> NoReturn:
            raise KeyboardInterrupt

        result = server.call(on_progress=interrupt)
        request = channel.wait_for("tools/call")
        progress(channel, request, progress=1)
        with pytest.raises(KeyboardInterrupt):
            result.result(PATIENCE)
        assert cancellation(channel)["requestId"] == request["id"]

    def test_nothing_is_kept_of_calls_that_were_given_up(self, server: Supervised, channel: FakeChannel) -> None:
        futures = [server.submit() for _ in range(10)]
        channel.wait_for("tools/call", 10)
        for future in futures:
            future.cancel()
        assert server.in_flight == 0
        assert len(server.supervisor.call_queue) == 0


class TestProgress:
    def test_it_is_reported_in_the_waiting_thread_and_all_of_it_before_the_call_returns(
        self, server: Supervised, channel: FakeChannel
    ) -> None:
        reports: list[tuple[Any, ...]] = []
        threads: set[threading.Thread] = set()

        def report(*values: Any) -> None:
            reports.append(values)
            threads.add(threading.current_thread())

        def call() -> threading.Thread:
            server.request(RequestExchange("tools/call", {"name": "echo"}, CallOptions(on_progress=report)))
            reports.append(("returned",))
            return threading.current_thread()

        waiting = server.in_background(call)
        request = channel.wait_for("tools/call")
        progress(channel, request, progress=1)
        progress(channel, request, progress=2, total=3)
        progress(channel, request, progress=3, total=3, message="done")
        channel.answer(request, TEXT)
        assert threads == {waiting.result(PATIENCE)}
        assert reports == [(1, None, None), (2, 3, None), (3, 3, "done"), ("returned",)]

    def test_it_is_reported_even_if_the_deadline_comes_at_the_same_moment(
        self, server: Supervised, channel: FakeChannel, held: threading.Event
    ) -> None:
        reports: list[float] = []

        def report(value: float, *_: object) -> None:
            reports.append(value)
            assert held.wait(PATIENCE)

        result = server.call(timeout=5.0, on_progress=report)
        request = channel.wait_for("tools/call")
        for value in (1, 2, 3):
            progress(channel, request, progress=value)
        channel.answer(request, TEXT)
        server.clock.advance(6.0)
        held.set()
        assert result.result(PATIENCE) == TEXT
        assert reports == [1, 2, 3]

    def test_the_deadline_holds_although_progress_goes_on(self, server: Supervised, channel: FakeChannel) -> None:
        reported = threading.Semaphore(0)
        result = server.call(timeout=5.0, on_progress=lambda *_: reported.release())
        request = channel.wait_for("tools/call")
        for second in range(4):
            server.clock.advance(1.0)
            progress(channel, request, progress=second)
            assert reported.acquire(timeout=PATIENCE)
        server.pass_time(1.0)
        assert isinstance(result.exception(PATIENCE), CallTimeout)

    def test_a_callback_that_fails_does_not_break_the_call(self, server: Supervised, channel: FakeChannel) -> None:
        seen: list[float] = []

        def report(value: float, *_: object) -> None:
            seen.append(value)
            raise ZeroDivisionError

        result = server.call(on_progress=report)
        request = channel.wait_for("tools/call")
        progress(channel, request, progress=1)
        progress(channel, request, progress=2)
        channel.answer(request, TEXT)
        assert result.result(PATIENCE) == TEXT
        assert seen == [1, 2]

    def test_a_repeated_call_goes_on_reporting(self, server: Supervised, channel: FakeChannel) -> None:
        reports: list[float] = []
        result = server.call("look", repeatable=True, on_progress=lambda value, *_: reports.append(value))
        progress(channel, channel.wait_for("tools/call"), progress=1)
        channel.end(exit_code=1)
        second = server.transport.channel(2)
        request = second.wait_for("tools/call")
        progress(second, request, progress=2)
        second.answer(request, TEXT)
        assert result.result(PATIENCE) == TEXT
        assert reports == [1, 2]

    def test_a_flood_that_nobody_keeps_up_with_is_bounded(
        self, server: Supervised, channel: FakeChannel, held: threading.Event
    ) -> None:
        reports: list[float] = []

        def report(value: float, *_: object) -> None:
            assert held.wait(PATIENCE)
            reports.append(value)

        result = server.call(on_progress=report)
        request = channel.wait_for("tools/call")
        for value in range(15_000):
            progress(channel, request, progress=value)
        held.set()
        channel.answer(request, TEXT)
        assert result.result(PATIENCE) == TEXT
        assert 10_000 <= len(reports) <= 10_001
        assert reports == sorted(reports)


class TestFutures:
    def test_timeouts_come_in_the_order_of_the_deadlines(self, server: Supervised, channel: FakeChannel) -> None:
        futures = {timeout: server.submit(timeout=timeout) for timeout in (3.0, 1.0, 2.0)}
        server.settle()
        for number, timeout in enumerate((1.0, 2.0, 3.0), 1):
            server.pass_time(1.0)
            cancellation(channel, number)
            assert isinstance(futures[timeout].exception(PATIENCE), CallTimeout)
            assert sorted(timeout for timeout, future in futures.items() if future.done()) == [1.0, 2.0, 3.0][:number]

    def test_deadlines_are_kept_however_many_letters_come(self, server: Supervised, channel: FakeChannel) -> None:
        future = server.submit(timeout=5.0)
        server.settle()
        flooding = threading.Event()

        def flood() -> None:
            flooding.set()
            while not future.done():
                server.supervisor._loop.post(lambda: None)

        flooded = server.in_background(flood)
        assert flooding.wait(PATIENCE)
        server.clock.advance(5.0)
        assert isinstance(future.exception(PATIENCE), CallTimeout)
        flooded.result(PATIENCE)

    def test_deadlines_are_kept_while_the_supervisor_waits(
        self, server: Supervised, channel: FakeChannel, held: threading.Event
    ) -> None:
        """It starts a process, or waits for the file of approved tools."""
        waiting = threading.Event()
        server.supervisor._loop.post(lambda: (waiting.set(), held.wait(PATIENCE)))
        assert waiting.wait(PATIENCE)
        request = RequestExchange("tools/call", {"name": "echo"}, CallOptions(5.0))
        relayed: Queue[MCPError | None] = Queue()
        request.owner = Mock()
        call = server.caller.new_call(request, lambda call: relayed.put(call.error))
        call.start(deadlines_of(server.clock))
        future = server.submit(timeout=5.0)
        server.pass_time(5.0)
        assert isinstance(future.exception(PATIENCE), CallTimeout)
        assert isinstance(relayed.get(timeout=PATIENCE), CallTimeout)
        assert not held.is_set()

    def test_cancelling_before_it_was_written_keeps_it_from_being_written(
        self, server: Supervised, channel: FakeChannel
    ) -> None:
        channel.stop_reading()
        future = server.submit()
        assert future.cancel()
        channel.resume_reading()
        assert server.is_answered_by(server.transport.starts)
        assert len(channel.requests("tools/call")) == 1
        assert channel.requests("notifications/cancelled") == []

    def test_cancelling_too_late_changes_nothing_and_twice_is_cancelled(
        self, server: Supervised, channel: FakeChannel
    ) -> None:
        future = server.submit()
        channel.answer(channel.wait_for("tools/call"), TEXT)
        future.result(PATIENCE)
        assert not future.cancel()
        assert future.result() == TEXT
        assert channel.requests("notifications/cancelled") == []
        future = server.submit()
        channel.wait_for("tools/call", 2)
        assert future.cancel()
        assert future.cancel()
        assert len(channel.requests("notifications/cancelled")) == 1

    def test_a_progress_callback_that_never_returns_does_not_keep_it_from_being_done(
        self, server: Supervised, channel: FakeChannel, held: threading.Event
    ) -> None:
        future = server.submit(on_progress=lambda *_: held.wait(PATIENCE))
        request = channel.wait_for("tools/call")
        progress(channel, request, progress=1)
        channel.answer(request, TEXT)
        assert future.done()
        assert not future.cancel()
        assert future.result(PATIENCE) == TEXT

    def test_cancelling_after_the_client_was_disconnected_leaves_the_error(
        self, server: Supervised, channel: FakeChannel
    ) -> None:
        future = server.submit()
        channel.wait_for("tools/call")
        server.supervisor.stop()
        assert not future.cancel()
        assert isinstance(future.exception(PATIENCE), CallCancelled)

    @pytest.mark.parametrize("end", ["result", "error", "timeout", "crash", "close"])
    def test_callbacks_run_on_a_callback_thread(self, server: Supervised, channel: FakeChannel, end: str) -> None:
        threads: Future[str] = Future()
        future = server.submit(timeout=5.0)
        future.add_done_callback(lambda _: threads.set_result(threading.current_thread().name))
        request = channel.wait_for("tools/call")
        if end == "result":
            channel.answer(request, TEXT)
        elif end == "error":
            channel.answer_error(request, -1, "no")
        elif end == "timeout":
            server.pass_time(5.0)
        elif end == "crash":
            channel.end(exit_code=1)
        else:
            server.supervisor.stop()
        assert threads.result(PATIENCE).startswith("mcp-test-callbacks-")

    def test_progress_comes_in_order_and_before_the_result(self, server: Supervised, channel: FakeChannel) -> None:
        seen: list[Any] = []
        finished = threading.Event()
        future = server.submit(on_progress=lambda value, *_: seen.append(value))
        future.add_done_callback(lambda _: seen.append("done"))
        future.add_done_callback(lambda _: finished.set())
        request = channel.wait_for("tools/call")
        for value in range(100):
            progress(channel, request, progress=value)
        channel.answer(request, TEXT)
        assert finished.wait(PATIENCE)
        assert seen == [*range(100), "done"]

    def test_one_whose_callback_never_returns_holds_up_no_other(
        self, server: Supervised, channel: FakeChannel, held: threading.Event
    ) -> None:
        slow = server.submit()
        slow.add_done_callback(lambda _: held.wait(PATIENCE))
        channel.answer(channel.wait_for("tools/call"), TEXT)
        slow.result(PATIENCE)
        for number in range(2, 10):
            future = server.submit()
            channel.answer(channel.wait_for("tools/call", number), TEXT)
            assert future.result(PATIENCE) == TEXT

    def test_a_callback_may_make_calls_and_stop_the_server(self, server: Supervised, channel: FakeChannel) -> None:
        followed: Future[BaseException | None] = Future()

        def follow(_: object) -> None:
            other = server.submit()
            server.supervisor.stop()
            followed.set_result(other.exception(PATIENCE))

        server.submit().add_done_callback(follow)
        channel.answer(channel.wait_for("tools/call"), TEXT)
        assert isinstance(followed.result(PATIENCE), CallCancelled)

    @pytest.mark.parametrize("outcome", ["result", "error", "cancelled"])
    def test_nothing_of_a_call_is_kept_when_its_future_is_dropped(
        self, server: Supervised, channel: FakeChannel, outcome: str
    ) -> None:
        futures = [server.submit(str(number), timeout=3600.0) for number in range(20)]
        for number, future in enumerate(futures, 1):
            request = channel.wait_for("tools/call", number)
            if outcome == "result":
                channel.answer(request, TEXT)
            elif outcome == "error":
                channel.answer_error(request, -1, "no")
            else:
                future.cancel()
            wait([future], PATIENCE)
        server.settle()
        with collecting_nothing():
            refs = [weakref.ref(future) for future in futures]
            del futures, future
            assert wait_until(lambda: [ref for ref in refs if ref() is not None] == [])
            # The last one may still be known to the thread that has ended it.
            assert sum(isinstance(one, Call) and one.method == "tools/call" for one in gc.get_objects()) <= 1

    def test_a_future_keeps_the_result_and_not_the_call(self, server: Supervised, channel: FakeChannel) -> None:
        channel.answer_calls()
        futures = [server.submit(timeout=3600.0) for _ in range(20)]
        wait(futures, PATIENCE)
        server.settle()
        with collecting_nothing():
            assert wait_until(
                lambda: sum(isinstance(one, Call) and one.method == "tools/call" for one in gc.get_objects()) <= 1
            )
        assert [future.result() for future in futures]

    def test_ended_ones_are_let_go_long_before_their_deadlines(self, server: Supervised, channel: FakeChannel) -> None:
        channel.answer_calls()
        futures = [server.submit(timeout=3600.0) for _ in range(2000)]
        for future in futures:
            future.result(PATIENCE)
        server.settle()
        deadlines = deadlines_of(server.clock)
        assert len(deadlines._heap) + len(deadlines._arrived) <= 512


@pytest.mark.parametrize("submitted", [False, True])
def test_statistics_count_calls_errors_and_time(server: Supervised, channel: FakeChannel, submitted: bool) -> None:
    for outcome in ("result", "tool error", "error"):
        result = server.submit() if submitted else server.call()
        request = channel.wait_for("tools/call", server.statistics.calls + 1)
        server.clock.advance(2.0)
        if outcome == "error":
            channel.answer_error(request, -1, "no")
        else:
            channel.answer(request, {"content": [], "isError": outcome == "tool error"})
        result.exception(PATIENCE)
    assert (server.statistics.calls, server.statistics.errors) == (3, 2)
    assert server.statistics.percentiles(0.5) == [2.0]


class TestTimeoutsThatProgressSetsBack:
    def wanted(self, **options: Any) -> RequestExchange:
        return RequestExchange("tools/call", {"name": "echo"}, CallOptions(10.0, **options), max_timeout=25.0)

    def later(self, server: Supervised, seconds: float, deadline: float) -> None:
        """Let time pass when somebody waits for `deadline`, a reading of the clock."""
        server.clock.wait_for_waiter(deadline)
        server.clock.advance(seconds)

    @pytest.mark.parametrize("reported", [True, False])
    def test_each_report_gives_the_whole_timeout_again(
        self, server: Supervised, channel: FakeChannel, reported: bool
    ) -> None:
        reports: list[Any] = []
        on_progress = (lambda *values: reports.append(values)) if reported else None
        start = server.clock.monotonic()
        result = server.in_background(server.request, self.wanted(on_progress=on_progress))
        request = channel.wait_for("tools/call")
        self.later(server, 8.0, start + 10.0)
        progress(channel, request, progress=1)
        # The old deadline passes, and nothing happens.
        server.clock.advance(8.0)
        server.clock.wait_for_waiter(start + 18.0)
        progress(channel, request, progress=2)
        channel.answer(request, TEXT)
        assert result.result(PATIENCE) == TEXT
        assert reports == ([(1, None, None), (2, None, None)] if reported else [])

    def test_there_is_a_maximum(self, server: Supervised, channel: FakeChannel) -> None:
        start = server.clock.monotonic()
        result = server.in_background(server.request, self.wanted())
        request = channel.wait_for("tools/call")
        server.clock.wait_for_waiter(start + 10.0)
        for number in range(2):
            server.clock.advance(9.0)
            progress(channel, request, progress=number)
        server.clock.advance(6.5)
        server.clock.wait_for_waiter(start + 25.0)
        server.clock.advance(0.5)
        assert isinstance(result.exception(PATIENCE), CallTimeout)

    def test_submitted_calls_too(self, server: Supervised, channel: FakeChannel) -> None:
        start = server.clock.monotonic()
        future = server.requests.submit(self.wanted(), server.callbacks.lane())
        request = channel.wait_for("tools/call")
        self.later(server, 8.0, start + 10.0)
        progress(channel, request, progress=1)
        server.clock.advance(8.0)
        server.clock.wait_for_waiter(start + 18.0)
        assert not future.done()
        server.clock.advance(2.0)
        assert isinstance(future.exception(PATIENCE), CallTimeout)
