import pytest

from gaia.mcp.cluster.replicated_status import joint_state
from gaia.mcp.supervision.events import ServerState as State


@pytest.mark.parametrize(
    ("states", "joint"),
    [
        ([State.FAILED, State.READY], State.READY),
        ([State.RESTARTING, State.EXITED], State.EXITED),
        ([State.FAILED, State.STARTING], State.RESTARTING),
        ([State.FAILED, State.FAILED], State.FAILED),
    ],
)
def test_it_is_as_good_as_its_best_replica(states: list[State], joint: State) -> None:
    assert joint_state(states, ever_ready=True) is joint


def test_before_the_first_was_ready_it_starts() -> None:
    assert joint_state([State.CREATED, State.FAILED], ever_ready=False) is State.STARTING
