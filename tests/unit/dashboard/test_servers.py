"""The servers on the page: their state and tools now, and what became of them."""

import json
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gaia.dashboard import servers
from gaia.dashboard.live_updates import UpdateBuffer
from gaia.dashboard.servers import GatewayWatch, Timeline, describe, statuses
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.mcp_client_manager import MCPClientManager
from gaia.mcp.gateway.operations.status import GatewayStatus
from gaia.mcp.supervision.events import GaveUp, ResourcesChanged, Restarted, ServerState, ToolsChanged
from gaia.mcp.supervision.status import ServerStatus
from gaia.testing import FakeServer
from tests.recorder import Recorder
from tests.served_dashboard import Served
from tests.unit.mcp.gateway.operations.test_status import STATUS
from tests.waiting import PATIENCE, wait_until

Serve = Callable[..., Served]


class TestServers:
    def test_all_are_listed_whatever_became_of_them(
        self, serve: Serve, demo_server: dict[str, Any], fault_server: Callable[..., dict[str, Any]]
    ) -> None:
        served = serve(
            demo=demo_server, bad=fault_server(exit_at_start={"code": 3}), off={"command": "x", "disabled": True}
        )
        servers = served.get("/api/state")["servers"]

        assert [(server["name"], server["state"]) for server in servers] == [
            ("demo", "ready"),
            ("bad", "failed"),
            ("off", "disabled"),
        ]
        assert "exited with code 3" in served.get("/api/server?name=bad")["last_error"]
        assert served.get("/api/server?name=off")["tools"] == []

    def test_one_has_its_tools_and_the_names_of_denied_ones(self, demo: Served) -> None:
        server = demo.get("/api/server?name=demo")
        tools = {tool["name"]: tool for tool in server["tools"]}

        assert server["server_info"]["name"] == "gaia-demo"
        assert "gaia demo server" in server["stderr"]
        assert tools["add"]["input_schema"]["required"] == ["a", "b"]
        assert tools["counter"] == {"name": "counter", "denied": "denied"}

    def test_an_unknown_one_is_not_found(self, demo: Served) -> None:
        assert demo.request("GET", "/api/server?name=x").status == 404
        assert demo.request("GET", "/api/server").status == 404

    def test_any_name_can_be_asked_for(self, serve: Serve) -> None:
        name = 'a/b?c&d#<"\N{SNOWMAN}'
        served = serve(**{name: {"command": "x", "disabled": True}})

        assert served.get("/api/server?name=a%2Fb%3Fc%26d%23%3C%22%E2%98%83")["name"] == name


class TestTimeline:
    def test_a_restart_is_told(self, demo: Served) -> None:
        recorder = Recorder()
        demo.manager.subscribe(recorder)
        demo.manager.call_tool("mcp_demo_crash", {})
        recorder.wait_for(Restarted)
        assert wait_until(lambda: any(e["kind"] == "restarted" for e in demo.get("/api/state")["events"]))
        events = demo.get("/api/state")["events"]

        states = [event["new"] for event in events if event["kind"] == "state"]
        assert states[-3:] == ["ready", "restarting", "ready"]
        assert [event["generation"] for event in events if event["kind"] == "restarted"] == [2]
        assert [event["id"] for event in events] == list(range(1, len(events) + 1))

    def test_a_page_knows_an_event_again_by_its_id(self) -> None:
        buffer = UpdateBuffer()
        timeline = Timeline(buffer)
        timeline(ResourcesChanged("it"))
        assert timeline.events() == [], "it is no change of a server"
        timeline(GaveUp("it", "too often", None))
        updates, _ = buffer.read(0) or ([], 0)
        assert [update[1] for update in updates] == timeline.events()
        (event,) = timeline.events()
        assert (event["id"], event["server"], event["kind"], event["reason"]) == (1, "it", "gave_up", "too often")

    def test_an_event_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(servers, "_MAX_NAMES", 3)
        timeline = Timeline(UpdateBuffer())
        timeline(ToolsChanged("it", added=("n" * 100_000, *(f"t{n}" for n in range(9))), removed=("old",), changed=()))
        timeline(GaveUp("it", "r" * 100_000, None))
        changed, gave_up = timeline.events()
        assert (list(changed["added"]), list(changed["removed"])) == (["n" * 200 + "…", "t0", "t1"], ["old"])
        assert gave_up["reason"] == "r" * 2048 + "…"

    def test_only_the_last_events_are_kept_and_each_has_an_id_of_its_own(self) -> None:
        timeline = Timeline(UpdateBuffer())
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: timeline(GaveUp("it", "too often", None)), range(1500)))

        assert [event["id"] for event in timeline.events()] == list(range(501, 1501))


class TestWithoutAServer:
    """What is configured, and has not been started."""

    @pytest.fixture
    def manager(self, tmp_path: Path) -> Iterator[MCPClientManager]:
        file = tmp_path / "servers.json"
        off = {"command": "x", "disabled": True}
        entries = {"later": {"command": "x"}, "off": off, "yes": {"command": "x", "disabled": "yes"}, "text": "x"}
        file.write_text(json.dumps({"mcpServers": entries}))
        with MCPClientManager(MCPConfig(file)) as manager:
            yield manager

    def test_it_is_listed_with_its_file_and_the_reason(self, manager: MCPClientManager, tmp_path: Path) -> None:
        rows = statuses(manager)
        assert [(row["name"], row["state"], row["ready_since"], row["unusable"]) for row in rows] == [
            ("later", "not started", None, False),
            ("off", "disabled", None, False),
            ("yes", "failed", None, True),
            ("text", "failed", None, True),
        ]
        assert [row["cli_options"] for row in rows] == [["--config", str(tmp_path / "servers.json")]] * 4
        unusable, later = describe(manager, "yes", rows), describe(manager, "later", rows)
        assert unusable is not None
        assert "disabled: expected a boolean, got a string" in unusable["last_error"]
        assert later is not None
        assert later["source"] == str(tmp_path / "servers.json")
        assert (later["tools"], later["stderr"], later["capabilities"]) == ([], None, [])
        assert describe(manager, "other", rows) is None

        timeline = Timeline(UpdateBuffer())
        timeline.begin(manager)
        assert timeline.events() == []

    def test_a_command_about_it_finds_the_files_of_the_user_and_cannot_name_one_in_memory(self) -> None:
        Path("mcp_servers.json").write_text('{"mcpServers": {"it": {"command": "x"}}}')
        with MCPClientManager(MCPConfig()) as manager:
            assert [row["cli_options"] for row in statuses(manager)] == [[]]
        manager = MCPClientManager({"it": {"command": "x", "disabled": True}})
        assert [row["cli_options"] for row in statuses(manager)] == [None]


def status_of(**states: ServerState) -> GatewayStatus:
    servers = [ServerStatus(name=name, state=state, uptime=2.0) for name, state in states.items()]
    return msgspec.structs.replace(STATUS, servers=servers)


class Watched:
    """A watch whose gateway answers what a test puts into `answers`, again and again."""

    def __init__(self, manager: MCPClientManager, first: GatewayStatus) -> None:
        self.answer: GatewayStatus | Exception = first
        self.states: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self.watch = GatewayWatch(self._fetch, FakeServer, manager, first)

    def _fetch(self) -> GatewayStatus:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def manager() -> Iterator[MCPClientManager]:
    with MCPClientManager({}) as manager:
        yield manager


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaia.dashboard.servers._SECONDS", 0.001)


def test_rows_and_the_document_are_those_of_the_status(manager: MCPClientManager) -> None:
    watch = Watched(manager, status_of(it=ServerState.READY)).watch
    (row,) = watch.rows()
    document = watch.document()

    assert (row["name"], row["state"], row["is_remote"], row["cli_options"]) == ("it", "ready", True, None)
    assert row["ready_since"] > 0
    assert "servers" not in document
    assert document["problem"] is None
    assert [session["client"] for session in document["sessions"]] == ["ci"]


def test_changes_are_told_and_what_was_known_kept_while_the_gateway_cannot_be_asked(
    quick: None, manager: MCPClientManager
) -> None:
    watched = Watched(manager, status_of(it=ServerState.READY))
    stop = watched.watch.start(lambda *told: watched.states.put(told))
    try:
        assert watched.states.get(timeout=PATIENCE) == ("it", None, "ready", 0, None)
        watched.answer = OSError("connection refused")
        assert wait_until(lambda: watched.watch.document()["problem"] == "connection refused")
        assert [row["name"] for row in watched.watch.rows()] == ["it"]
        watched.answer = status_of(it=ServerState.FAILED, new=ServerState.READY)
        assert watched.states.get(timeout=PATIENCE) == ("it", "ready", "failed", 0, None)
        assert wait_until(lambda: watched.watch.document()["problem"] is None)
        assert wait_until(lambda: "new" in manager.list_servers()), "the manager gets it, too"
        watched.answer = status_of()
        assert wait_until(lambda: manager.list_servers() == [])
    finally:
        stop()
