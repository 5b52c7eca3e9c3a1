"""What follows each kind of end, without a server."""

from __future__ import annotations

import random

import pytest

from gaia.mcp.client.protocol.era import ClientIdentity
from gaia.mcp.client.protocol.negotiation import Negotiation
from gaia.mcp.client.rpc.channel import Ending
from gaia.mcp.client.supervision.policy import OpenCircuit, RestartPolicy, Retry
from gaia.mcp.client.supervision.recovery import GiveUp, Recovery, Step
from gaia.mcp.client.supervision.termination import Loss
from gaia.mcp.errors import HandshakeFailed, NeedsAuthorization

CLEAN = Ending(exit_code=0)
CRASH = Ending(exit_code=1)
SESSION_LOST = Ending(cause="it forgot the session", renewable=True)


def recovery(policy: RestartPolicy | None = None, negotiation: Negotiation | None = None) -> Recovery:
    return Recovery(policy or RestartPolicy(jitter=0.0), negotiation or Negotiation("handshake"), random.Random(1))


def loss(ending: Ending, *, was_ready: bool = True, wanted: bool = False) -> Loss:
    return Loss(None, ending, was_ready, wanted)


class TestNoFailure:
    def test_a_server_that_forgot_the_session_is_opened_again_at_once(self) -> None:
        assert recovery().after(loss(SESSION_LOST), 0.0, known=True) is Step.RENEW

    def test_one_that_forgets_it_all_the_time_is_treated_like_one_that_ends(self) -> None:
        forgetful = recovery(RestartPolicy(jitter=0.0, max_restarts=2))
        decisions = [forgetful.after(loss(SESSION_LOST), 0.0, known=True) for _ in range(3)]
        assert decisions == [Step.RENEW, Step.RENEW, Retry(0.5)]

    def test_a_server_that_died_of_the_probe_is_greeted_otherwise_but_once(self) -> None:
        negotiation = Negotiation("auto")
        next(negotiation.open(ClientIdentity("test", "1")))
        probed = recovery(negotiation=negotiation)
        died = loss(CRASH, was_ready=False)
        assert probed.after(died, 0.0, known=False) is Step.RETRY_WITH_INITIALIZE
        assert probed.after(died, 0.0, known=False) == GiveUp()

    @pytest.mark.parametrize("known", [True, False])
    def test_a_server_that_lets_nobody_in_wants_a_login(self, known: bool) -> None:
        refused = Loss(NeedsAuthorization("log in", status=401), Ending(), was_ready=False, wanted=True)
        assert recovery().after(refused, 0.0, known=known) is Step.LOG_IN

    def test_a_server_that_nobody_wanted_may_leave(self) -> None:
        assert recovery().after(loss(CLEAN), 0.0, known=True) is Step.REST

    def test_not_while_somebody_wants_something_of_it(self) -> None:
        assert recovery().after(loss(CLEAN, wanted=True), 0.0, known=True) == Retry(0.5)

    def test_not_if_it_is_always_to_run(self) -> None:
        always = recovery(RestartPolicy(restart="always", jitter=0.0))
        assert always.after(loss(CLEAN), 0.0, known=True) == Retry(0.5)


class TestFailure:
    def test_a_crash_is_followed_by_a_restart(self) -> None:
        assert recovery().after(loss(CRASH), 0.0, known=True) == Retry(0.5)

    def test_too_many_open_the_circuit(self) -> None:
        hopeless = recovery(RestartPolicy(jitter=0.0, max_restarts=1, cooldown=60.0))
        decisions = [hopeless.after_failure(now, known=True) for now in (0.0, 1.0)]
        assert decisions == [Retry(0.5), OpenCircuit(61.0)]

    def test_a_server_that_was_well_starts_from_the_bottom(self) -> None:
        well = recovery()
        for _ in range(3):
            well.after_failure(0.0, known=True)
        well.ready(10.0)
        assert well.after_failure(40.0, known=True) == Retry(0.5)

    def test_a_server_that_was_never_ready_is_not_tried_again(self) -> None:
        refused = Loss(
            HandshakeFailed("no common version", delivery="unknown"), Ending(), was_ready=False, wanted=False
        )
        assert recovery().after(refused, 0.0, known=False) == GiveUp()

    def test_the_policy_may_say_never_and_is_to_be_named(self) -> None:
        never = recovery(RestartPolicy(restart="never"))
        assert not never.restarts
        assert never.after(loss(CRASH), 0.0, known=True) == GiveUp("its restart policy is 'never'")
