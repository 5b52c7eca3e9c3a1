"""`gaia mcp list --ray` and `gaia mcp placement`, with a cluster that is made up."""

import json
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.cluster.report import HostReport, NodeRoom, PlacedHost, UserReport
from gaia.mcp.errors import StartFailed
from tests.unit.cli.fixture_types import Configure, Invoke, Told

USER = UserReport(driver="agent.py on head, pid 7", silent=1.5, in_flight=2)


def host(server: str = "browser", **changed: Any) -> PlacedHost:
    report = {
        "server": server,
        "version": "1",
        "python": "3.11.7",
        "node": "worker-1",
        "node_id": "abcdefabcdef",
        "pid": 10,
        "state": "ready",
        "seconds": 90.0,
        "users": [USER],
        "resources": {"browser": 1.0},
    }
    return PlacedHost(server=server, actor="0123456789ab", report=HostReport(**report | changed))


class FakeView:
    """A cluster of one node."""

    def __init__(self, hosts: list[PlacedHost], free: dict[str, float] | None = None) -> None:
        self._hosts = hosts
        self._free = free or {}
        self.addresses: list[str | None] = []
        self.ended: list[str] = []
        self.closed = 0

    def __call__(self, address: str | None) -> "FakeView":
        if address == "nowhere:1":
            raise StartFailed("the Ray cluster at nowhere:1 cannot be joined")
        self.addresses.append(address)
        return self

    def hosts(self) -> list[PlacedHost]:
        return self._hosts

    def nodes(self) -> list[NodeRoom]:
        return [NodeRoom(node="worker-1", node_id="abcdefabcdef", total={"CPU": 2, "browser": 1}, free=self._free)]

    def free(self) -> dict[str, float]:
        return self._free

    def end(self, actor: str, server: str, seconds: float) -> bool:
        self.ended.append(actor)
        return True

    def close(self) -> None:
        self.closed += 1


Cluster = Callable[..., FakeView]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Have the commands find these hosts in any cluster, whether Ray is installed or not."""

    def make(*hosts: PlacedHost, **free: float) -> FakeView:
        view = FakeView(list(hosts), free)
        module = types.ModuleType("gaia.mcp.cluster.ray_view")
        module.RayView = view  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr("gaia.runtime.extras.missing", lambda *_: None)
        return view

    return make


class TestList:
    def test_the_servers_of_all_programs(self, cluster: Cluster, invoke: Invoke) -> None:
        view = cluster(host(), PlacedHost(server="late", actor="ffffffffffff"))
        shown = invoke("list", "--ray", "head:6379").stdout
        first, second = shown.splitlines()[1:]
        assert first.split()[:7] == ["browser", "ready", "worker-1", "abcdefab", "01234567", "agent.py", "on"]
        assert "no place" in second
        assert (view.addresses, view.closed) == (["head:6379"], 1)

    def test_for_programs(self, cluster: Cluster, invoke_json: Invoke) -> None:
        cluster(host(), PlacedHost(server="late", actor="ffffffffffff"))
        ready, late = invoke_json("list", "--ray", "head:6379")["servers"]
        assert (ready["state"], ready["users"][0]["driver"]) == ("ready", USER.driver)
        assert late == {"server": "late", "actor": "ffffffffffff", "state": "no place"}

    def test_none(self, cluster: Cluster, invoke: Invoke) -> None:
        cluster()
        result = invoke("list", "--ray", "head:6379")
        assert (result.exit_code, result.stdout.splitlines()[0]) == (
            0,
            "No servers are placed on the Ray cluster at head:6379",
        )

    def test_errors_are_shown(self, cluster: Cluster, invoke: Invoke) -> None:
        cluster(host(state="failed", error="no such command"))
        assert "browser: no such command" in invoke("list", "--ray", "head:6379").stdout

    def test_not_with_a_gateway(self, invoke: Invoke) -> None:
        assert invoke("list", "http://127.0.0.1:1/mcp", "--ray", "head:6379").exit_code == 2

    def test_no_cluster(self, cluster: Cluster, failed: Told) -> None:
        cluster()
        assert "ray start --head" in failed("list", "--ray", "nowhere:1")

    def test_no_ray(self, monkeypatch: pytest.MonkeyPatch, refused: Told) -> None:
        monkeypatch.setattr(
            "gaia.runtime.extras.missing", lambda *_: "ray, which is not installed (extra 'ray' of gaia-mcp)"
        )
        assert "extra 'ray' of gaia-mcp" in refused("list", "--ray", "head:6379")


class TestPlacement:
    @pytest.fixture(autouse=True)
    def _configured(self, configure: Configure) -> None:
        placement = {"resources": {"browser": 1}, "address": "head:6379"}
        configure(browser={"command": "x", "placement": placement})

    def test_where_it_runs(self, cluster: Cluster, invoke: Invoke) -> None:
        view = cluster(host(), host("another"), CPU=2)
        result = invoke("placement", "browser")
        assert result.exit_code == 0
        for words in ("worker-1 abcdefab", "agent.py on head, pid 7", "1.5 s ago", "browser 0 of 1"):
            assert words in result.stdout
        assert "another" not in result.stdout
        assert view.addresses == ["head:6379"]

    def test_why_it_does_not(self, cluster: Cluster, invoke: Invoke) -> None:
        cluster(PlacedHost(server="browser", actor="ffffffffffff"), CPU=2)
        result = invoke("placement", "browser")
        assert result.exit_code == 1
        assert "browser does not run: all of the resource 'browser' is in use" in result.stdout
        # It is not known by what it is used.
        assert "used by" not in result.stdout

    def test_no_program_has_placed_it(self, cluster: Cluster, invoke_json: Invoke) -> None:
        cluster(browser=1, CPU=2)
        document = invoke_json("placement", "browser")
        assert (document["runs"], document["reason"]) == (False, "no program has placed it")
        assert document["nodes"][0]["resources"]["browser"] == {"free": 1, "total": 1}
        assert document["demand"] == {"browser": 1}

    def test_a_server_that_failed(self, cluster: Cluster, invoke_json: Invoke) -> None:
        cluster(host(state="failed", error="no such command"))
        assert invoke_json("placement", "browser")["reason"] == "no such command"

    def test_one_that_is_not_configured_here(self, cluster: Cluster, invoke_json: Invoke) -> None:
        view = cluster(host("theirs"))
        document = invoke_json("placement", "theirs", "--ray", "other:6379")
        assert (document["runs"], document["demand"]) == (True, {"browser": 1})
        assert view.addresses == ["other:6379"]


class TestStop:
    def test_a_shared_server_is_ended(self, cluster: Cluster, invoke: Invoke) -> None:
        view = cluster(host(shared=True, users=[USER, USER]))
        result = invoke("placement", "browser", "--stop", "--ray", "head:6379")
        assert (result.exit_code, view.ended) == (0, ["0123456789ab"])
        assert "which 2 programs were using" in result.stdout

    def test_one_of_a_program_is_not(self, cluster: Cluster, invoke: Invoke) -> None:
        view = cluster(host())
        result = invoke("placement", "browser", "--stop", "--ray", "head:6379")
        assert (result.exit_code, view.ended) == (2, [])
        assert USER.driver in result.stderr

    def test_there_is_none(self, cluster: Cluster, invoke: Invoke) -> None:
        cluster()
        result = invoke("placement", "browser", "--stop", "--json")
        assert json.loads(result.stdout)["error_type"] == "not_placed"
