"""What follows the end of a server: whether it is started again, and when.

Sans-I/O, like the policy: the supervisor says what happened and when, and does what it is told.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass
from typing import TypeAlias

from gaia.mcp.client.protocol.negotiation import Negotiation
from gaia.mcp.client.supervision.policy import OpenCircuit, RestartPolicy, RestartTracker, Retry
from gaia.mcp.client.supervision.termination import Loss

__all__ = ["Decision", "GiveUp", "Recovery", "Step"]


class Step(enum.Enum):
    """What can be done about the end of a server that is no failure."""

    RENEW = enum.auto()
    """Open it again at once: it has only forgotten the session."""

    RETRY_WITH_INITIALIZE = enum.auto()
    """Start it again at once, with `initialize`: it exited when it was probed for the stateless era."""

    LOG_IN = enum.auto()
    """It lets nobody in without a login, or not any more."""

    REST = enum.auto()
    """Leave it alone until somebody wants it: it left by itself, as it may."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Start it no more. `why`, if it needs saying, is for people."""

    why: str | None = None


Decision: TypeAlias = Step | Retry | OpenCircuit | GiveUp
"""Anything but a `Step` answers a failure."""


class Recovery:
    """Decides after each end of a server. Times are readings of one monotonic clock. Used by the supervisor's thread.

    `known`, wherever it is asked for, says whether the server was ever ready: one that was not is not tried again.
    """

    def __init__(self, policy: RestartPolicy, negotiation: Negotiation, rng: random.Random) -> None:
        self._policy = policy
        self._negotiation = negotiation
        self._tracker = RestartTracker(policy, rng)

    def ready(self, now: float) -> None:
        """The server finished its handshake."""
        self._tracker.on_ready(now)

    def may_rest(self, loss: Loss, *, known: bool) -> bool:
        """Whether the server has left by itself, properly, while nobody wanted anything."""
        return self._policy.restart == "on-failure" and known and loss.ending.clean and not loss.wanted

    @property
    def restarts(self) -> bool:
        """Whether the policy has a server started again that fails."""
        return self._policy.restart != "never"

    def after(self, loss: Loss, now: float, *, known: bool) -> Decision:
        """The server was lost, and all of it has ended. To be asked once for each loss."""
        if loss.was_ready and loss.ending.renewable and self._tracker.may_renew(now):
            return Step.RENEW
        if loss.died_while_opening and self._negotiation.retry_with_initialize():
            return Step.RETRY_WITH_INITIALIZE
        if loss.unauthorized:
            return Step.LOG_IN
        if self.may_rest(loss, known=known):
            return Step.REST
        return self.after_failure(now, known=known)

    def after_failure(self, now: float, *, known: bool) -> Retry | OpenCircuit | GiveUp:
        """The server failed, or could not even be started."""
        if not known:
            return GiveUp()
        if not self.restarts:
            return GiveUp("its restart policy is 'never'")
        return self._tracker.on_end(now)
