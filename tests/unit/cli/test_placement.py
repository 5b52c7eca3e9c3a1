"""`gaia mcp list --placed` and `gaia mcp placement`, with an engine that is made up."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.config.placement import Placement
from gaia.mcp.errors import ConfigError, StartFailed
from gaia.mcp.placement.engine import PlacedServer
from tests.unit.cli.fixture_types import Configure, Invoke, Told

PLACED = {"command": "x", "placement": {"resources": {"browser": 1}, "address": "head:6379"}}


def host(name: str = "browser", **changed: Any) -> PlacedServer:
    known = {"node": "worker-1", "id": "0123456789abcdef", "is_shared": False, "started_by": "agent.py on head, pid 7"}
    return PlacedServer(name=name, **known | {"age": 90.0} | changed)


class FakeEngine:
    def __init__(self, hosts: list[PlacedServer]) -> None:
        self.hosts = hosts
        self.problem: str | None = None
        self.asked_for: list[Placement] = []
        self.ended: list[str] = []
        self.closed = 0

    def __call__(self, placement: Placement) -> "FakeEngine":
        if placement.engine == "kubernetes":
            raise ConfigError("a server on Kubernetes needs kubernetes, which is not installed")
        self.asked_for.append(placement)
        return self

    def list(self) -> list[PlacedServer]:
        if self.problem is not None:
            raise StartFailed(self.problem)
        return self.hosts

    def look(self) -> str:
        if not self.hosts:
            raise StartFailed("no node of the Ray cluster can take it")
        return "3 nodes, Ray 2.60"

    def end(self, identifier: str) -> bool:
        self.ended.append(identifier)
        return True

    def close(self) -> None:
        self.closed += 1


Engine = Callable[..., FakeEngine]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, configure: Configure) -> Engine:
    """Have all engines find these hosts, for a configuration with one placed server and one that is here."""
    configure(browser=PLACED, here={"command": "x"})

    def make(*hosts: PlacedServer) -> FakeEngine:
        made = FakeEngine(list(hosts))
        monkeypatch.setattr("gaia.mcp.placement.engines.engine_for", made)
        return made

    return make


class TestList:
    def test_the_servers_of_all_programs(self, engine: Engine, invoke: Invoke) -> None:
        made = engine(host(), host("theirs", is_shared=True, age=None))
        first, second = invoke("list", "--placed").stdout.splitlines()[1:]
        assert first.split()[:4] == ["browser", "ray", "worker-1", "0123456789ab"]
        assert first.split()[-4:] == ["7", "no", "90", "s"]
        assert second.split()[-2:] == ["yes", "-"]
        assert made.closed == 1

    def test_one_engine_is_asked_once(self, engine: Engine, invoke_json: Invoke, configure: Configure) -> None:
        configure(browser=PLACED, another=PLACED, far={"command": "x", "placement": {"engine": "ssh", "host": "far"}})
        made = engine(host())
        assert [server["engine"] for server in invoke_json("list", "--placed")["servers"]] == ["ray", "ssh"]
        assert len(made.asked_for) == 2

    def test_an_engine_that_cannot_tell_hides_no_other(
        self, engine: Engine, invoke: Invoke, configure: Configure
    ) -> None:
        configure(browser=PLACED, pod={"command": "x", "placement": {"engine": "kubernetes", "image": "i"}})
        engine(host())
        result = invoke("list", "--placed", "--json")
        document = json.loads(result.stdout)
        assert result.exit_code == 1
        assert [server["name"] for server in document["servers"]] == ["browser"]
        assert document["problems"][0]["engine"] == "kubernetes"

    def test_none(self, engine: Engine, invoke: Invoke) -> None:
        engine()
        result = invoke("list", "--placed")
        assert (result.exit_code, result.stdout.splitlines()[0]) == (
            0, "No servers are placed by the engines of the configured servers",
        )  # fmt: skip

    def test_not_with_a_gateway(self, invoke: Invoke) -> None:
        assert invoke("list", "http://127.0.0.1:1/mcp", "--placed").exit_code == 2


class TestPlacement:
    def test_where_it_runs(self, engine: Engine, invoke: Invoke) -> None:
        made = engine(host(), host("another"))
        result = invoke("placement", "browser")
        assert result.exit_code == 0
        for words in ("worker-1", "agent.py on head, pid 7", "ray: 3 nodes, Ray 2.60"):
            assert words in result.stdout
        assert "another" not in result.stdout
        assert made.asked_for[0].address == "head:6379"

    def test_why_it_does_not(self, engine: Engine, invoke: Invoke) -> None:
        engine()
        result = invoke("placement", "browser")
        assert result.exit_code == 1
        assert "No program has placed browser" in result.stdout
        assert "no node of the Ray cluster can take it" in result.stdout

    def test_for_programs(self, engine: Engine, invoke_json: Invoke) -> None:
        engine(host())
        document = invoke_json("placement", "browser")
        assert (document["engine"], document["problem"]) == ("ray", None)
        assert document["hosts"][0]["started_by"] == "agent.py on head, pid 7"

    def test_a_server_that_is_here(self, engine: Engine, refused: Told) -> None:
        engine()
        assert "has no placement" in refused("placement", "here")

    def test_no_cluster(self, engine: Engine, failed: Told) -> None:
        engine().problem = "the Ray cluster at head:6379 cannot be joined"
        assert "cannot be joined" in failed("placement", "browser")


class TestStop:
    def test_a_shared_server_is_ended(self, engine: Engine, invoke: Invoke) -> None:
        made = engine(host(is_shared=True))
        assert invoke("placement", "browser", "--stop").stdout == "Stopped browser\n"
        assert made.ended == ["0123456789abcdef"]

    def test_one_of_a_program_is_not(self, engine: Engine, invoke: Invoke) -> None:
        made = engine(host())
        result = invoke("placement", "browser", "--stop")
        assert (result.exit_code, made.ended) == (2, [])
        assert "agent.py on head, pid 7" in result.stderr

    def test_there_is_none(self, engine: Engine, invoke: Invoke) -> None:
        engine()
        result = invoke("placement", "browser", "--stop", "--json")
        assert json.loads(result.stdout)["error_type"] == "not_placed"
