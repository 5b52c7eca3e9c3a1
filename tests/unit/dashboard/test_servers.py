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
        timeline(GaveUp("it", "too often", None))
        updates, _ = buffer.read(0) or ([], 0)

        assert [update[1] for update in updates] == timeline.events()
        (event,) = timeline.events()
        assert (event["id"], event["server"], event["kind"], event["reason"]) == (1, "it", "gave_up", "too often")

    def test_what_is_no_change_of_a_server_is_not_on_it(self) -> None:
        timeline = Timeline(UpdateBuffer())
        timeline(ResourcesChanged("it"))

        assert timeline.events() == []

    def test_an_event_names_so_many_tools_and_no_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(servers, "_MAX_NAMES", 3)
        timeline = Timeline(UpdateBuffer())
        timeline(ToolsChanged("it", added=tuple(f"t{number}" for number in range(9)), removed=("old",), changed=()))
        (event,) = timeline.events()

        assert (list(event["added"]), list(event["removed"])) == (["t0", "t1", "t2"], ["old"])

    def test_long_names_and_reasons_are_cut(self) -> None:
        timeline = Timeline(UpdateBuffer())
        timeline(ToolsChanged("it", added=("n" * 100_000,)))
        timeline(GaveUp("it", "r" * 100_000, None))
        added, gave_up = timeline.events()

        assert added["added"] == ["n" * 200 + "…"]
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

    def test_it_is_listed_with_the_reason(self, manager: MCPClientManager) -> None:
        assert [(row["name"], row["state"], row["ready_since"]) for row in statuses(manager)] == [
            ("later", "not started", None),
            ("off", "disabled", None),
            ("yes", "failed", None),
            ("text", "failed", None),
        ]

    def test_an_entry_that_cannot_be_used_has_the_reason(self, manager: MCPClientManager) -> None:
        about = describe(manager, "yes", statuses(manager))

        assert about is not None
        assert "disabled: expected a boolean, got a string" in about["last_error"]

    def test_only_one_that_cannot_be_used_is_not_to_be_tried_again(self, manager: MCPClientManager) -> None:
        assert [row["name"] for row in statuses(manager) if row["unusable"]] == ["yes", "text"]

    def test_a_command_about_it_names_the_file_that_was_named(self, manager: MCPClientManager, tmp_path: Path) -> None:
        assert [row["cli_options"] for row in statuses(manager)] == [["--config", str(tmp_path / "servers.json")]] * 4

    def test_a_command_about_it_finds_the_files_of_the_user(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("mcp_servers.json").write_text('{"mcpServers": {"it": {"command": "x"}}}')
        with MCPClientManager(MCPConfig()) as manager:
            assert [row["cli_options"] for row in statuses(manager)] == [[]]

    def test_no_command_can_name_one_in_memory(self) -> None:
        manager = MCPClientManager({"it": {"command": "x", "disabled": True}})
        assert [row["cli_options"] for row in statuses(manager)] == [None]

    def test_all_that_is_known_of_it_is_its_file(self, manager: MCPClientManager, tmp_path: Path) -> None:
        about = describe(manager, "later", statuses(manager))

        assert about is not None
        assert about["source"] == str(tmp_path / "servers.json")
        assert (about["tools"], about["stderr"], about["capabilities"]) == ([], None, [])
        assert describe(manager, "other", statuses(manager)) is None

    def test_the_timeline_of_no_servers_is_empty(self, manager: MCPClientManager) -> None:
        timeline = Timeline(UpdateBuffer())
        timeline.begin(manager)

        assert timeline.events() == []


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


def test_changes_of_states_are_told(quick: None, manager: MCPClientManager) -> None:
    watched = Watched(manager, status_of(it=ServerState.READY))
    stop = watched.watch.start(lambda *told: watched.states.put(told))
    try:
        assert watched.states.get(timeout=PATIENCE) == ("it", None, "ready", 0, None)
        watched.answer = status_of(it=ServerState.FAILED)
        assert watched.states.get(timeout=PATIENCE) == ("it", "ready", "failed", 0, None)
    finally:
        stop()


def test_a_gateway_that_cannot_be_asked_keeps_what_was_known(quick: None, manager: MCPClientManager) -> None:
    watched = Watched(manager, status_of(it=ServerState.READY))
    stop = watched.watch.start(lambda *_: None)
    try:
        watched.answer = OSError("connection refused")
        assert wait_until(lambda: watched.watch.document()["problem"] == "connection refused")
        assert [row["name"] for row in watched.watch.rows()] == ["it"]
        watched.answer = status_of(it=ServerState.READY)
        assert wait_until(lambda: watched.watch.document()["problem"] is None)
    finally:
        stop()


def test_the_manager_gets_the_servers_that_the_gateway_gets(quick: None, manager: MCPClientManager) -> None:
    watched = Watched(manager, status_of())
    stop = watched.watch.start(lambda *_: None)
    try:
        watched.answer = status_of(new=ServerState.READY)
        assert wait_until(lambda: manager.list_servers() == ["new"])
        watched.answer = status_of()
        assert wait_until(lambda: manager.list_servers() == [])
    finally:
        stop()
