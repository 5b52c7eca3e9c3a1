"""Decides whether and when a lost server is started again.

Sans-I/O: no clock, no thread, no timer. The supervisor reports events with their times, and carries out the decisions.
"""

from __future__ import annotations

import enum
import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, TypeAlias

import msgspec

from gaia.mcp.errors import MCPError, NeedsAuthorization
from gaia.mcp.observation.lifecycle_spans import LossReason
from gaia.mcp.protocol.negotiation import Negotiation
from gaia.mcp.rpc.channel import Ending
from gaia.runtime.clock import is_number, require_seconds

_MAX_COOLDOWN = 10
"""The cool-down doubles up to this many times the configured one."""


class RestartPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """When a server that ended is started again. Durations in seconds. Raises ValueError for unusable figures.

    The words are those of OTP's supervisors and of systemd.
    """

    restart: Literal["always", "on-failure", "never"] = "on-failure"
    """``on-failure`` does not restart a server that exits with 0 while no call waits for it."""
    initial_delay: float = 0.5
    """The first wait. A server that has answered calls is restarted without any, see `RestartTracker`."""
    max_delay: float = 30.0
    """The longest wait. Jitter comes on top, so that servers at this limit do not restart in step."""
    multiplier: float = 2.0
    """The ratio of each wait to the one before it."""
    jitter: float = 0.1
    """Each wait is longer or shorter by up to this fraction, at random."""
    max_restarts: int = 5
    """More restarts than this within `window` open the circuit."""
    window: float = 60.0
    """The time in which restarts are counted for `max_restarts`."""
    cooldown: float = 60.0
    """How long an open circuit refuses calls; doubles each time that it opens, until the server is stable."""
    stable_after: float = 30.0
    """A server that was ready for this long is stable: its next restart is immediate, and the wait after that short."""
    wait: Callable[..., float] | None = None
    """A wait strategy of tenacity, such as ``tenacity.wait_fixed(2)``, in place of `initial_delay`, `max_delay`,
    `multiplier` and `jitter`. Only for policies in code: a configuration file cannot hold one."""

    def __post_init__(self) -> None:
        if self.restart not in ("always", "on-failure", "never"):
            raise ValueError(f'restart: expected "always", "on-failure" or "never", got {self.restart!r}')
        # A wait of 0 would be a tight loop.
        for name in ("initial_delay", "max_delay", "window", "cooldown", "stable_after"):
            require_seconds(name, getattr(self, name))
        if self.max_delay < self.initial_delay:
            raise ValueError(
                f"max_delay: must not be below the initial delay ({self.initial_delay!r} s), got {self.max_delay!r}"
            )
        if not (is_number(self.multiplier) and 1 <= self.multiplier < math.inf):
            raise ValueError(f"multiplier: must be a number from 1 upwards, got {self.multiplier!r}")
        if not (is_number(self.jitter) and 0 <= self.jitter < 1):
            raise ValueError(f"jitter: must be a fraction from 0 to below 1, got {self.jitter!r}")
        if self.wait is not None and not callable(self.wait):
            raise ValueError(f"wait: expected a wait strategy of tenacity (in code, not in a file), got {self.wait!r}")
        if type(self.max_restarts) is not int or self.max_restarts < 0:
            raise ValueError(f"max_restarts: must be a whole number from 0 upwards, got {self.max_restarts!r}")


@dataclass(frozen=True, slots=True)
class Retry:
    """Start the server again after `delay` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class OpenCircuit:
    """Refuse calls until the time `until`, then make one attempt."""

    until: float


class RestartTracker:
    """Decides after each end of one server. Times are seconds of one monotonic clock; not thread-safe.

    - The answer to an end is `Retry`. After more than `max_restarts` within `window` it is `OpenCircuit`.
    - A start has *worked* if the server answered a call, or was ready for `stable_after`. The restart is immediate if
      the start that ended has worked, or if the server was ready and there was no other restart within `window`.
      Otherwise the restart waits: `initial_delay` at first, and longer from start to start.
    - The attempt after an open circuit is half-open: if it has worked, it closes the circuit; if not, the circuit opens
      again at once.
    - Each time that the circuit opens, it stays open for twice as long as the last time, up to ten times the configured
      cool-down. Once a server was ready for `stable_after`, the next cool-down is the configured one.
    """

    def __init__(self, policy: RestartPolicy, rng: random.Random) -> None:
        self._policy = policy
        self._rng = rng
        self._ready_since: float | None = None
        self._backoff: Iterator[float] | None = None
        self._restarts: deque[float] = deque()
        """When the restarts of the current window were granted, oldest first."""
        self._renewals: deque[float] = deque()
        self.half_open = False
        """Whether the circuit was open, and the server has not worked since."""
        self._cooldown = policy.cooldown

    def on_ready(self, now: float) -> None:
        self._ready_since = now

    def may_renew(self, now: float) -> bool:
        """Whether a forgotten session may be opened again at once, at most `max_restarts` times within `window`."""
        while self._renewals and now - self._renewals[0] >= self._policy.window:
            self._renewals.popleft()
        if len(self._renewals) >= self._policy.max_restarts:
            return False
        self._renewals.append(now)
        return True

    def note_end(self, now: float, *, has_answered: bool = False) -> bool:
        """Note an end, which alone is no failure. True if this start has worked, which closes the circuit."""
        since, self._ready_since = self._ready_since, None
        was_stable = since is not None and now - since >= self._policy.stable_after
        if was_stable:
            self._cooldown = self._policy.cooldown
        has_worked = was_stable or has_answered
        if has_worked and self.half_open:
            self.half_open = False
            # The cool-down was the penalty for the restarts from before the circuit opened.
            self._restarts.clear()
        return has_worked

    def on_end(self, now: float, *, has_answered: bool = False) -> Retry | OpenCircuit:
        """The next step after the server ended, or could not be started. See `note_end`."""
        was_ready = self._ready_since is not None
        has_worked = self.note_end(now, has_answered=has_answered)
        if self.half_open:
            return self._open(now)
        while self._restarts and now - self._restarts[0] >= self._policy.window:
            self._restarts.popleft()
        if len(self._restarts) >= self._policy.max_restarts:
            return self._open(now)
        at_once = has_worked or (was_ready and not self._restarts)
        self._restarts.append(now)
        if at_once:
            self._backoff = None
            return Retry(0.0)
        return Retry(self._delay())

    def _open(self, now: float) -> OpenCircuit:
        self.half_open = True
        until = now + self._cooldown
        self._cooldown = min(self._cooldown * 2, self._policy.cooldown * _MAX_COOLDOWN)
        return OpenCircuit(until)

    def _delay(self) -> float:
        if load_backoff() is None:
            return self._policy.max_delay
        self._backoff = self._backoff or _backoff(self._policy, self._rng)
        return max(0.0, next(self._backoff))


def load_backoff() -> ModuleType | None:
    """tenacity, which computes the waits, imported late because it imports asyncio; None if it cannot be loaded."""
    try:
        import tenacity
    except (OSError, ImportError):
        # The process may have no file descriptors left for the import.
        return None
    return tenacity


def _backoff(policy: RestartPolicy, rng: random.Random) -> Iterator[float]:
    import tenacity

    waits: list[float] = []
    strategy = policy.wait or tenacity.wait_exponential(
        multiplier=policy.initial_delay, exp_base=policy.multiplier, min=policy.initial_delay, max=policy.max_delay
    )
    # tenacity gets one failed attempt after the other; its "sleep" only stores the wait.
    for attempt in tenacity.Retrying(wait=strategy, sleep=waits.append):
        if waits:
            jitter = 1.0 if policy.wait else rng.uniform(1 - policy.jitter, 1 + policy.jitter)
            yield waits.pop() * jitter
        with attempt:
            raise MCPError("the start came to nothing")


class Loss(msgspec.Struct, frozen=True):
    error: MCPError | None
    """Why the supervisor gave the connection up; None: the server ended it."""
    ending: Ending
    """The server's end as known at that moment. An exit that the client forces later says nothing about the server."""
    was_ready: bool
    had_calls: bool = False
    """Calls waited for the server or for its answers."""
    hung: bool = False
    """The server had stopped answering."""
    internal: bool = False
    """One of the supervisor's own steps raised an exception."""
    has_answered: bool = False
    """The server had answered a call of the application since it was started."""

    @property
    def reason(self) -> LossReason:
        if self.hung:
            return "hung"
        if self.internal:
            return "internal_error"
        if self.error is not None:
            return "handshake_failed"
        ending = self.ending
        if ending.signal is not None:
            return "signal"
        if ending.exit_code is not None:
            return "exited" if ending.clean else "exit_code"
        if ending.renewable:
            return "session_lost"
        if ending.cause is not None:
            return "unreachable"
        return "output_closed"

    @property
    def ended_while_opening(self) -> bool:
        """Whether the server ended before it was ready. A server that could not be reached does not count."""
        return not self.was_ready and self.error is None and self.ending.cause is None

    @property
    def unauthorized(self) -> bool:
        """Whether the server requires a login, and there is none or it is no longer valid."""
        return self.ending.unauthorized or isinstance(self.error, NeedsAuthorization)

    def described(self, stderr_tail: str = "") -> str:
        """Text for people. `stderr_tail` may be longer than the one known when the connection was lost."""
        if self.error is None:
            ending = msgspec.structs.replace(self.ending, stderr_tail=stderr_tail or self.ending.stderr_tail)
            return f"the server {ending}"
        if stderr_tail and not self.was_ready:
            return f"{self.error.message}; the server last wrote on stderr:\n{stderr_tail}"
        return self.error.message


class Step(enum.Enum):
    RENEW = enum.auto()
    """Open the server again at once: it has only forgotten the session."""

    RETRY_WITH_INITIALIZE = enum.auto()
    """Start the server again at once with `initialize` as its first message: it exited because of the probe."""

    LOG_IN = enum.auto()

    STAY_EXITED = enum.auto()
    """Start the server again when a call comes: it exited by itself with status 0, while no call waited."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not start the server again. `why` is for people, if the policy is the reason."""

    why: str | None = None


Decision: TypeAlias = Step | Retry | OpenCircuit | GiveUp
"""All but a `Step` follow a failure."""


class Recovery:
    """Decides the next step after each loss of a server. Times are readings of one monotonic clock. Not thread-safe."""

    def __init__(self, policy: RestartPolicy, negotiation: Negotiation, rng: random.Random) -> None:
        self.ever_ready = False
        self.keep_trying = False
        """Whether a server that was never ready is started again too."""
        self.adopt(policy, negotiation, rng)

    def adopt(self, policy: RestartPolicy, negotiation: Negotiation, rng: random.Random) -> None:
        self._policy = policy
        self._negotiation = negotiation
        self.tracker = RestartTracker(policy, rng)

    def ready(self, now: float) -> None:
        self.ever_ready = self.keep_trying = True
        self.tracker.on_ready(now)

    def may_stay_exited(self, loss: Loss) -> bool:
        return self._policy.restart == "on-failure" and self.ever_ready and loss.ending.clean and not loss.had_calls

    @property
    def restarts(self) -> bool:
        return self._policy.restart != "never"

    def after(self, loss: Loss, now: float) -> Decision:
        """The next step after the server was lost and has ended completely. Call it once for each loss."""
        step: Step | None = None
        if loss.was_ready and loss.ending.renewable and self.tracker.may_renew(now):
            step = Step.RENEW
        elif loss.ended_while_opening and self._negotiation.retry_with_initialize():
            return Step.RETRY_WITH_INITIALIZE
        elif loss.unauthorized:
            step = Step.LOG_IN
        elif self.may_stay_exited(loss):
            step = Step.STAY_EXITED
        if step is None:
            return self.after_failure(now, has_answered=loss.has_answered)
        self.tracker.note_end(now, has_answered=loss.has_answered)
        return step

    def after_failure(self, now: float, *, has_answered: bool = False) -> Retry | OpenCircuit | GiveUp:
        if not (self.ever_ready or self.keep_trying):
            return GiveUp()
        if not self.restarts:
            return GiveUp("its restart policy is 'never'")
        return self.tracker.on_end(now, has_answered=has_answered)
