"""One connection: whose answer a line is, what is noise, and that nothing is lost when it closes."""

from __future__ import annotations

import itertools
import json
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import CallTimeout, InvalidResponse, JsonRpcError, MCPError, Overloaded, ServerCrashed, StartFailed
from gaia.mcp.protocol.exchange import NegotiatedProtocol
from gaia.mcp.protocol.framing import OversizedLine
from gaia.mcp.protocol.messages import Notification
from gaia.mcp.rpc import call as call_module
from gaia.mcp.rpc import connection as connection_module
from gaia.mcp.rpc.call import Call
from gaia.mcp.rpc.channel import Channel, ChannelListener, Ending, Frame, Outgoing
from gaia.mcp.rpc.connection import Connection, ConnectionState, CountedConnection
from gaia.mcp.rpc.unparsed_output import UnparsedOutput
from gaia.testing import FakeClock
from tests.interleaving import interleavings
from tests.supervised import Supervised, restart
from tests.waiting import PATIENCE

Json = dict[str, Any]
SECRET = "hunter2-hunter2"


class FakeChannel:
    """Writes everything at once and in order, into a list; or nothing, as a full pipe does."""

    def __init__(self) -> None:
        self.pid: int | None = 1
        self.room = 1_000_000
        self.is_full = False
        self.waiting: list[Outgoing] = []
        self._written: list[bytes] = []
        self._turn = threading.Lock()

    def send(self, item: Outgoing) -> bool:
        if len(self.waiting) >= self.room:
            return False
        self.waiting.append(item)
        while self.waiting and not self.is_full and self._turn.acquire(False):
            while self.waiting:
                first = self.waiting.pop(0)
                if first.begin_write():
                    self._written.append(first.frame)
            self._turn.release()
        return True

    def cancel(self, notice: Frame) -> None:
        self.send(notice)

    def set_protocol_version(self, negotiated: NegotiatedProtocol) -> None:
        return None

    def redact(self, text: str) -> str:
        return text.replace(SECRET, "***")

    def ending(self, wait: float) -> Ending | None:
        return None

    def stop_writing(self) -> bool:
        return False

    def close(self, grace: float) -> Ending:
        return Ending()

    def cancel_call(self) -> None:
        return None

    @property
    def written(self) -> list[Json]:
        return [json.loads(frame) for frame in self._written]


def new_connection(clock: FakeClock, max_pending: int = 100, kind: type[Connection] = Connection) -> Connection:
    return kind("test", 1, clock, max_pending=max_pending, on_notification=lambda _: None, on_ended=lambda _: None)


class Fixture:
    """A connection, both its ends, and what it reports."""

    def __init__(self, clock: FakeClock, max_pending: int = 100) -> None:
        self.clock = clock
        self.channel = FakeChannel()
        self.notifications: list[Notification] = []
        self.ended: list[Connection] = []
        self.connection = Connection(
            "test",
            generation=1,
            clock=clock,
            max_pending=max_pending,
            on_notification=self.notifications.append,
            on_ended=self.ended.append,
        )
        self.connection.channel = self.channel
        self._ids = itertools.count(1)

    def call(self, method: str = "tools/call", **settings: Any) -> Call:
        return Call(next(self._ids), method, {"a": 1}, self.clock.monotonic(), 30.0, **settings)

    def submit(self, method: str = "tools/call", **settings: Any) -> Call:
        submitted = self.call(method, **settings)
        assert self.connection.submit(submitted)
        return submitted

    def receive(self, *messages: Any) -> None:
        """The server writes these: bytes as they are, everything else as JSON."""
        for message in messages:
            self.connection.message_received(
                message if isinstance(message, (bytes, OversizedLine)) else json.dumps(message).encode()
            )

    @property
    def cancellations(self) -> list[Json]:
        return [message for message in self.channel.written if message["method"] == "notifications/cancelled"]


def answer(identifier: Any, result: Any = None) -> Json:
    return {"jsonrpc": "2.0", "id": identifier, "result": {"for": identifier} if result is None else result}


def failure(identifier: Any, error: Any) -> Json:
    return {"jsonrpc": "2.0", "id": identifier, "error": error}


def notification(method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


@pytest.fixture
def test(fake_clock: FakeClock) -> Fixture:
    return Fixture(fake_clock)


CREATED, READY, CLOSED = ConnectionState.CREATED, ConnectionState.READY, ConnectionState.CLOSED


class TestState:
    @given(st.lists(st.sampled_from([CREATED, READY, CLOSED, "close"]), max_size=8))
    def test_it_only_moves_forward(self, moves: list[ConnectionState | str]) -> None:
        connection = Fixture(FakeClock()).connection
        assert connection.state is CREATED
        allowed = {(CREATED, READY), (CREATED, CLOSED), (READY, CLOSED)}
        for move in moves:
            before = connection.state
            if isinstance(move, str):
                connection.close()
                assert connection.state is CLOSED
            elif (before, move) in allowed:
                connection.move_to(move)
                assert connection.state is move
            else:
                with pytest.raises(ValueError, match=f"cannot go from {before.value} to {move.value}"):
                    connection.move_to(move)
                assert connection.state is before

    @pytest.mark.parametrize("goal", [READY, CLOSED])
    def test_of_many_that_move_it_at_once_one_does(
        self, goal: ConnectionState, fake_clock: FakeClock, switching: None
    ) -> None:
        for _ in range(50):
            connection = Fixture(fake_clock).connection
            barrier = threading.Barrier(4)

            def move(connection: Connection = connection, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait(PATIENCE)
                try:
                    connection.move_to(goal)
                except ValueError:
                    return False
                return True

            with ThreadPoolExecutor(4) as pool:
                moved = [pool.submit(move) for _ in range(4)]
                assert sum(future.result(PATIENCE) for future in moved) == 1

    def test_the_end_of_the_channel_is_passed_on(self, test: Fixture) -> None:
        test.connection.channel_ended()
        assert test.ended == [test.connection]


class TestAnswers:
    def test_each_goes_to_its_call_in_whatever_order_they_come(self, test: Fixture) -> None:
        calls = [test.submit() for _ in range(3)]
        test.receive(answer(2), answer(3), answer(1))
        assert [call.result for call in calls] == [{"for": 1}, {"for": 2}, {"for": 3}]
        assert test.connection.in_flight == 0

    @given(st.permutations(range(1, 9)), st.lists(st.integers(1, 12), max_size=20))
    def test_duplicates_and_strangers_change_nothing(self, order: list[int], others: list[int]) -> None:
        test = Fixture(FakeClock())
        calls = [test.submit() for _ in range(8)]
        for identifier in order:
            test.receive(answer(identifier))
            test.receive(
                *(answer(other, {"late": True}) for other in others if other in order[: order.index(identifier)])
            )
            test.receive(*(answer(other, {"stranger": True}) for other in others if other > 8))
        assert [call.result for call in calls] == [{"for": number} for number in range(1, 9)]

    @pytest.mark.parametrize(
        "identifier", ["", "one", "-1", "1.0", "0x1", "²", "9" * 5000, 1.0, True, None, [1], 0, -1, 10**18]
    )
    def test_the_id_may_come_back_as_a_string_and_nothing_else_is_taken_for_it(
        self, test: Fixture, identifier: Any
    ) -> None:
        call = test.submit()
        test.receive(answer(identifier), {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert not call.ended
        test.receive(answer("1"))
        assert call.result == {"for": "1"}

    @pytest.mark.parametrize("result", ["text", 5, [1], True])
    def test_a_result_that_is_no_object_is_invalid(self, test: Fixture, result: Any) -> None:
        call = test.submit()
        test.receive(answer(1, result))
        assert isinstance(call.error, InvalidResponse)
        assert "the result of tools/call is not an object" in call.error.message

    @pytest.mark.parametrize(
        ("message", "read"), [(f"bad {SECRET}", "bad ***"), (None, ""), (5, ""), (["text"], ""), ({"text": 1}, "")]
    )
    def test_an_error_is_passed_on_with_code_readable_message_and_data(
        self, test: Fixture, message: Any, read: str
    ) -> None:
        call = test.submit()
        test.receive(failure(1, {"code": -32602, "message": message, "data": {"field": "a"}}))
        assert isinstance(call.error, JsonRpcError)
        assert (call.error.code, call.error.message, call.error.data) == (-32602, read, {"field": "a"})
        assert call.error.delivery == "unknown"

    @pytest.mark.parametrize("error", [None, "text", 5, [], {}, {"code": "1"}, {"code": True}, {"code": None}])
    def test_an_error_without_an_integer_code_is_invalid(self, test: Fixture, error: Any) -> None:
        call = test.submit()
        test.receive(failure(1, error))
        assert isinstance(call.error, InvalidResponse)

    @pytest.mark.parametrize("depth", [900, 1000, 1020])
    @pytest.mark.parametrize("identifier", ["1", "null"])
    def test_deep_nesting_ends_nobody(self, test: Fixture, depth: int, identifier: str) -> None:
        """Turning it into text would raise, in the thread that reads for all calls."""
        nested = "[" * depth + "]" * depth
        calls = [test.submit() for _ in range(2)]
        for error in (nested, f'{{"code":1,"message":{nested}}}', f'{{"code":1,"message":"no","data":{nested}}}'):
            test.receive(f'{{"jsonrpc":"2.0","id":{identifier},"error":{error}}}'.encode())
        test.receive(answer(2))
        assert calls[1].result == {"for": 2}

    def test_an_error_without_an_id_is_logged_and_ends_no_call(
        self, test: Fixture, caplog: pytest.LogCaptureFixture
    ) -> None:
        call = test.submit()
        test.receive(failure(None, {"code": -32700, "message": f"Parse error {SECRET}"}))
        assert not call.ended
        assert "Parse error ***" in caplog.text

    def test_a_late_error_is_logged_like_any_late_answer(self, test: Fixture, caplog: pytest.LogCaptureFixture) -> None:
        """When its input ends, a server on the official SDK answers its open subscription like this."""
        call = test.submit()
        call.finish(error=CallTimeout("too late"))
        test.connection.cancel_call(call, "timeout")
        with caplog.at_level("DEBUG"):
            test.receive(failure(1, {"code": -32000, "message": "Connection closed"}))
        assert "answer_ignored" in caplog.text
        assert "server_error" not in caplog.text

    def test_all_answers_of_a_batch_count(self, test: Fixture) -> None:
        calls = [test.submit() for _ in range(2)]
        test.receive([answer(1), notification("notifications/message"), 5, answer(2)])
        assert all(call.ended for call in calls)
        assert len(test.notifications) == 1

    def test_so_many_log_messages_in_a_second_are_looked_at_and_no_more(
        self, test: Fixture, caplog: pytest.LogCaptureFixture
    ) -> None:
        log, other = notification("notifications/message", level="info", data="x"), notification("notifications/other")
        for _ in range(3):
            test.receive(*[log] * 500)
        test.receive(other)
        assert len(test.notifications) == 1001, "other notifications are none of them"
        assert caplog.text.count("server_logs_dropped") == 1
        test.clock.advance(1.0)
        test.receive(log)
        assert len(test.notifications) == 1002


class TestNotifications:
    def test_they_are_passed_on_in_order(self, test: Fixture) -> None:
        test.receive(*(notification("notifications/message", data=number) for number in range(3)))
        assert [heard.params["data"] for heard in test.notifications] == [0, 1, 2]

    @pytest.mark.parametrize("token", [1, "1"])
    def test_progress_goes_to_the_call_with_its_token(self, test: Fixture, token: Any) -> None:
        reports: list[Any] = []
        test.submit(on_progress=reports.append)
        other = test.submit(on_progress=lambda _: pytest.fail("not its token"))
        test.receive(notification("notifications/progress", progressToken=token, progress=0.5, total=2))
        assert reports == [{"progressToken": token, "progress": 0.5, "total": 2}]
        assert test.notifications == []
        assert not other.ended

    @pytest.mark.parametrize("token", [2, 99, "one", True, 1.0, None, [1], {"a": 1}])
    def test_progress_with_any_other_token_goes_to_nobody(self, test: Fixture, token: Any) -> None:
        test.submit(on_progress=lambda _: pytest.fail("not its token"))
        test.submit()
        test.receive(notification("notifications/progress", progressToken=token, progress=1))
        test.receive(notification("notifications/progress"))
        # So does that of a call that has ended.
        test.receive(answer(1), notification("notifications/progress", progressToken=1, progress=1))


class TestNoise:
    def test_what_is_no_message_is_counted_and_sampled(self, test: Fixture, caplog: pytest.LogCaptureFixture) -> None:
        test.receive(b"", b"   ", b"\t")
        assert test.connection.unparsed == UnparsedOutput(), "empty lines are no noise"
        test.receive(b"Listening on stdio", b'{"level":"info"}', b"\xff" + SECRET.encode())
        assert test.connection.unparsed == UnparsedOutput(lines=3, size=18 + 16 + 1 + len(SECRET), last="\ufffd***")
        assert caplog.text.count("noise_on_stdout") == 1, "it is logged once, not for each line"

    def test_only_messages_are_signs_of_life(self, test: Fixture) -> None:
        connected = test.connection.last_heard
        test.clock.advance(5.0)
        test.receive(b"noise")
        assert test.connection.last_heard == connected
        test.receive(notification("notifications/message"))
        assert test.connection.last_heard == connected + 5.0

    def test_an_answer_that_is_too_long_fails_its_own_call_and_is_noise(self, test: Fixture) -> None:
        calls = [test.submit() for _ in range(2)]
        test.receive(OversizedLine(300_000_000, b"xxx", b"xxx"))
        assert not any(call.ended for call in calls)
        assert test.connection.unparsed.lines == 1
        head = b'{"jsonrpc":"2.0","id":1,"result":{"text":"'
        test.receive(OversizedLine(300_000_000, head, b'"}}'))
        assert isinstance(calls[0].error, InvalidResponse)
        assert "300000000 bytes" in calls[0].error.message
        assert not calls[1].ended
        assert test.connection.unparsed == UnparsedOutput(2, 600_000_000, head.decode())


class TestSubmitting:
    def test_before_there_is_a_channel_and_after_the_end_it_has_to_go_elsewhere(self, fake_clock: FakeClock) -> None:
        test = Fixture(fake_clock)
        test.connection.close()
        call = test.call()
        assert test.connection.submit(call) is False
        assert not call.ended
        assert test.channel.written == []
        assert new_connection(fake_clock).submit(call) is False

    def test_more_than_may_be_under_way_are_refused(self, fake_clock: FakeClock) -> None:
        test = Fixture(fake_clock, max_pending=2)
        waiting = [test.submit() for _ in range(2)]
        refused = test.submit()
        assert isinstance(refused.error, Overloaded)
        assert refused.error.delivery == "not_sent"
        assert not any(call.ended for call in waiting)
        test.receive(answer(1))
        assert not test.submit().ended

    def test_so_is_what_finds_no_room_in_the_channel(self, test: Fixture) -> None:
        test.channel.room = 0
        refused = test.submit()
        assert isinstance(refused.error, Overloaded)
        assert test.connection.in_flight == 0

    def test_our_own_questions_are_not_refused(self, fake_clock: FakeClock) -> None:
        """Whether a server lives is asked when it is overloaded, too."""
        test = Fixture(fake_clock, max_pending=1)
        test.submit()
        assert not test.submit("ping", bound=True).ended
        test.channel.room = 0
        assert not test.submit("ping", bound=True).ended

    def test_older_calls_that_are_unanswered_can_be_asked_for(self, test: Fixture) -> None:
        first, second = test.submit(), test.submit()
        assert test.connection.has_older_than(second)
        assert not test.connection.has_older_than(first)
        test.receive(answer(1))
        assert not test.connection.has_older_than(second)


class TestAbandoning:
    def test_the_server_is_told_what_nobody_waits_for_any_more(self, test: Fixture) -> None:
        call = test.submit()
        call.finish(error=CallTimeout("too late"))
        test.connection.cancel_call(call, "timeout")
        assert test.cancellations == [
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": "timeout"}}
        ]
        assert test.connection.in_flight == 0

    @pytest.mark.parametrize(
        ("method", "happens"),
        [
            pytest.param("initialize", lambda _: None, id="initialize"),
            pytest.param("tools/call", lambda test: test.receive(answer(1)), id="what it has answered"),
            pytest.param("tools/call", lambda test: test.connection.close(), id="anything after the end"),
        ],
    )
    def test_nothing_else_is_cancelled(self, test: Fixture, method: str, happens: Callable[[Fixture], None]) -> None:
        call = test.submit(method)
        happens(test)
        test.connection.cancel_call(call, "timeout")
        assert test.cancellations == []

    def test_nor_is_what_the_server_has_not_seen(self, test: Fixture) -> None:
        test.channel.is_full = True
        call = test.submit()
        test.channel.is_full = False
        call.finish(error=CallTimeout("too late"))
        test.connection.cancel_call(call, "timeout")
        assert test.channel.written == []
        assert not test.channel.waiting[0].begin_write()

    def test_a_call_that_was_given_up_before_it_came_is_not_kept(self, test: Fixture) -> None:
        call = test.call()
        call.finish(error=CallTimeout("too late"))
        assert test.connection.submit(call)
        assert test.connection.in_flight == 0
        assert test.channel.written == []


class TestClosing:
    def test_what_is_unanswered_is_handed_over_oldest_first_and_later_answers_are_nobodys(self, test: Fixture) -> None:
        calls = [test.submit() for _ in range(4)]
        test.receive(answer(2))
        assert list(test.connection.close()) == [calls[0], calls[2], calls[3]]
        assert list(test.connection.close()) == []
        assert test.connection.state is CLOSED
        test.receive(answer(1))
        assert not calls[0].ended

    @pytest.mark.parametrize("is_submitted_first", [True, False])
    def test_a_call_is_handed_over_or_handed_back_whoever_takes_which_step_first(
        self, fake_clock: FakeClock, is_submitted_first: bool
    ) -> None:
        call: Call
        test: Fixture

        def make() -> tuple[Callable[[], Any], Callable[[], Any]]:
            nonlocal call, test
            test = Fixture(fake_clock)
            call = test.call()
            submit, close = lambda: test.connection.submit(call), lambda: list(test.connection.close())
            return (submit, close) if is_submitted_first else (close, submit)

        for outcomes in interleavings(make, connection_module):
            is_taken, orphans = outcomes if is_submitted_first else outcomes[::-1]
            assert is_taken == (orphans == [call])
            assert test.connection.in_flight == 0
            # The next connection may write what was handed back; so this one has not written it.
            assert is_taken or not call.written

    @pytest.mark.parametrize("is_abandoned_first", [True, False])
    def test_a_call_that_is_given_up_while_it_is_submitted_is_not_kept(
        self, fake_clock: FakeClock, is_abandoned_first: bool
    ) -> None:
        call: Call
        test: Fixture

        def make() -> tuple[Callable[[], Any], Callable[[], Any]]:
            nonlocal call, test
            test = Fixture(fake_clock)
            call = test.call()

            def give_up() -> None:
                call.finish(error=CallTimeout("too late"))
                test.connection.cancel_call(call, "timeout")

            def submit() -> None:
                assert test.connection.submit(call)

            return (give_up, submit) if is_abandoned_first else (submit, give_up)

        for _ in interleavings(make, connection_module, call_module):
            assert test.connection.in_flight == 0
            methods = [message["method"] for message in test.channel.written]
            # A cancellation that comes while the writer finds out that nobody waits any more concerns nothing, which
            # servers ignore. One that did not come would leave a server at work for nobody.
            assert methods in ([], ["tools/call", "notifications/cancelled"], ["notifications/cancelled"])

    def test_every_call_ends_once_however_answers_timeouts_and_the_end_race(
        self, fake_clock: FakeClock, switching: None
    ) -> None:
        ends: queue.SimpleQueue[int] = queue.SimpleQueue()
        test = Fixture(fake_clock, max_pending=1000)
        calls = [test.call(on_done=lambda call: ends.put(call.id)) for _ in range(200)]
        barrier = threading.Barrier(4)

        def contend(contender: Callable[[Call], None]) -> None:
            barrier.wait(PATIENCE)
            for call in calls:
                contender(call)

        def submit(call: Call) -> None:
            if not test.connection.submit(call):
                call.finish(error=ServerCrashed("gone"))

        def reply(call: Call) -> None:
            test.receive(answer(call.id))

        def give_up(call: Call) -> None:
            if call.id % 3 == 0 and call.finish(error=CallTimeout("too late")):
                test.connection.cancel_call(call, "timeout")

        with ThreadPoolExecutor(3) as pool:
            contenders = [pool.submit(contend, contender) for contender in (submit, reply, give_up)]
            barrier.wait(PATIENCE)
            while test.connection.in_flight < 20 and not contenders[0].done():
                continue
            for orphan in test.connection.close():
                orphan.finish(error=ServerCrashed("gone"))
            for contender in contenders:
                contender.result(PATIENCE)
        assert sorted(ends.get_nowait() for _ in calls) == [call.id for call in calls]
        assert ends.empty()
        for call in calls:
            assert (call.error is None) == (call.result == {"for": call.id})
            assert isinstance(call.error, (MCPError, type(None)))


def test_what_is_said_before_the_secrets_are_known_is_not_shown(
    fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The reader of a server that talks at once may be quicker than whoever started it."""
    connection = new_connection(fake_clock)
    connection.message_received(b"my password is hunter2")
    connection.message_received(json.dumps(failure(None, {"code": 1, "message": "hunter2"})).encode())
    assert connection.unparsed.lines == 1
    assert "hunter2" not in caplog.text + connection.unparsed.last


def call(number: int, **settings: Any) -> Call:
    return Call(number, "tools/call", {}, 0.0, 30.0, **settings)


@pytest.fixture
def reached() -> list[str]:
    return []


@pytest.fixture
def connection(fake_clock: FakeClock, reached: list[str]) -> CountedConnection:
    made = new_connection(fake_clock, 1000, CountedConnection)
    assert isinstance(made, CountedConnection)
    made.channel = FakeChannel()
    made.move_to(ConnectionState.READY)
    assert made.submit(call(1000)), "without a limit nothing is told"
    made.count(5, lambda: reached.append("limit"))
    return made


def test_it_is_told_once_at_the_last_call(connection: CountedConnection, reached: list[str]) -> None:
    for number in range(1, 5):
        assert connection.submit(call(number))
    assert reached == []
    for number in range(5, 20):
        assert connection.submit(call(number))
    assert reached == ["limit"]


def test_what_the_supervisor_sends_does_not_count_nor_does_a_call_that_goes_elsewhere(
    connection: CountedConnection, reached: list[str]
) -> None:
    for number in range(1, 20):
        assert connection.submit(call(number, bound=True))
    list(connection.close())
    assert not any(connection.submit(call(number)) for number in range(20, 40))
    assert reached == []


def test_of_many_threads_one_tells(connection: CountedConnection, reached: list[str]) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda number: connection.submit(call(number)), range(1, 200)))
    assert reached == ["limit"]


class SilentRecorder:
    """Passes everything on, and notes the steps."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def listener(self, connection: Connection) -> ChannelListener:
        self.seen.append("listener")
        return connection

    def channel(self, channel: Channel) -> Channel:
        self.seen.append("channel")
        return channel

    def failed(self, error: MCPError) -> None:
        self.seen.append(f"failed: {error}")


@pytest.fixture
def server(fake_clock: FakeClock) -> Iterator[Supervised]:
    server = Supervised(fake_clock)
    yield server
    server.close()


def test_each_start_has_a_tap_of_its_own(server: Supervised) -> None:
    names: list[str] = []
    seen: list[str] = []

    def new(name: str) -> SilentRecorder:
        names.append(name)
        return SilentRecorder(seen)

    server.context.recorders.new = new
    server.started()
    assert seen == ["listener", "channel"]
    restart(server)
    assert names == ["fake", "fake"]
    assert server.is_answered_by(server.transport.starts)


def test_it_is_told_of_a_start_that_fails(server: Supervised) -> None:
    seen: list[str] = []
    server.context.recorders.new = lambda _: SilentRecorder(seen)
    server.transport.start_errors.append(StartFailed("no such program"))
    assert not server.supervisor.start()
    assert seen == ["listener", "failed: no such program"]
