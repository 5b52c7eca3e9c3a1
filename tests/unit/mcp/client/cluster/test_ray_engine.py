import socket
from concurrent.futures import Future
from typing import Any

import pytest

from gaia.mcp.client.cluster.link import HostGone, HostLost
from gaia.mcp.client.cluster.placement import Placement
from gaia.mcp.errors import StartFailed

ray = pytest.importorskip("ray", reason="Ray is not installed, or has no wheel for this Python")

from gaia.mcp.client.cluster import ray_engine  # noqa: E402 - needs Ray


class FakeActor:
    """Only its methods' options are asked for."""

    def __getattr__(self, name: str) -> "FakeActor":
        return self

    def options(self, **_: object) -> "FakeActor":
        return self


class TestJoining:
    def test_without_a_cluster_the_command_that_starts_one_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        with pytest.raises(StartFailed, match="ray start --head"):
            ray_engine.RayEngine().start("it", Placement())

    def test_an_address_that_does_not_answer_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(**_: object) -> None:
            raise ConnectionError("no answer")

        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "init", fail)
        with pytest.raises(StartFailed, match=r"ray://head cannot be joined: no answer"):
            ray_engine.RayEngine().start("it", Placement(address="ray://head"))

    def test_ray_does_not_look_for_a_cluster_where_nothing_listens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        joined: list[object] = []
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "init", lambda **options: joined.append(options))
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
            with pytest.raises(
                StartFailed, match=rf"127.0.0.1:{port} \(RAY_ADDRESS\) cannot be joined.*ray start --head"
            ):
                ray_engine.join("ray://head")
        assert joined == []

    def test_an_address_that_is_asked_for_comes_before_the_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        joined: list[object] = []
        monkeypatch.setenv("RAY_ADDRESS", "ray://of-the-variable")
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "init", lambda address, **_: joined.append(address))
        monkeypatch.setattr(ray_engine, "_log_messages", lambda: None)
        ray_engine.join("ray://given", is_asked_for=True)
        ray_engine.join("ray://given")
        assert joined == ["ray://given", "ray://of-the-variable"]


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


class TestWhyNotPlaced:
    def reason(self, monkeypatch: pytest.MonkeyPatch, free: dict[str, float], **placement: object) -> str:
        nodes = [
            {"Alive": True, "Resources": {"CPU": 2.0, "browser": 1.0}},
            {"Alive": False, "Resources": {"gpu": 8.0}},
        ]
        monkeypatch.setattr(ray, "nodes", lambda: nodes)
        monkeypatch.setattr(ray, "available_resources", lambda: free)
        return ray_engine.RayLink(FakeActor(), Placement(**placement)).why_not_placed()  # type: ignore[arg-type]

    def test_a_resource_that_no_node_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reason = self.reason(monkeypatch, {}, resources={"gpu": 1})
        assert "it needs 1 of the resource 'gpu', and none of the 1 nodes has any" in reason

    def test_more_than_any_node_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "none of the 1 nodes has more than 2" in self.reason(monkeypatch, {}, num_cpus=4)

    def test_a_resource_that_is_in_use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reason = self.reason(monkeypatch, {"CPU": 2.0}, resources={"browser": 1})
        assert "all of the resource 'browser' is in use: it needs 1, and 0 is left" in reason

    def test_nothing_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "not started its actor yet" in self.reason(monkeypatch, {"CPU": 2.0}, num_cpus=1)


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "kind", "text"),
        [
            (ray.exceptions.ActorUnavailableError("restarting", None), HostLost, "restarting"),
            (ray.exceptions.ActorDiedError(), HostGone, "died"),
            (
                ray.exceptions.RayTaskError("tell", "a traceback", ImportError("no gaia")),
                HostGone,
                "ImportError: no gaia",
            ),
            (
                ray.exceptions.RuntimeEnvSetupError("Traceback of Ray:\n  setup()\nRuntimeError: no virtualenv\n"),
                HostGone,
                "could not set up its runtimeEnv: RuntimeError: no virtualenv",
            ),
        ],
    )
    def test_what_the_driver_is_told(self, error: Exception, kind: type[HostLost], text: str) -> None:
        told: list[Any] = []
        future: Future[Any] = Future()
        future.set_exception(error)
        ray_engine._done(lambda answer, failure: told.append((answer, failure)), future)
        ((answer, failure),) = told
        assert answer is None
        assert type(failure) is kind
        assert text in str(failure)
