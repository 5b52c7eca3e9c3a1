from typing import Any

import pytest

from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import StartFailed

ray = pytest.importorskip("ray", reason="Ray is not installed, or has no wheel for this Python")

from gaia.mcp.cluster import ray_engine  # noqa: E402 - needs Ray
from tests.unit.mcp.cluster.test_ray_link import FakeActor  # noqa: E402 - needs Ray

pytestmark = pytest.mark.usefixtures("program")


class TestOptions:
    def options(self, monkeypatch: pytest.MonkeyPatch, **placement: object) -> dict[str, Any]:
        given: dict[str, Any] = {}

        def remote(**options: Any) -> Any:
            given.update(options)
            actor = FakeActor()
            actor.remote = lambda is_shared: FakeActor()  # type: ignore[attr-defined]
            return lambda _: actor

        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        monkeypatch.setattr(ray, "remote", remote)
        ray_engine.RayEngine().start("it", Placement(**placement))  # type: ignore[arg-type]
        return given

    def test_what_needs_nothing_is_spread_all_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        options = self.options(monkeypatch, strategy="spread")
        assert (options["scheduling_strategy"], options["memory"]) == ("SPREAD", 1)

    def test_nothing_is_added_to_what_needs_something(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "memory" not in self.options(monkeypatch, strategy="spread", num_cpus=1)
        assert "memory" not in self.options(monkeypatch)

    def test_a_gpu_is_asked_for_as_ray_wants_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        options = self.options(monkeypatch, resources={"GPU": 0.5, "browser": 1})
        assert (options["num_gpus"], options["resources"]) == (0.5, {"browser": 1})

    def test_what_ray_does_not_accept_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def remote(**_: object) -> None:
            raise ValueError("no such directory")

        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        monkeypatch.setattr(ray, "remote", remote)
        with pytest.raises(StartFailed, match="Ray does not accept the placement: no such directory"):
            ray_engine.RayEngine().start("it", Placement())

    def test_a_shared_server_has_a_name_that_other_programs_find(self, monkeypatch: pytest.MonkeyPatch) -> None:
        options = self.options(monkeypatch, lifetime="detached", name="team")
        assert (options["name"], options["namespace"]) == ("team#shared", "gaia-mcp")
        assert (options["lifetime"], options["get_if_exists"]) == ("detached", True)

    def test_others_have_names_of_their_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one, other = (self.options(monkeypatch) for _ in range(2))
        assert one["name"].startswith("it#")
        assert one["name"] != other["name"]
        assert "lifetime" not in one
