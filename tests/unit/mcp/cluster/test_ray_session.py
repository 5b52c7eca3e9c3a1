from typing import Any

import pytest

from gaia.mcp.cluster.link import ClusterLeft

ray = pytest.importorskip("ray", reason="Ray is not installed, or has no wheel for this Python")

from gaia.mcp.cluster import ray_session  # noqa: E402 - needs Ray
from tests.unit.mcp.cluster.test_placed_calls import Loop  # noqa: E402


class Session:
    """With a loop whose alarms go off when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop, self.told = Loop(), list[Any]()
        self.cluster: tuple[str, str] | None = ("node", "job")
        monkeypatch.setattr(self.loop, "alarm", lambda _, task: self.loop.post(task))
        monkeypatch.setattr(ray, "is_initialized", lambda: self.cluster is not None)
        monkeypatch.setattr(ray_session, "identity", lambda: self.cluster)
        self.session = ray_session.RaySession(self.loop)

    def expect(self) -> int:
        return self.session.expect(lambda answer, failure: self.told.append((answer, failure)))

    def look(self) -> None:
        """What has been posted up to now, but not what comes of it."""
        tasks, self.loop.tasks = self.loop.tasks, []
        for task in tasks:
            task()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    return Session(monkeypatch)


@pytest.mark.parametrize("cluster", [None, ("another node", "job"), ("node", "another job")])
def test_those_that_wait_are_told_when_the_program_has_left(session: Session, cluster: tuple[str, str] | None) -> None:
    number = session.expect()
    session.look()
    assert session.told == []
    session.cluster = cluster
    session.look()
    ((answer, failure),) = session.told
    assert answer is None
    assert isinstance(failure, ClusterLeft)
    session.session.answered(number, b"late", None)
    assert len(session.told) == 1


def test_it_is_looked_at_while_something_is_under_way(session: Session) -> None:
    for _ in range(2):
        number = session.expect()
        session.expect()
        assert len(session.loop.tasks) == 1
        session.session.answered(number, b"good", None)
        session.session.answered(number + 1, b"good", None)
        session.look()
        assert session.loop.tasks == []
    assert session.told == [(b"good", None)] * 4
