"""When a tool that keeps failing is left alone, and how it is tried again."""

from gaia.mcp.gateway.access.circuit import Circuit
from gaia.mcp.gateway.access.settings import CircuitSettings


def circuit(failures: int = 2) -> Circuit:
    return Circuit("tool", CircuitSettings(failures=failures, window=10, cooldown=5))


def fail(subject: Circuit, now: float) -> None:
    subject.note(True, trial=False, now=now)


def test_failures_within_the_window_open_it() -> None:
    subject = circuit()
    fail(subject, 0.0)
    assert subject.is_closed
    fail(subject, 10.0)
    assert subject.retry_in(10.0) == 5
    assert not subject.is_closed


def test_failures_that_are_far_apart_do_not() -> None:
    subject = circuit()
    fail(subject, 0.0)
    fail(subject, 10.5)
    assert subject.retry_in(10.5) is None


def test_a_good_call_forgets_failures_and_one_that_says_nothing_does_not() -> None:
    subject = circuit()
    fail(subject, 0.0)
    subject.note(False, trial=False, now=1.0)
    fail(subject, 2.0)
    assert subject.is_closed
    subject.note(None, trial=False, now=2.0)
    fail(subject, 3.0)
    assert not subject.is_closed


def test_one_trial_at_a_time() -> None:
    subject = circuit(1)
    fail(subject, 0.0)
    assert subject.retry_in(5.0) is None
    assert subject.enter()
    assert subject.retry_in(6.0) == 1.0
    subject.note(True, trial=True, now=6.0)
    assert subject.retry_in(6.0) == 5
    assert subject.retry_in(11.0) is None
    assert subject.enter()
    subject.note(None, trial=True, now=12.0)
    assert subject.retry_in(12.0) is None, "a trial that was cancelled is followed by another"
    assert subject.enter()
    subject.note(False, trial=True, now=13.0)
    assert subject.is_closed
    assert not subject.enter()


def test_calls_from_before_say_nothing_when_it_is_open() -> None:
    subject = circuit(1)
    fail(subject, 0.0)
    fail(subject, 4.0)
    assert subject.retry_in(5.0) is None
