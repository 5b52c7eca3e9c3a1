"""One request from its submission to its outcome: it ends exactly once, and never says "not sent" of what was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gaia.mcp.errors import CallCancelled, CallTimeout, ServerCrashed
from gaia.mcp.rpc import call as call_module
from gaia.mcp.rpc.call import Call
from gaia.testing import FakeClock
from tests.interleaving import interleavings
from tests.waiting import PATIENCE


def call(**settings: Any) -> Call:
    arguments: dict[str, Any] = {"params": {"name": "echo"}, "now": 1000.0, "timeout": 30.0, **settings}
    return Call(7, "tools/call", **arguments)


@pytest.mark.parametrize(
    ("timeout", "shown"), [(0.999636, "1 s"), (0.01, "0.01 s"), (12.5, "12.5 s"), (3600.0, "3600 s")]
)
def test_the_message_of_a_timeout_has_no_needless_digits(timeout: float, shown: str) -> None:
    assert str(call(timeout=timeout).timed_out()) == f"tools/call was not answered within {shown}"


def test_what_a_caller_sends_is_not_in_its_text() -> None:
    assert "hunter2" not in repr(call(params={"password": "hunter2"}))


def test_two_calls_have_nothing_in_common_and_are_never_equal() -> None:
    one, other = call(), call()
    assert one != other
    assert len({one, other}) == 2
    one.result["content"] = []
    assert other.result == {}
    assert one.finish()
    assert not other.ended


def race(rounds: int, *contenders: Callable[[int], Any]) -> list[tuple[Any, ...]]:
    """Run the contenders at the same moment, each in a thread of its own, again and again; returns what they return."""
    barrier = threading.Barrier(len(contenders))

    def run(contender: Callable[[int], Any]) -> list[Any]:
        outcomes = []
        for number in range(rounds):
            barrier.wait(PATIENCE)
            outcomes.append(contender(number))
        return outcomes

    with ThreadPoolExecutor(len(contenders)) as pool:
        return list(zip(*pool.map(run, contenders), strict=True))


class TestFrame:
    def test_it_is_the_request_as_one_line(self) -> None:
        frame = call().frame
        assert frame.endswith(b"\n")
        assert json.loads(frame) == {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo"}}

    def test_a_call_that_wants_progress_carries_its_id_as_the_token(self) -> None:
        meta = json.loads(call(on_progress=lambda _: None).frame)["params"]["_meta"]
        assert meta == {"progressToken": 7}

    @pytest.mark.parametrize("meta", [{"traceparent": "00-1"}, {}, None])
    def test_what_else_is_in_meta_stays(self, meta: Any) -> None:
        params = {"name": "echo", "_meta": meta}
        frame = json.loads(call(params=params, on_progress=lambda _: None).frame)
        assert frame["params"] == {"name": "echo", "_meta": {**(meta or {}), "progressToken": 7}}
        assert params == {"name": "echo", "_meta": meta}, "the caller's own params are not touched"

    def test_params_that_are_no_json_are_refused_before_there_is_a_call(self) -> None:
        with pytest.raises(ValueError, match="cannot be sent as JSON"):
            call(params={"x": object()})


class TestEnd:
    def test_it_ends_with_the_first_result_or_error_and_what_comes_second_changes_nothing(self) -> None:
        seen: list[tuple[dict[str, Any], bool]] = []
        ended = call(on_done=lambda done: seen.append((done.result, done.ended)))
        assert not ended.ended
        assert ended.finish({"first": 1}) is True
        assert ended.finish({"second": 2}) is False
        assert ended.finish(error=CallTimeout("third")) is False
        assert (ended.ended, ended.result, ended.error) == (True, {"first": 1}, None)
        assert seen == [({"first": 1}, True)], "its outcome is there when its end is told"
        failed, error = call(), CallTimeout("too late")
        assert failed.finish(error=error) is True
        assert failed.error is error

    def test_of_two_that_end_it_exactly_one_does_whoever_takes_which_step_first(self) -> None:
        done: list[Call] = []
        contended: Call

        def make() -> tuple[Callable[[], bool], Callable[[], bool]]:
            nonlocal contended
            contended = call(on_done=done.append)
            return lambda: contended.finish({"answer": 1}), lambda: contended.finish(error=CallTimeout("too late"))

        for answered, failed in interleavings(make, call_module):
            assert answered != failed
            assert contended.result == ({"answer": 1} if answered else {})
            assert (contended.error is None) == answered
            assert done.count(contended) == 1


class TestWaiting:
    @pytest.mark.parametrize("ends", [True, False], ids=["with the call", "at the deadline"])
    def test_it_ends_with_the_call_and_at_the_deadline_at_most(self, fake_clock: FakeClock, ends: bool) -> None:
        waited = call(now=fake_clock.monotonic(), timeout=5.0)
        with ThreadPoolExecutor(1) as pool:
            is_ended = pool.submit(waited.wait, fake_clock)
            fake_clock.wait_for_waiter(waited.deadline)
            assert waited.deadline == fake_clock.monotonic() + 5.0
            if ends:
                waited.finish({})
            else:
                fake_clock.advance(5.0)
            assert is_ended.result(PATIENCE) is ends

    def test_who_loses_the_race_for_the_end_sees_the_outcome_of_the_winner(
        self, switching: None, fake_clock: FakeClock
    ) -> None:
        """The deadline passes at the very moment when the answer comes."""
        calls = [call(now=fake_clock.monotonic() - 60.0) for _ in range(500)]

        def answer(number: int) -> None:
            calls[number].finish({"answer": number})

        def wait(number: int) -> Any:
            waited = calls[number]
            if not waited.wait(fake_clock) and not waited.finish(error=CallTimeout("too late")):
                waited._done.acquire()
            return waited.error or waited.result

        for number, (_, outcome) in enumerate(race(500, answer, wait)):
            assert isinstance(outcome, CallTimeout) or outcome == {"answer": number}


class TestDelivery:
    def test_a_call_that_was_not_written_was_not_sent(self) -> None:
        error = CallTimeout("too late")
        call().finish(error=error)
        assert error.delivery == "not_sent"

    def test_one_that_was_may_have_been_acted_upon(self) -> None:
        written, error = call(), ServerCrashed("gone")
        assert written.begin_write()
        written.finish(error=error)
        assert error.delivery == written.delivery == "unknown"

    def test_one_whose_writing_failed_was_not_sent(self) -> None:
        unwritten = call()
        unwritten.begin_write()
        unwritten.undo_write()
        assert unwritten.delivery == "not_sent"

    def test_one_that_has_ended_is_not_written_any_more(self) -> None:
        ended = call()
        ended.finish(error=CallCancelled("no"))
        assert ended.begin_write() is False
        assert ended.written is False

    @pytest.mark.parametrize("order", [1, -1], ids=["end while writing begins", "writing begins while it ends"])
    def test_no_call_is_called_unsent_whose_writing_begins_whoever_takes_which_step_first(self, order: int) -> None:
        error: CallTimeout
        written: list[Call] = []

        def make() -> tuple[Callable[[], Any], Callable[[], Any]]:
            nonlocal error
            contended, error = call(), CallTimeout("too late")
            written.clear()

            def write() -> None:
                if contended.begin_write():
                    written.append(contended)

            first, second = (write, lambda: contended.finish(error=error))[::order]
            return first, second

        for _ in interleavings(make, call_module):
            assert not (written and error.delivery == "not_sent")


class TestNextConnection:
    def test_a_call_that_was_withdrawn_unwritten_is_not_written_until_it_is_readmitted(self) -> None:
        moved = call()
        assert moved.withdraw() is True
        assert moved.begin_write() is False
        moved.readmit()
        assert moved.begin_write() is True

    def test_one_that_was_written_is_not_taken_for_unwritten(self) -> None:
        written = call()
        written.begin_write()
        assert written.withdraw() is False

    @pytest.mark.parametrize("order", [1, -1])
    def test_no_call_is_both_withdrawn_as_unwritten_and_written_whoever_takes_which_step_first(
        self, order: int
    ) -> None:
        def make() -> tuple[Callable[[], bool], Callable[[], bool]]:
            contended = call()
            first, second = (contended.begin_write, contended.withdraw)[::order]
            return first, second

        assert not any(first and second for first, second in interleavings(make, call_module))

    def test_it_is_repeated_once_with_a_new_id_in_frame_and_token_and_stays_possibly_sent(self) -> None:
        repeated = call(repeatable=True, on_progress=lambda _: None)
        repeated.begin_write()
        repeated.prepare_repeat(8)
        frame = json.loads(repeated.frame)
        assert (repeated.id, frame["id"], frame["params"]["_meta"]["progressToken"]) == (8, 8, 8)
        assert repeated.repeatable is False
        assert repeated.delivery == "unknown", "its first copy was written"


def test_progress_never_sets_a_deadline_back() -> None:
    call = Call(1, "tools/call", {}, now=0.0, timeout=10.0, max_timeout=100.0)
    call.progressed(5.0)
    assert call.deadline == 15.0
    # A person is asked meanwhile, who has ten minutes.
    call.deadline = 620.0
    call.progressed(6.0)
    assert call.deadline == 620.0
