"""The checks of a server's cluster, with one that is made up."""

import platform
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from gaia import __version__
from gaia.mcp.cluster.report import HostReport, NodeRoom, NodeSoftware, PlacedHost
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.doctor.cluster import check_cluster
from gaia.mcp.doctor.diagnosis import Check, Verdict
from gaia.mcp.errors import StartFailed

SAME = NodeSoftware(node="worker", python=platform.python_version(), gaia=__version__, command="/bin/npx")
RUNS = HostReport(server="it", version="1", python="3.11", node="worker", pid=1, state="ready", seconds=1)

Checks = Callable[..., dict[str, Check]]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    def make(*software: NodeSoftware, free: float = 1, hosts: Any = (), **placement: Any) -> dict[str, Check]:
        class View:
            def __init__(self, address: str | None, *, is_asked_for: bool) -> None:
                if address == "nowhere":
                    raise StartFailed("the Ray cluster at nowhere cannot be joined")

            def nodes(self) -> list[NodeRoom]:
                return [NodeRoom(node="worker", node_id="n", total={"browser": 1}, free={"browser": free})]

            def free(self) -> dict[str, float]:
                return {"browser": free}

            def software(self, command: str) -> list[NodeSoftware]:
                assert command == "npx"
                return list(software)

            def hosts(self) -> Any:
                return hosts

            def version(self) -> str:
                return "2.50.0"

        module = types.ModuleType("gaia.mcp.cluster.ray_view")
        module.RayView = View  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr("gaia.mcp.doctor.cluster.missing", lambda *_: None)
        entry = {"command": "npx", "args": ["-y", "x"], "placement": {"resources": {"browser": 1}, **placement}}
        server = ServerConfig.from_dict("it", entry)
        assert server.placement is not None
        return {check.name: check for check in check_cluster(server, server.placement)}

    return make


def test_all_is_well(checks: Checks) -> None:
    found = checks(SAME)
    assert [(check.name, check.verdict) for check in found.values()] == [
        ("cluster", Verdict.OK),
        ("nodes", Verdict.OK),
        ("place", Verdict.OK),
    ]
    assert found["cluster"].detail == "joined: 1 nodes, Ray 2.50.0"


def test_no_cluster(checks: Checks) -> None:
    found = checks(address="nowhere")
    assert list(found) == ["cluster"]
    assert "ray start --head" in str(found["cluster"].remedy)


@pytest.mark.parametrize(
    ("software", "words"),
    [
        (NodeSoftware(node="worker", python=platform.python_version()), "worker has no gaia-mcp"),
        (NodeSoftware(node="worker", python="2.7", gaia=__version__), "Python 2.7"),
        (NodeSoftware(node="worker", python=platform.python_version(), gaia="0.0.1"), "gaia-mcp 0.0.1"),
    ],
)
def test_other_versions(checks: Checks, software: NodeSoftware, words: str) -> None:
    nodes = checks(SAME, software)["nodes"]
    assert nodes.verdict is Verdict.FAIL
    assert words in nodes.detail


def test_a_command_that_a_node_lacks(checks: Checks) -> None:
    lacking = NodeSoftware(node="worker", python=SAME.python, gaia=SAME.gaia)
    assert checks(lacking)["nodes"].verdict is Verdict.WARN
    # Ray may bring it.
    assert checks(lacking, runtimeEnv={"pip": ["x"]})["nodes"].verdict is Verdict.OK


def test_nodes_that_do_not_answer(checks: Checks) -> None:
    assert "1 of 1 nodes did not answer" in checks()["nodes"].detail


def test_no_room(checks: Checks) -> None:
    place = checks(SAME, free=0)["place"]
    assert (place.verdict, "'browser' is in use" in place.detail) == (Verdict.FAIL, True)


def test_it_has_the_room_already(checks: Checks) -> None:
    place = checks(SAME, free=0, hosts=[PlacedHost(server="it", actor="a", report=RUNS)])["place"]
    assert place.verdict is Verdict.WARN
