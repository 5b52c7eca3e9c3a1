from typing import Any

import msgspec
import pytest

from gaia.mcp.cluster.report import HostReport
from gaia.mcp.errors import StartFailed

ray = pytest.importorskip("ray", reason="Ray is not installed, or has no wheel for this Python")

from gaia.mcp.cluster import ray_view  # noqa: E402 - needs Ray

REPORT = HostReport(server="browser", version="1", python="3.11", node="n", pid=1, state="ready", seconds=1)


class FakeActor:
    """Answers with a report, or not at all."""

    def __init__(self, identifier: str, report: bytes | None) -> None:
        self._actor_id = bytes.fromhex(identifier)
        self._report = report

    @property
    def tell(self) -> "FakeActor":
        return self

    def options(self, **_: object) -> "FakeActor":
        return self

    def remote(self, method: str) -> Any:
        assert method == "report"
        return self

    @property
    def answer(self) -> bytes | None:
        return self._report


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> ray_view.RayView:
    """A program that has joined a cluster with two actors of ours, and one of others."""
    actors = {"browser#1": FakeActor("aa", msgspec.msgpack.encode(REPORT)), "late#shared": FakeActor("bb", None)}
    named = [{"name": name, "namespace": "gaia-mcp"} for name in (*actors, "gone#1")]

    def get_actor(name: str, namespace: str) -> FakeActor:
        if name not in actors:
            raise ValueError(name)
        return actors[name]

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray.util, "list_named_actors", lambda **_: [*named, {"name": "other", "namespace": "x"}])
    monkeypatch.setattr(ray, "get_actor", get_actor)
    monkeypatch.setattr(ray, "wait", lambda asked, **_: ([one for one in asked if one.answer], []))
    monkeypatch.setattr(ray, "get", lambda one: one.answer)
    return ray_view.RayView()


def test_hosts_of_all_programs_are_found_by_their_names(view: ray_view.RayView) -> None:
    first, late = view.hosts()
    assert (first.server, first.actor, first.report) == ("browser", "aa", REPORT)
    assert (late.server, late.report) == ("late", None)


def test_a_program_stays_in_the_cluster_that_it_was_in(view: ray_view.RayView, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(ray, "shutdown", lambda: left.append(1))
    view.close()
    assert left == []


def test_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(StartFailed, match="ray start --head"):
        ray_view.RayView()
