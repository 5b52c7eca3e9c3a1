"""What follows the loss of a server: whether it is started again, and when. Time is a number here."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
import tenacity
from hypothesis import given
from hypothesis import strategies as st

from gaia.mcp.errors import CallTimeout, NeedsAuthorization
from gaia.mcp.protocol.eras import ClientIdentity
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.supervision.policy import (
    GiveUp,
    Loss,
    OpenCircuit,
    Recovery,
    RestartPolicy,
    RestartTracker,
    Retry,
    Step,
    require_seconds,
)

STEADY = RestartPolicy(jitter=0.0)
PATIENT = RestartPolicy(jitter=0.0, max_restarts=1000)


def tracker(policy: RestartPolicy) -> RestartTracker:
    return RestartTracker(policy, random.Random(1))


def delay(decision: Retry | OpenCircuit) -> float:
    assert isinstance(decision, Retry)
    return decision.delay


def until(decision: Retry | OpenCircuit) -> float:
    assert isinstance(decision, OpenCircuit)
    return decision.until


def open_circuit(tracker: RestartTracker, policy: RestartPolicy, now: float = 0.0) -> float:
    """Let the server end until the circuit opens; returns when it may be tried again."""
    for _ in range(policy.max_restarts):
        delay(tracker.on_end(now))
    return until(tracker.on_end(now))


class TestPolicy:
    def test_defaults_are_the_documented_ones(self) -> None:
        assert msgspec.to_builtins(RestartPolicy()) == {
            "restart": "on-failure",
            "initialDelay": 0.5,
            "maxDelay": 30.0,
            "multiplier": 2.0,
            "jitter": 0.1,
            "maxRestarts": 5,
            "window": 60.0,
            "cooldown": 60.0,
            "stableAfter": 30.0,
            "wait": None,
        }

    def test_a_wait_strategy_of_tenacity_takes_the_place_of_the_figures(self) -> None:
        policy = RestartPolicy(wait=tenacity.wait_chain(tenacity.wait_fixed(3), tenacity.wait_fixed(7)), max_restarts=4)
        tracker = RestartTracker(policy, random.Random(1))
        assert [delay(tracker.on_end(0.0)) for _ in range(3)] == [3.0, 7.0, 7.0]
        tracker.on_ready(0.0)
        assert delay(tracker.on_end(1.0, has_answered=True)) == 0.0

    def test_what_is_no_wait_strategy_is_refused(self) -> None:
        with pytest.raises(ValueError, match="wait: expected a wait strategy of tenacity"):
            RestartPolicy(wait=3)  # type: ignore[arg-type]

    def test_it_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            RestartPolicy().window = 1.0  # type: ignore[misc]

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *[
                (field, value)
                for field in ("initial_delay", "max_delay", "window", "cooldown", "stable_after")
                for value in (0, -1.0, float("nan"), float("inf"), 1e9, 10**400, True, "5", None)
            ],
            ("max_delay", 0.4),
            ("multiplier", 0.9),
            ("multiplier", float("nan")),
            ("multiplier", float("inf")),
            ("jitter", -0.1),
            ("jitter", 1.0),
            ("jitter", float("nan")),
            ("max_restarts", -1),
            ("max_restarts", 1.5),
            ("max_restarts", True),
            ("restart", "sometimes"),
        ],
    )
    def test_an_unusable_value_is_refused_by_name(self, field: str, value: Any) -> None:
        with pytest.raises(ValueError, match=f"^{field}: ") as refusal:
            RestartPolicy(**{field: value})
        assert repr(value) in str(refusal.value)

    @pytest.mark.parametrize(
        "fields",
        [
            {"restart": "always"},
            {"restart": "never"},
            {"initial_delay": 3, "max_delay": 3},
            {"multiplier": 1},
            {"jitter": 0},
            {"max_restarts": 0},
            {"cooldown": 365 * 24 * 3600},
        ],
    )
    def test_values_at_the_edge_are_fine(self, fields: dict[str, Any]) -> None:
        policy = RestartPolicy(**fields)
        assert {name: getattr(policy, name) for name in fields} == fields

    def test_a_duration_check_speaks_of_the_name_it_is_given(self) -> None:
        require_seconds("timeout", 0.001)
        with pytest.raises(ValueError, match=r"^timeout: must be a number of seconds above 0 .*got 0$"):
            require_seconds("timeout", 0)


class TestBackoff:
    def test_a_multiplier_of_one_keeps_the_wait(self) -> None:
        subject = tracker(RestartPolicy(multiplier=1, jitter=0, initial_delay=2, max_restarts=10))
        assert [delay(subject.on_end(0.0)) for _ in range(4)] == [2, 2, 2, 2]

    def test_very_many_failures_do_not_overflow(self) -> None:
        subject = tracker(RestartPolicy(jitter=0.0, max_restarts=3000))
        assert [delay(subject.on_end(0.0)) for _ in range(3000)][-1] == 30.0

    def test_being_ready_too_briefly_does_not(self) -> None:
        subject = tracker(PATIENT)
        assert [delay(subject.on_end(0.0)) for _ in range(3)] == [0.5, 1.0, 2.0]
        subject.on_ready(10.0)
        assert delay(subject.on_end(39.9)) == 4.0

    def test_a_wait_without_being_ready_does_not(self) -> None:
        subject = tracker(PATIENT)
        subject.on_ready(0.0)
        assert delay(subject.on_end(1.0)) == 0.0
        # It is down for an hour, but it never was ready in that time.
        assert delay(subject.on_end(3600.0)) == 0.5

    def test_jitter_spreads_the_wait_both_ways_within_its_fraction(self) -> None:
        policy = RestartPolicy(initial_delay=10, max_delay=10, jitter=0.1)
        delays = [delay(RestartTracker(policy, random.Random(seed)).on_end(0.0)) for seed in range(200)]
        assert min(delays) >= 9.0
        assert max(delays) <= 11.0
        assert min(delays) < 9.2
        assert max(delays) > 10.8

    def test_the_same_random_source_gives_the_same_waits(self) -> None:
        one, other = (RestartTracker(RestartPolicy(), random.Random(7)) for _ in range(2))
        assert [one.on_end(0.0) for _ in range(5)] == [other.on_end(0.0) for _ in range(5)]


class TestFirstRestart:
    """A server that ran well is started again at once; `initial_delay` is the wait before the second restart."""

    def test_of_a_server_that_has_not_failed_before_is_immediate(self) -> None:
        subject = tracker(STEADY)
        subject.on_ready(0.0)
        assert subject.on_end(0.1) == Retry(0.0)
        subject.on_ready(0.2)
        assert subject.on_end(0.3) == Retry(0.5)
        subject.on_ready(0.9)
        assert subject.on_end(1.0) == Retry(1.0)

    def test_of_a_server_that_has_not_failed_within_the_window_is_immediate(self) -> None:
        subject = tracker(RestartPolicy(jitter=0.0, window=60.0, stable_after=1000.0))
        subject.on_ready(0.0)
        assert subject.on_end(0.0) == Retry(0.0)
        subject.on_ready(0.0)
        assert subject.on_end(59.9) == Retry(0.5)
        subject.on_ready(60.0)
        assert subject.on_end(119.9) == Retry(0.0)

    def test_of_a_stable_server_is_immediate_although_it_failed_within_the_window(self) -> None:
        subject = tracker(STEADY)
        for now in (0.0, 30.0):
            subject.on_ready(now)
            assert subject.on_end(now + 30.0) == Retry(0.0)

    def test_of_a_server_that_has_answered_a_call_is_immediate_as_often_as_the_window_permits(self) -> None:
        subject = tracker(STEADY)
        decisions = []
        for now in range(6):
            subject.on_ready(now)
            decisions.append(subject.on_end(now, has_answered=True))
        assert decisions == [*[Retry(0.0)] * 5, OpenCircuit(65.0)]

    def test_a_start_that_came_to_nothing_waits_from_the_bottom_after_one_that_has_answered(self) -> None:
        subject = tracker(PATIENT)
        waits = [delay(subject.on_end(0.0)) for _ in range(3)]
        assert [*waits, delay(subject.on_end(0.0, has_answered=True)), delay(subject.on_end(0.0))] == [
            *(0.5, 1.0, 2.0),
            *(0.0, 0.5),
        ]

    def test_a_start_that_failed_is_not_repeated_at_once(self) -> None:
        assert tracker(STEADY).on_end(0.0) == Retry(0.5)

    def test_has_no_jitter(self) -> None:
        subject = tracker(RestartPolicy())
        subject.on_ready(0.0)
        assert subject.on_end(0.0) == Retry(0.0)

    def test_counts_for_the_intensity(self) -> None:
        subject = tracker(RestartPolicy(jitter=0.0, max_restarts=1, stable_after=1.0))
        subject.on_ready(0.0)
        assert subject.on_end(5.0) == Retry(0.0)
        subject.on_ready(5.0)
        assert subject.on_end(10.0) == OpenCircuit(70.0)


class TestCircuit:
    def test_restarts_that_left_the_window_do_not_count(self) -> None:
        subject = tracker(STEADY)
        decisions = [subject.on_end(now) for now in (0.0, 10.0, 20.0, 30.0, 40.0, 60.0, 70.0, 80.0)]
        assert {type(decision) for decision in decisions} == {Retry}

    def test_no_restarts_allowed_means_open_at_the_first_end(self) -> None:
        assert tracker(RestartPolicy(max_restarts=0)).on_end(5.0) == OpenCircuit(65.0)

    def test_time_after_an_exit_does_not_count_as_being_ready(self) -> None:
        subject = tracker(STEADY)
        now = open_circuit(subject, STEADY)
        subject.on_ready(now)
        # It exited properly, and was started again by a call, an hour later, which failed.
        assert not subject.note_end(now + 1.0)
        assert subject.half_open
        assert subject.on_end(now + 3600.0) == OpenCircuit(now + 3600.0 + 120.0)

    def test_a_half_open_attempt_that_has_answered_a_call_closes_it(self) -> None:
        policy = RestartPolicy(jitter=0.0, window=100_000.0)
        subject = tracker(policy)
        now = open_circuit(subject, policy)
        subject.on_ready(now)
        assert subject.on_end(now, has_answered=True) == Retry(0.0)
        assert not subject.half_open

    def test_the_next_time_it_stays_open_for_longer_unless_the_server_was_stable_meanwhile(self) -> None:
        subject = tracker(STEADY)
        waits = []
        now = 0.0
        for _ in range(6):
            again = open_circuit(subject, STEADY, now)
            waits.append(again - now)
            now = again
            subject.on_ready(now)
            assert subject.on_end(now, has_answered=True) == Retry(0.0)
            now += STEADY.window
        assert waits == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0]
        subject.on_ready(now)
        assert subject.on_end(now + 30.0) == Retry(0.0)
        now += 30.0 + STEADY.window
        assert open_circuit(subject, STEADY, now) == now + 60.0

    def test_closing_it_resets_the_cooldown_and_the_count(self) -> None:
        # The window is longer than the whole story, so that only closing can have emptied it.
        policy = RestartPolicy(jitter=0.0, window=100_000.0)
        subject = tracker(policy)
        now = open_circuit(subject, policy)
        now = until(subject.on_end(now))
        subject.on_ready(now)
        now += 30.0
        assert open_circuit(subject, policy, now) == now + 60.0

    def test_a_stable_server_still_counts_its_restarts(self) -> None:
        # Stable for half a minute, dead, stable for half a minute: five times in the window is too often even so.
        subject = tracker(RestartPolicy(jitter=0.0, stable_after=1.0, max_restarts=2))
        decisions = []
        for now in (0.0, 10.0, 20.0):
            subject.on_ready(now)
            decisions.append(subject.on_end(now + 5.0))
        assert decisions == [Retry(0.0), Retry(0.0), OpenCircuit(85.0)]


policies = st.builds(
    RestartPolicy,
    initial_delay=st.floats(0.001, 5),
    max_delay=st.floats(5, 100),
    multiplier=st.floats(1, 10),
    jitter=st.floats(0, 0.9),
    max_restarts=st.integers(0, 8),
    window=st.floats(0.1, 1000),
    cooldown=st.floats(0.1, 1000),
    stable_after=st.floats(0.1, 1000),
)
lives = st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0, 2000)), max_size=60)
"""What became of each start: whether it got ready, whether it answered a call then, and how long it lived."""


@given(policies, lives, st.integers())
def test_whatever_happens_there_is_a_next_attempt_and_never_a_tight_loop(
    policy: RestartPolicy, lives: list[tuple[bool, bool, float]], seed: int
) -> None:
    subject = RestartTracker(policy, random.Random(seed))
    now = 0.0
    retries: list[float] = []
    for ready, answers, lived in lives:
        began = now
        has_answered = ready and answers
        if ready:
            subject.on_ready(now)
            now += lived
        match subject.on_end(now, has_answered=has_answered):
            case Retry(0.0):
                is_only_one = all(now - granted >= policy.window for granted in retries)
                assert ready
                assert has_answered or is_only_one or now - began >= policy.stable_after
                retries.append(now)
            case Retry(delay):
                retries.append(now)
                assert policy.initial_delay * (1 - policy.jitter) <= delay <= policy.max_delay * (1 + policy.jitter)
                now += delay
            case OpenCircuit(until):
                retries.clear()
                # A hair of tolerance, because the sum of two floats is not exact.
                assert policy.cooldown * 0.999 <= until - now <= policy.cooldown * 10.001
                now = until
        assert sum(now - granted < policy.window for granted in retries) <= policy.max_restarts


CLEAN = Ending(exit_code=0)
CRASH = Ending(exit_code=1)
SESSION_LOST = Ending(cause="it forgot the session", renewable=True)


def recovery(
    policy: RestartPolicy | None = None, negotiation: Negotiation | None = None, *, ever_ready: bool = True
) -> Recovery:
    policy, negotiation = policy or RestartPolicy(jitter=0.0), negotiation or Negotiation("handshake")
    made = Recovery(policy, negotiation, random.Random(1))
    made.ever_ready = ever_ready
    return made


def loss(ending: Ending, *, was_ready: bool = True, had_calls: bool = False) -> Loss:
    return Loss(None, ending, was_ready, had_calls)


class TestNoFailure:
    def test_a_server_that_forgot_the_session_is_opened_again_at_once(self) -> None:
        assert recovery().after(loss(SESSION_LOST), 0.0) is Step.RENEW

    def test_one_that_forgets_it_all_the_time_is_treated_like_one_that_ends(self) -> None:
        forgetful = recovery(RestartPolicy(jitter=0.0, max_restarts=2))
        decisions = [forgetful.after(loss(SESSION_LOST), 0.0) for _ in range(3)]
        assert decisions == [Step.RENEW, Step.RENEW, Retry(0.5)]

    def test_a_server_that_died_of_the_probe_is_greeted_otherwise_but_once(self) -> None:
        negotiation = Negotiation("auto")
        next(negotiation.open(ClientIdentity("test", "1")))
        probed = recovery(negotiation=negotiation, ever_ready=False)
        died = loss(CRASH, was_ready=False)
        assert probed.after(died, 0.0) is Step.RETRY_WITH_INITIALIZE
        assert probed.after(died, 0.0) == GiveUp()

    @pytest.mark.parametrize("ever_ready", [True, False])
    def test_a_server_that_lets_nobody_in_wants_a_login(self, ever_ready: bool) -> None:
        refused = Loss(NeedsAuthorization("log in", status=401), Ending(), was_ready=False, had_calls=True)
        assert recovery(ever_ready=ever_ready).after(refused, 0.0) is Step.LOG_IN


class TestFailure:
    def test_a_server_that_was_well_starts_from_the_bottom(self) -> None:
        well = recovery()
        for _ in range(3):
            well.after_failure(0.0)
        well.ready(10.0)
        assert well.after_failure(40.0) == Retry(0.0)

    def test_the_policy_may_say_never_and_is_to_be_named(self) -> None:
        never = recovery(RestartPolicy(restart="never"))
        assert not never.restarts
        assert never.after(loss(CRASH), 0.0) == GiveUp("its restart policy is 'never'")


@pytest.mark.parametrize(
    ("lost", "stderr_tail", "reason"),
    [
        (loss(CRASH), "", "the server exited with code 1"),
        (loss(CRASH), "oh no", "the server exited with code 1; it last wrote on stderr:\noh no"),
        (Loss(None, Ending(signal="SIGSEGV", stderr_tail="early"), True, True), "", "early"),
        (Loss(None, Ending(), False, True), "", "the server closed its output"),
        (Loss(CallTimeout("it hangs"), Ending(), True, True), "hours of logs", "it hangs"),
        (Loss(CallTimeout("no answer"), Ending(), False, True), "no licence", "no answer; the server last wrote"),
    ],
)
def test_the_reason_says_what_helps(lost: Loss, stderr_tail: str, reason: str) -> None:
    assert reason in lost.described(stderr_tail)
    assert ("hours of logs" in lost.described(stderr_tail)) is False
