"""How much chaos, and which: what the options of the test run say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

Machine = Callable[[], RuleBasedStateMachine]


@dataclass(frozen=True)
class Profile:
    """The same seed gives the same schedules. What the operating system makes of them may differ.

    A failure shows the steps that led to it.
    """

    seed: int
    examples: int | None
    """How many schedules; None: as many as each test has time for."""

    def explore(self, machine: Machine, *, examples: int, steps: int) -> None:
        """Try many schedules, and look for the shortest one that fails. For what is the same each time."""
        self._run(machine, self.seed, self.examples or examples, steps, [Phase.generate, Phase.shrink])

    def sample(self, machine: Machine, *, examples: int, steps: int) -> None:
        """Try schedules that have nothing in common. For what takes long, and is different each time."""
        for number in range(self.examples or examples):
            # The first schedule of a seed is always the simplest one; later ones are variations of each other.
            self._run(machine, self.seed + number, 2, steps, [Phase.generate])

    @staticmethod
    def _run(machine: Machine, seed: int, examples: int, steps: int, phases: list[Phase]) -> None:
        settings = hypothesis.settings(
            max_examples=examples,
            stateful_step_count=steps,
            phases=phases,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        # Whatever makes a machine will do.
        run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=settings)  # type: ignore[arg-type]
