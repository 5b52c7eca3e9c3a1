import socket

import pytest

from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import StartFailed

ray = pytest.importorskip("ray", reason="Ray is not installed, or has no wheel for this Python")

from gaia.mcp.cluster import ray_cluster, ray_engine  # noqa: E402 - needs Ray


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
                ray_cluster.join("ray://head")
        assert joined == []

    def test_an_address_that_is_asked_for_comes_before_the_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        joined: list[object] = []
        monkeypatch.setenv("RAY_ADDRESS", "ray://of-the-variable")
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "init", lambda address, **_: joined.append(address))
        monkeypatch.setattr(ray_cluster, "_log_messages", lambda: None)
        ray_cluster.join("ray://given", is_asked_for=True)
        ray_cluster.join("ray://given")
        assert joined == ["ray://given", "ray://of-the-variable"]
