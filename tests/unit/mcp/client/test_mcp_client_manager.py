"""`MCPClientManager`: many servers behind one table, one server's trouble nobody else's, and nothing left behind."""

import contextlib
import json
import os
import queue
import random
import shlex
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest

from gaia.mcp.client import MCPClient, MCPClientManager, manager_engine
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.errors import CallTimeout, ConfigError, JsonRpcError, ServerUnavailable, ToolDenied, UnknownTool
from gaia.mcp.rpc.channel import Ending
from gaia.mcp.supervision.events import Event, GaveUp, Restarted, ServerState, StateChanged, ToolsChanged
from gaia.mcp.supervision.policy import RestartPolicy
from gaia.mcp.tools.naming import disambiguated
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.mcp.tools.tool_result import ToolResult
from tests.fake_transport import FakeTransport
from tests.recorder import Recorder
from tests.servers.answers import received_calls, text
from tests.servers.processes import is_alive
from tests.servers.state_file import read_state
from tests.tracing import Tracing
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]
Server = Callable[..., Json]
Manager = MCPClientManager

QUICK = {"initialDelay": 0.01, "maxDelay": 0.01, "maxRestarts": 1000}
LATER = {"restart": {"initialDelay": 1000.0, "maxDelay": 1000.0}}
"""A server that is down is not tried again during the test."""
HUNG = [{"on": "initialize", "hang": True}]
NPX = {"command": "npx", "args": ["-y", "server"]}
NOWHERE = {"command": "no-such-program-anywhere"}


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return tmp_path / "servers.json"


@pytest.fixture
def manage(config_file: Path) -> Iterator[Callable[..., MCPClientManager]]:
    """Make a manager over `config_file`, which is written with the given servers. It is closed after the test."""
    managers: list[MCPClientManager] = []

    def make(servers: dict[str, Json] | None = None, **settings: Any) -> MCPClientManager:
        if servers is not None:
            config_file.write_text(json.dumps({"mcpServers": servers}))
        managers.append(MCPClientManager(MCPConfig(config_file, create=True), **settings))
        return managers[-1]

    yield make
    for manager in managers:
        manager.disconnect_all()


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """All servers of the test are lists of messages, and answer every call at once."""

    def transport(*_: Any) -> FakeTransport:
        made = FakeTransport()
        # No discovery: it speaks the handshake era.
        made.answers["server/discover"] = lambda _: {}
        made.answers["tools/call"] = lambda _: {"content": []}
        return made

    monkeypatch.setattr("gaia.mcp.client.mcp_client.transport_for", transport)


@pytest.fixture
def manager(manage: Callable[..., MCPClientManager]) -> MCPClientManager:
    return manage()


Manage = Callable[..., MCPClientManager]


def saved(config_file: Path) -> dict[str, Json]:
    return MCPConfig(config_file, create=True).get_servers()


def names(manager: Manager) -> set[str]:
    return {str(tool.namespaced_name) for tool in manager.list_tools()}


class TestWithMocks:
    """As the specification's test patterns have it."""

    @pytest.fixture
    def client_class(self) -> Iterator[Mock]:
        with patch("gaia.mcp.client.mcp_client_manager.MCPClient") as client_class:
            client_class.from_config.side_effect = lambda *_, **__: Mock(**{"connect.return_value": True})
            yield client_class

    def test_a_new_manager_has_a_config_and_no_servers(self) -> None:
        manager = MCPClientManager()
        assert isinstance(manager.config, MCPConfig)
        assert manager.debug is False
        assert manager.list_servers() == []
        assert manager._clients == {}

    def test_adding_a_server_connects_stores_and_saves(self, client_class: Mock, manager: Manager) -> None:
        client: Any = manager.add_server("test", NPX)
        client_class.from_config.assert_called_once_with("test", NPX, debug=False)
        client.connect.assert_called_once_with()
        assert manager.get_client("test") is client
        assert manager.list_servers() == ["test"]
        assert manager.config.get_server("test") == NPX

    def test_debug_is_passed_on(self, client_class: Mock, manage: Manage) -> None:
        manage(debug=True).add_server("test", NPX)
        client_class.from_config.assert_called_once_with("test", NPX, debug=True)

    def test_a_name_that_is_taken_is_refused(self, client_class: Mock, manager: Manager) -> None:
        manager.add_server("test", NPX)
        with pytest.raises(ValueError, match="already exists"):
            manager.add_server("test", NPX)
        assert manager.list_servers() == ["test"]

    @pytest.mark.parametrize("config", ["npx server", None, ["npx"]])
    def test_a_config_that_is_no_dict_is_refused(self, client_class: Mock, manager: Manager, config: Any) -> None:
        with pytest.raises(ValueError, match="config dict"):
            manager.add_server("test", config)
        client_class.from_config.assert_not_called()

    def test_removing_a_server_disconnects_and_forgets_it(self, client_class: Mock, manager: Manager) -> None:
        client: Any = manager.add_server("test", NPX)
        manager.remove_server("test")
        client.disconnect.assert_called_once_with()
        assert manager.list_servers() == []
        assert not manager.config.server_exists("test")

    def test_removing_an_unknown_server_does_nothing(self, manager: Manager) -> None:
        manager.remove_server("unknown")

    def test_one_that_cannot_be_disconnected_does_not_keep_the_others(
        self, client_class: Mock, manager: Manager
    ) -> None:
        bad: Any = manager.add_server("bad", NPX)
        good: Any = manager.add_server("good", NPX)
        bad.disconnect.side_effect = ZeroDivisionError
        manager.disconnect_all()
        good.disconnect.assert_called_once_with()


class TestAdding:
    def test_it_is_saved_as_it_was_given(
        self, fault_server: Server, manager: Manager, config_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET", "expanded")
        config = {**fault_server(), "env": {"TOKEN": "${SECRET}"}, "vendor": {"kept": True}}
        manager.add_server("fault", config)
        assert saved(config_file) == {"fault": config}

    def test_one_that_cannot_be_started_is_not_saved_status_says_why_and_the_name_is_free(
        self, fault_server: Server, manager: Manager, config_file: Path
    ) -> None:
        with pytest.raises(RuntimeError, match=r"(?s)Failed to connect.*no-such-program-anywhere"):
            manager.add_server("fault", NOWHERE)
        assert saved(config_file) == {}
        assert manager.list_servers() == []
        assert manager.get_client("fault") is None
        (status,) = manager.status()
        assert (status.name, status.state) == ("fault", ServerState.FAILED)
        assert "no-such-program-anywhere" in str(status.last_error)
        manager.add_server("fault", fault_server())
        (status,) = manager.status()
        assert status.state is ServerState.READY

    def test_an_interrupt_while_connecting_leaves_the_name_free(self, manager: Manager, config_file: Path) -> None:
        with patch("gaia.mcp.client.mcp_client_manager.MCPClient") as client_class:
            client_class.from_config.side_effect = lambda *_, **__: Mock(**{"connect.side_effect": KeyboardInterrupt})
            for _ in range(2):
                with pytest.raises(KeyboardInterrupt):
                    manager.add_server("test", NPX)
        assert manager.list_servers() == []
        assert saved(config_file) == {}

    def test_one_whose_start_was_interrupted_has_ended_after_disconnecting(self, manager: Manager) -> None:
        client = Mock(**{"connect.side_effect": KeyboardInterrupt})
        client_class = patch("gaia.mcp.client.mcp_client_manager.MCPClient", **{"from_config.return_value": client})
        with client_class, pytest.raises(KeyboardInterrupt):
            manager.add_server("test", NPX)
        manager.disconnect_all()
        manager.disconnect_all()
        client.disconnect.assert_called_once_with()

    def test_one_that_cannot_be_saved_is_stopped_again(
        self, fault_server: Server, manager: Manager, config_file: Path
    ) -> None:
        config_file.write_text("{ broken")
        with pytest.raises(ConfigError):
            manager.add_server("fault", fault_server())
        assert manager.list_servers() == []
        assert manager.list_tools() == []
        assert config_file.read_text() == "{ broken"

    def test_one_that_cannot_be_saved_takes_no_other_server_along_that_has_its_name_by_now(
        self, in_memory: None, manager: Manager
    ) -> None:
        others = []

        def fail(name: str, config: Json) -> None:
            manager.config.add_server = Mock()  # type: ignore[method-assign]
            client = manager.get_client(name)
            assert client is not None
            manager.remove_server(name)
            others.append(manager.add_server(name, config))
            raise ConfigError("the disk is full")

        manager.config.add_server = fail  # type: ignore[method-assign]
        with pytest.raises(ConfigError, match="full"):
            manager.add_server("fake", NPX)
        (other,) = others
        assert manager.get_client("fake") is other
        assert other.is_connected()
        assert "mcp_fake_echo" in names(manager)

    def test_of_many_that_add_one_name_at_once_one_succeeds(
        self, fault_server: Server, manager: Manager, tmp_path: Path
    ) -> None:
        config = fault_server(state_file=tmp_path / "state")

        def add(_: int) -> bool:
            try:
                manager.add_server("fault", config)
            except ValueError:
                return False
            return True

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(add, range(8))) == 1
        assert read_state(tmp_path / "state").starts == 1


class TestInMemory:
    """A mapping instead of files: no file is read or written."""

    def test_a_context_connects_the_servers_and_leaves_no_file(
        self, fault_server: Server, home: Path, tmp_path: Path
    ) -> None:
        with MCPClientManager({"one": fault_server(), "dead": NOWHERE}) as manager:
            assert manager.list_servers() == ["one"]
            assert text(manager.call_tool("mcp_one_echo", {"text": "hi"})) == "hi"
            manager.add_server("two", fault_server())
            assert manager.config.server_exists("two")
            manager.remove_server("one")
        assert list(home.iterdir()) == []
        assert list(tmp_path.iterdir()) == []

    def test_a_context_over_a_file_connects_nothing(self, in_memory: None, manage: Manage) -> None:
        with manage({"one": NPX}) as manager:
            assert manager.list_servers() == []

    def test_an_interrupt_on_entering_leaves_nothing_running(
        self, in_memory: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = MCPClientManager({"one": NPX})
        load = manager.load_from_config

        def interrupted() -> None:
            load()
            raise KeyboardInterrupt

        monkeypatch.setattr(manager, "load_from_config", interrupted)
        with pytest.raises(KeyboardInterrupt), manager:
            pytest.fail("the context was entered")
        assert manager.list_servers() == []

    def test_there_is_no_file_to_save_to(self, in_memory: None) -> None:
        manager = MCPClientManager({})
        with pytest.raises(ValueError, match="'one' cannot be saved: the configuration of this manager has no file"):
            manager.add_server("one", NPX, save=True)
        assert manager.status() == []


class TestSaving:
    @pytest.mark.parametrize(("save", "expected"), [(None, {"one": NPX}), (True, {"one": NPX}), (False, {})])
    def test_a_server_is_saved_unless_it_is_declared_in_memory(
        self, in_memory: None, manager: Manager, config_file: Path, save: bool | None, expected: Json
    ) -> None:
        manager.add_server("one", NPX, save=save)
        assert manager.config.get_server("one") == NPX
        assert saved(config_file) == expected


class TestServersThatComeAndGo:
    """Threads that remove a server, add one of the same name, and call its tools."""

    def test_a_call_that_meets_a_removal_is_told_so(self, in_memory: None, manager: Manager, switching: None) -> None:
        manager.add_server("fake", NPX)
        done = threading.Event()

        def call() -> Counter[str]:
            outcomes: Counter[str] = Counter()
            while not done.is_set():
                outcomes[manager.call_tool("mcp_fake_echo", {}, timeout=PATIENCE).get("error_type", "ok")] += 1
            return outcomes

        with ThreadPoolExecutor(4) as threads:
            calling = [threads.submit(call) for _ in range(4)]
            try:
                for _ in range(20):
                    manager.remove_server("fake")
                    manager.add_server("fake", NPX)
            finally:
                done.set()
            outcomes = sum((one.result(PATIENCE) for one in calling), Counter())
        assert outcomes["ok"] > 0
        assert outcomes.keys() <= {"ok", "unknown_tool", "server_unavailable", "cancelled"}

    def test_a_route_that_was_found_just_before_leads_nowhere(self, in_memory: None, manager: Manager) -> None:
        manager.add_server("fake", NPX)
        routes = manager._engine.registry.routes
        manager.remove_server("fake")
        manager._engine.registry.routes = routes
        outcome = manager.call_tool("mcp_fake_echo", {})
        assert (outcome["error_type"], outcome["delivery"]) == ("server_unavailable", "not_sent")
        with pytest.raises(ServerUnavailable):
            manager.submit_tool("mcp_fake_echo")

    def test_a_removal_deletes_no_configuration_of_the_next_server_of_this_name(
        self, in_memory: None, manager: Manager, config_file: Path
    ) -> None:
        client = manager.add_server("fake", NPX)
        disconnect = client.disconnect

        def slow() -> None:
            manager.add_server("fake", {"command": "next"})
            disconnect()

        client.disconnect = slow  # type: ignore[method-assign]
        manager.remove_server("fake")
        assert manager.list_servers() == ["fake"]
        assert saved(config_file) == {"fake": {"command": "next"}}

    def test_disconnecting_waits_for_a_server_that_another_thread_removes(
        self, in_memory: None, manager: Manager, tracing: Tracing
    ) -> None:
        """Or a span of its end would start a callback thread again, after the manager has ended them."""
        transport: Any = manager.add_server("fake", NPX).transport
        channel, may_end = transport.channel(), threading.Event()
        close = channel.close

        def slow(grace: float) -> Ending:
            assert may_end.wait(PATIENCE)
            return close(grace)

        channel.close = slow
        with ThreadPoolExecutor(2) as threads:
            removed = threads.submit(manager.remove_server, "fake")
            assert wait_until(lambda: not manager.list_servers())
            disconnected = threads.submit(manager.disconnect_all)
            with pytest.raises(TimeoutError):
                disconnected.result(0.05)
            may_end.set()
            removed.result(PATIENCE)
            disconnected.result(PATIENCE)
        assert tracing.named("gaia.mcp.close")


class TestLoading:
    def test_one_dead_and_one_hung_server_delay_and_break_nothing(self, fault_server: Server, manage: Manage) -> None:
        manager = manage(
            {
                "good": fault_server(),
                "dead": {**fault_server(exit_at_start={"code": 4, "stderr": "no licence"}), **LATER},
                "hung": fault_server(faults=HUNG),
                "nowhere": {**NOWHERE, **LATER},
                "unusable": {"command": 5},
                "yes": {**fault_server(), "disabled": "yes"},
                "misspelt": {**fault_server(), "disabledTool": ["echo"]},
                "no object": "uvx mcp-server-time",
                "broken but off": {"disabled": True},
                "remote": {"url": "http://127.0.0.1:9/mcp", **LATER},
                "off": {**fault_server(), "disabled": True},
                "better": fault_server(),
            }
        )
        began = time.monotonic()
        manager.load_from_config(timeout=0.5)
        assert time.monotonic() - began < 10.0
        assert wait_until(lambda: manager.list_servers() == ["good", "better"])
        assert text(manager.call_tool("mcp_good_echo", {"text": "hi"})) == "hi"
        states = {
            "good": ServerState.READY,
            "better": ServerState.READY,
            "dead": ServerState.FAILED,
            "hung": ServerState.STARTING,
            "nowhere": ServerState.FAILED,
            **dict.fromkeys(("unusable", "yes", "misspelt", "no object"), ServerState.FAILED),
            "remote": ServerState.FAILED,
        }
        assert wait_until(lambda: {one.name: one.state for one in manager.status()} == states)
        status = {one.name: one for one in manager.status()}
        assert "no licence" in str(status["dead"].last_error)
        assert "no-such-program-anywhere" in str(status["nowhere"].last_error)
        problem = "command: expected a string or null, got a number"
        assert status["unusable"].last_error == f"{manager.config.config_file}: {problem}"
        with pytest.raises(ServerUnavailable) as refusal:
            manager.require("unusable")
        assert str(refusal.value) == f"server 'unusable' is unavailable: {manager.config.config_file}: {problem}"
        assert "disabled: expected a boolean, got a string" in str(status["yes"].last_error)
        assert "did you mean 'disabledTools'?" in str(status["misspelt"].last_error)
        assert "expected a config dict" in str(status["no object"].last_error)
        assert status["hung"].pid is not None

    def test_it_returns_as_soon_as_everybody_is_ready(self, fault_server: Server, manage: Manage) -> None:
        manager = manage({str(number): fault_server() for number in range(5)})
        manager.load_from_config(timeout=60.0)
        assert len(manager.list_servers()) == 5

    def test_a_server_that_was_too_slow_joins_later(self, fault_server: Server, manage: Manage) -> None:
        manager = manage({"slow": fault_server(start_delay=0.3)})
        events = Recorder()
        manager.subscribe(events)
        manager.load_from_config(timeout=0.01)
        assert manager.list_servers() == []
        # A call waits for it.
        assert text(manager.call_tool("mcp_slow_echo", {"text": "hi"})) == "hi"
        events.wait_for(ToolsChanged)
        assert manager.list_servers() == ["slow"]
        assert text(manager.call_tool("mcp_slow_echo", {"text": "hi"})) == "hi"

    def test_loading_again_leaves_alone_what_runs_or_starts_and_retries_what_failed(
        self, fault_server: Server, manage: Manage, tmp_path: Path
    ) -> None:
        states = {name: tmp_path / name for name in ("good", "dead", "hung")}
        manager = manage(
            {
                "good": fault_server(state_file=states["good"]),
                "dead": {
                    **fault_server(
                        state_file=states["dead"], exit_at_start={"code": 1}, by_start={"3": {"exit_at_start": None}}
                    ),
                    **LATER,
                },
                "hung": fault_server(state_file=states["hung"], faults=HUNG),
            }
        )
        manager.load_from_config(timeout=0.1)
        assert wait_until(lambda: [one.state for one in manager.status() if one.name == "dead"] == [ServerState.FAILED])
        assert wait_until(lambda: manager.list_servers() == ["good"])
        manager.load_from_config(timeout=0.1)
        assert wait_until(lambda: sorted(manager.list_servers()) == ["dead", "good"])
        assert {name: read_state(path).starts for name, path in states.items()} == {"good": 1, "dead": 3, "hung": 1}
        assert {one.name: one.state for one in manager.status()} == {
            "good": ServerState.READY,
            "dead": ServerState.READY,
            "hung": ServerState.STARTING,
        }

    def test_the_config_file_is_not_written(self, fault_server: Server, manage: Manage, config_file: Path) -> None:
        manager = manage({"good": fault_server(), "dead": NOWHERE})
        before = config_file.read_bytes(), config_file.stat().st_mtime_ns
        manager.load_from_config()
        manager.disconnect_all()
        assert (config_file.read_bytes(), config_file.stat().st_mtime_ns) == before


class TestStoppingAndRestarting:
    def test_a_stopped_server_is_started_again_with_its_tools(self, fault_server: Server, manage: Manage) -> None:
        manager = manage({"it": fault_server()})
        manager.load_from_config()
        manager.stop_server("it")
        assert [status.state for status in manager.status()] == [ServerState.CLOSED]
        assert manager.list_tools() == []

        assert manager.restart_server("it"), "another name of `restart`"
        assert text(manager.call_tool("mcp_it_echo", {"text": "again"})) == "again"

    def test_a_running_one_gets_a_new_process(self, fault_server: Server, manage: Manage) -> None:
        manager = manage({"it": fault_server()})
        manager.load_from_config()
        before = text(manager.call_tool("mcp_it_pid"))

        assert manager.restart("it")
        assert text(manager.call_tool("mcp_it_pid")) != before
        assert wait_until(lambda: not is_alive(int(before)))

    def test_one_that_failed_is_tried_again(self, fault_server: Server, manage: Manage, tmp_path: Path) -> None:
        marker = tmp_path / "licence"
        command = f"test -e {marker} && exec {' '.join(shlex.quote(word) for word in _words(fault_server()))}; exit 3"
        manager = manage({"it": {"command": "sh", "args": ["-c", command]}})
        manager.load_from_config()
        assert not manager.restart("it")
        assert manager.get_client("it") is None
        marker.touch()

        assert manager.restart("it")
        assert text(manager.call_tool("mcp_it_echo", {"text": "back"})) == "back"

    @pytest.mark.parametrize("raises", [False, True], ids=["and that is all", "and a signal handler raises"])
    def test_one_that_is_removed_while_it_restarts_is_not_left_running(
        self, fault_server: Server, manage: Manage, monkeypatch: pytest.MonkeyPatch, raises: bool
    ) -> None:
        manager = manage({"it": fault_server()})
        manager.load_from_config()
        client = manager.get_client("it")
        assert client is not None
        connect = client.connect
        manager.stop_server("it")

        def connect_after_removal(**options: Any) -> bool:
            if not raises:
                manager.remove_server("it")
                return connect(**options)
            manager.disconnect_all()
            connect(**options)
            raise KeyboardInterrupt

        monkeypatch.setattr(client, "connect", connect_after_removal)
        with pytest.raises(KeyboardInterrupt) if raises else contextlib.nullcontext():
            assert not manager.restart("it")
        assert client.state is ServerState.CLOSED
        assert manager.list_servers() == []

    def test_a_start_under_way_can_be_stopped_and_not_begun_twice(self, fault_server: Server, manage: Manage) -> None:
        manager = manage({"it": fault_server(faults=HUNG)})
        manager.load_from_config(timeout=0)
        assert wait_until(lambda: [status.state for status in manager.status()] == [ServerState.STARTING])
        with pytest.raises(ValueError, match="being started already"):
            manager.restart("it")
        manager.stop_server("it")

        assert wait_until(lambda: [status.state for status in manager.status()] == [ServerState.CLOSED])

    def test_a_server_that_another_thread_begins_to_start_is_no_failure(
        self, manage: Manage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        manager = manage({"it": {"command": "no-such-program"}})
        make, times = MCPClient.from_config, iter([True])

        def overtaken(*given: Any, **options: Any) -> MCPClient:
            if next(times, False):
                # What another thread would do in this moment. The server waits for its next attempt afterwards.
                manager._engine.registry.reserve("it", make(*given, **options))
            return make(*given, **options)

        monkeypatch.setattr(MCPClient, "from_config", overtaken)
        manager.load_from_config()

        assert manager.status()[0].last_error is None
        assert "already exists" not in caplog.text

    def test_what_cannot_be_started_or_stopped_is_named(self, manage: Manage) -> None:
        manager = manage({"off": NPX | {"disabled": True}, "unusable": {"command": 5}})
        with pytest.raises(ValueError, match="no server 'x' is configured; the names are off, unusable"):
            manager.restart("x")
        with pytest.raises(ValueError, match="server 'off' is disabled"):
            manager.restart("off")
        with pytest.raises(ValueError, match="nothing to stop"):
            manager.stop_server("off")


def _words(entry: Json) -> list[str]:
    return [entry["command"], *entry["args"]]


class TestRouting:
    @pytest.mark.parametrize("submits", [False, True])
    def test_a_call_waits_no_longer_than_its_timeout_for_a_start_that_has_not_begun(
        self, manager: Manager, monkeypatch: pytest.MonkeyPatch, submits: bool
    ) -> None:
        # Its thread ends the process of a former server of this name first.
        monkeypatch.setattr(manager_engine, "_TO_BEGIN_SECONDS", 2 * PATIENCE)
        manager._engine.registry.reserve("fault", MCPClient.from_config("fault", {"command": "no-such-program"}))
        if submits:
            with pytest.raises(ServerUnavailable, match="being started"):
                manager.submit_tool("mcp_fault_echo", timeout=0.01)
        else:
            result = manager.call_tool("mcp_fault_echo", timeout=0.01)
            assert result["error_type"] == "server_unavailable"
            assert result["delivery"] == "not_sent"

    def test_unknown_names_are_errors_that_help(self, fault_server: Server, manager: Manager) -> None:
        manager.add_server("fault", fault_server())
        outcome = manager.call_tool("mcp_fault_ecko", {"text": "hi"})
        assert (outcome["error_type"], outcome["delivery"]) == ("unknown_tool", "not_sent")
        assert "mcp_fault_echo" in outcome["error"]
        outcome = manager.call_tool("echo", {})
        assert outcome["error_type"] == "unknown_tool"
        assert "did you mean mcp_fault_echo?" in str(outcome.error)

    def test_a_name_that_is_no_string_is_refused(self, manager: Manager) -> None:
        name: Any = None
        with pytest.raises(ValueError, match="the tool's name must be a string, not None"):
            manager.call_tool(name)

    def test_a_name_belongs_to_the_server_with_the_longest_name(self, fault_server: Server, manager: Manager) -> None:
        manager.add_server("a", fault_server(only_tools=True, tools=[{"name": "b_c"}]))
        assert names(manager) == {"mcp_a_b_c"}
        manager.add_server("a_b", fault_server(only_tools=True, tools=[{"name": "c"}]))
        assert names(manager) == {disambiguated("a", "b_c"), "mcp_a_b_c"}
        assert text(manager.call_tool(disambiguated("a", "b_c"))) == "b_c"
        assert text(manager.call_tool("mcp_a_b_c")) == "c"
        manager.remove_server("a_b")
        assert names(manager) == {"mcp_a_b_c"}

    def test_a_name_of_a_configured_server_that_is_gone_leads_to_no_other(
        self, fault_server: Server, manage: Manage
    ) -> None:
        gone = {**fault_server(exit_at_start={"code": 3}), "timeout": 20}
        others = fault_server(only_tools=True, tools=[{"name": "archive_read"}, {"name": "off_read"}])
        manager = manage({"files": others, "files_archive": gone, "files_off": {**others, "disabled": True}})
        manager.load_from_config()
        assert names(manager) == {disambiguated("files", "archive_read"), disambiguated("files", "off_read")}
        outcome = manager.call_tool("mcp_files_archive_read")
        assert (outcome["error_type"], outcome["delivery"]) == ("server_unavailable", "not_sent")
        assert "'files_archive' is unavailable: " in outcome["error"]
        assert "3" in outcome["error"]
        assert "'files_off' is unavailable: it is disabled" in manager.call_tool("mcp_files_off_read")["error"]

    def test_so_it_is_if_that_server_was_never_loaded(self, in_memory: None, manage: Manage) -> None:
        manager = manage({"files_archive": NPX})
        manager.add_server("files", NPX, save=False)
        outcome = manager.call_tool("mcp_files_archive_read")
        assert outcome["error_type"] == "server_unavailable"
        assert "'files_archive' is unavailable: it was not started" in outcome["error"]

    def test_tools_appear_and_disappear_as_the_server_says(self, fault_server: Server, manager: Manager) -> None:
        change = {"tool": "pid", "change_tools": [{"name": "new"}]}
        manager.add_server("fault", fault_server(tools=[{"name": "old"}], faults=[change]))
        events = Recorder()
        manager.subscribe(events)
        assert {"mcp_fault_old", "mcp_fault_pid"} <= names(manager)
        manager.call_tool("mcp_fault_pid")
        changed = events.wait_for(ToolsChanged)
        assert (changed.added, changed.removed) == (("new",), ("old",))
        assert text(manager.call_tool("mcp_fault_new")) == "new"
        assert manager.call_tool("mcp_fault_old")["error_type"] == "unknown_tool"

    def test_tools_stay_during_a_restart_and_calls_wait(
        self, fault_server: Server, manager: Manager, tmp_path: Path
    ) -> None:
        config = fault_server(state_file=tmp_path / "state", by_start={"2": {"start_delay": 0.2}})
        client = manager.add_server("fault", {**config, "restart": QUICK})
        events = Recorder()
        manager.subscribe(events)
        before = names(manager)
        os.kill(client.status.pid or 0, signal.SIGKILL)
        events.wait_for(StateChanged, new=ServerState.RESTARTING)
        assert names(manager) == before
        assert manager.list_servers() == ["fault"]
        assert text(manager.call_tool("mcp_fault_start")) == "2"
        events.wait_for(Restarted)
        assert names(manager) == before

    def test_tools_go_with_their_server(self, fault_server: Server, manager: Manager) -> None:
        for name in ("one", "two"):
            manager.add_server(name, fault_server())
        manager.remove_server("one")
        assert all(tool.server == "two" for tool in manager.list_tools())
        assert manager.call_tool("mcp_one_pid")["error_type"] == "unknown_tool"

    def test_tools_go_when_a_client_is_disconnected_by_itself_and_come_back_with_it(
        self, fault_server: Server, manager: Manager
    ) -> None:
        client = manager.add_server("fault", fault_server())
        client.disconnect()
        assert manager.list_tools() == []
        assert manager.call_tool("mcp_fault_pid")["error_type"] == "server_unavailable"
        assert client.connect()
        assert manager.call_tool("mcp_fault_pid")["content"]


class TestSubmitting:
    """`submit_tool` finds tools as `call_tool` does."""

    def test_the_future_has_the_result(self, fault_server: Server, manager: Manager) -> None:
        faults = [{"tool": "echo", "nth": [1], "progress": [{"progress": 1}]}, {"tool": "sleep", "hang": True}]
        manager.add_server(
            "fault", fault_server(faults=[*faults, {"tool": "pid", "error": {"code": 7, "message": "no"}}])
        )
        reported: queue.SimpleQueue[Any] = queue.SimpleQueue()
        first = manager.submit_tool("mcp_fault_echo", {"text": "hi"}, on_progress=lambda *values: reported.put(values))
        assert type(first.result(PATIENCE)) is ToolResult
        assert first.result().text == "hi"
        assert reported.get(timeout=PATIENCE) == (1, None, None)
        futures = [manager.submit_tool("mcp_fault_echo", {"text": str(number)}) for number in range(20)]
        assert [future.result(PATIENCE).text for future in futures] == [str(number) for number in range(20)]
        with pytest.raises(CallTimeout):
            manager.submit_tool("mcp_fault_sleep", {"seconds": 0}, timeout=0.05).result(PATIENCE)
        with pytest.raises(JsonRpcError, match="no"):
            manager.submit_tool("mcp_fault_pid").result(PATIENCE)

    def test_a_call_that_cannot_be_made_raises_at_once(self, in_memory: None, manage: Manage) -> None:
        manager = manage(tool_filter=ToolFilter(deny=["mcp_fake_look"]))
        manager.add_server("fake", NPX)
        for name, kind in {"mcp_fake_ecko": UnknownTool, "echo": UnknownTool, "mcp_fake_look": ToolDenied}.items():
            with pytest.raises(kind) as raised:
                manager.submit_tool(name)
            assert (raised.value.error_type, raised.value.message) == tuple(
                manager.call_tool(name)[member] for member in ("error_type", "error")
            )
        for unusable in ([], "text"):
            with pytest.raises(ValueError, match="arguments"):
                manager.submit_tool("mcp_fake_echo", unusable)  # type: ignore[arg-type]


@pytest.mark.parametrize("mistake", ["servers.json", [NPX], NPX, {"mcpServers": {"time": NPX}}])
def test_what_is_no_configuration_is_refused_at_once(mistake: Any) -> None:
    with pytest.raises(ConfigError, match="expected servers by name"):
        MCPClientManager(mistake)


class TestShown:
    def test_by_names_states_and_tools(self, in_memory: None, manage: Manage) -> None:
        manager = manage()
        assert repr(manager) == "<MCPClientManager without servers>"
        client = manager.add_server("time", NPX)
        assert repr(client) == "<MCPClient 'time' ready, 2 tools>"
        assert repr(manager) == "<MCPClientManager 'time' ready, 2 tools>"
        client.disconnect()
        assert repr(client) == "<MCPClient 'time' closed, 0 tools>"

    def test_servers_that_were_not_started(self) -> None:
        manager = MCPClientManager({"time": NOWHERE, "off": {**NOWHERE, "disabled": True}})
        assert repr(manager) == "<MCPClientManager 'time' not started>"

    def test_never_with_a_secret(self, manage: Manage) -> None:
        entry = {**NOWHERE, "args": ["--token", "s3cr3t-in-args"], "env": {"DB_PASSWORD": "s3cr3t-in-env"}}
        manager = manage({"db": entry})
        manager.load_from_config()
        assert repr(manager) == "<MCPClientManager 'db' failed, 0 tools>"
        client = MCPClient.from_config("db", {**entry, "env": {**entry["env"], "A": "s3cr3t"}})
        assert repr(client) == "<MCPClient 'db' created, 0 tools>"


class TestFilters:
    def test_what_is_denied_for_all_servers_is_neither_listed_nor_called(
        self, fault_server: Server, manage: Manage
    ) -> None:
        manager = manage(tool_filter=ToolFilter(deny=["echo", "mcp_two_pid"]))
        clients = {name: manager.add_server(name, fault_server()) for name in ("one", "two")}
        assert names(manager).isdisjoint({"mcp_one_echo", "mcp_two_echo", "mcp_two_pid"})
        assert "mcp_one_pid" in names(manager)
        outcome = manager.call_tool("mcp_one_echo", {"text": "hi"})
        assert (outcome["error_type"], outcome["delivery"]) == ("denied", "not_sent")
        assert manager.call_tool("mcp_two_pid")["error_type"] == "denied"
        assert clients["one"].call_tool("echo", {"text": "hi"})["error_type"] == "denied"
        assert clients["two"].call_tool("pid")["error_type"] == "denied"
        assert received_calls(clients["one"]) == ["received"]
        assert received_calls(clients["two"]) == ["received"]

    def test_the_filters_of_a_server_and_of_the_manager_add_up(self, fault_server: Server, manage: Manage) -> None:
        manager = manage(tool_filter=ToolFilter(deny=["pid"]))
        manager.add_server("fault", {**fault_server(), "enabledTools": ["echo", "pid"]})
        assert names(manager) == {"mcp_fault_echo"}
        (status,) = manager.status()
        assert status.tool_count == 1

    def test_a_denial_names_the_list_that_denies_and_where_it_is(
        self, fault_server: Server, manage: Manage, config_file: Path
    ) -> None:
        entry = {**fault_server(), "enabledTools": ["echo", "pid"], "disabledTools": ["pi?"]}
        manager = manage({"filed": entry}, tool_filter=ToolFilter(allow=["pid", "large"]))
        manager.load_from_config()
        said = {
            "pid": f'is denied by "pi?" in "disabledTools" of its entry in {config_file}',
            "large": f'is not in "enabledTools" of its entry in {config_file}',
            "echo": """is not in "allow" of the manager's tool_filter""",
        }
        for tool, denial in said.items():
            assert (
                str(manager.get_client("filed")._engine.refusal_of(tool))
                == f"the tool {tool!r} of server 'filed' {denial}"
            )
        own = MCPClient("own", FakeTransport(), tool_filter=ToolFilter(allow=["pid"]))
        assert """is not in "allow" of the client's tool_filter""" in str(own._engine.refusal_of("large"))


class TestRestarts:
    def test_the_managers_policy_is_for_servers_without_one(self, fault_server: Server, manage: Manage) -> None:
        manager = manage(restart_policy=RestartPolicy("never"))
        events = Recorder()
        manager.subscribe(events)
        clients = {
            "mortal": manager.add_server("mortal", fault_server()),
            "immortal": manager.add_server("immortal", {**fault_server(), "restart": QUICK}),
        }
        for client in clients.values():
            os.kill(client.status.pid or 0, signal.SIGKILL)
        assert events.wait_for(GaveUp).server == "mortal"
        assert events.wait_for(Restarted).server == "immortal"
        assert manager.call_tool("mcp_mortal_pid")["error_type"] == "server_unavailable"
        assert manager.call_tool("mcp_immortal_pid")["content"]

    def test_a_server_that_keeps_crashing_harms_no_other(self, fault_server: Server, manage: Manage) -> None:
        manager = manage()
        manager.add_server("good", fault_server())
        manager.add_server("bad", {**fault_server(faults=[{"on": "ping", "crash": "before_answer"}]), "restart": QUICK})
        bad = manager.get_client("bad")
        assert bad is not None
        for _ in range(5):
            with pytest.raises(RuntimeError):
                bad.request("ping")
            assert text(manager.call_tool("mcp_good_echo", {"text": "hi"})) == "hi"
        assert [status.restarts for status in manager.status() if status.name == "good"] == [0]


class TestListeners:
    def test_a_server_is_announced_once_its_tools_can_be_called(self, fault_server: Server, manager: Manager) -> None:
        outcomes: list[ToolResult] = []
        told = threading.Event()

        def listener(event: Event) -> None:
            if isinstance(event, ToolsChanged):
                outcomes.append(manager.call_tool("mcp_fault_pid"))
                told.set()

        manager.subscribe(listener)
        manager.add_server("fault", fault_server())
        assert told.wait(PATIENCE)
        assert not outcomes[0].is_error

    def test_all_servers_are_heard_until_one_unsubscribes(self, fault_server: Server, manager: Manager) -> None:
        first, second = Recorder(), Recorder()
        unsubscribe = manager.subscribe(first)
        manager.subscribe(second)
        manager.add_server("one", fault_server())
        for listener in (first, second):
            listener.wait_for(ToolsChanged, server="one")
        unsubscribe()
        manager.add_server("two", fault_server())
        second.wait_for(ToolsChanged, server="two")
        assert {event.server for event in first.events} == {"one"}

    def test_a_listener_may_subscribe_twice(self, fault_server: Server, manager: Manager) -> None:
        events = Recorder()
        manager.subscribe(events)()
        once = manager.subscribe(events)
        manager.subscribe(events)
        manager.add_server("one", fault_server())
        assert wait_until(lambda: len(events.of(ToolsChanged)) == 2)
        once()
        manager.remove_server("one")
        assert wait_until(lambda: len(events.of(StateChanged, new=ServerState.CLOSED)) == 1)

    @pytest.mark.parametrize("end", [Manager.disconnect_all, lambda manager: manager.remove_server("fault")])
    def test_a_listener_may_end_servers(
        self, fault_server: Server, manager: Manager, end: Callable[[Manager], None]
    ) -> None:
        done = threading.Event()

        def listener(event: Event) -> None:
            if isinstance(event, ToolsChanged) and event.added:
                end(manager)
                done.set()

        manager.subscribe(listener)
        client = manager.add_server("fault", fault_server())
        assert done.wait(PATIENCE)
        assert client.state is ServerState.CLOSED
        assert manager.list_servers() == []


class TestDisconnecting:
    def test_all_servers_and_what_they_started_are_gone_but_stay_configured(
        self, fault_server: Server, manager: Manager
    ) -> None:
        pids = []
        for name in ("one", "two", "three"):
            client = manager.add_server(name, fault_server(child="own_session"))
            pids += [client.status.pid or 0, *json.loads(text(client.call_tool("children")))]
        manager.disconnect_all()
        assert not any(map(is_alive, pids))
        assert manager.list_servers() == []
        assert manager.list_tools() == []
        assert manager.status() == []
        assert manager.config.get_servers().keys() == {"one", "two", "three"}

    def test_stubborn_servers_are_stopped_side_by_side(self, fault_server: Server, manager: Manager) -> None:
        for number in range(4):
            manager.add_server(str(number), fault_server(ignore_eof=True))
        began = time.monotonic()
        manager.disconnect_all()
        # Each alone takes two seconds until it is sent SIGTERM.
        assert time.monotonic() - began < 6.0

    def test_each_of_many_servers_is_ended_while_all_others_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        transports: list[FakeTransport] = []

        def transport(*_: Any) -> FakeTransport:
            transports.append(FakeTransport())
            return transports[-1]

        monkeypatch.setattr("gaia.mcp.client.mcp_client.transport_for", transport)
        manager = MCPClientManager({f"s{number}": {**NPX, "protocol": "handshake"} for number in range(50)})
        manager.load_from_config()
        channels = [one.channel() for one in transports]
        for channel in channels:
            channel.hold_closing()
        with ThreadPoolExecutor(1) as thread:
            disconnecting = thread.submit(manager.disconnect_all)
            # None of them ends before the end of all has begun.
            for channel in channels:
                channel.wait_until_closing()
            assert not disconnecting.done()
            for channel in channels:
                channel.let_close()
            disconnecting.result(PATIENCE)
        assert len(channels) == 50

    def test_servers_that_are_starting_are_stopped_too(
        self, fault_server: Server, manage: Manage, tmp_path: Path
    ) -> None:
        states = [tmp_path / str(number) for number in range(3)]
        manager = manage({state.name: fault_server(faults=HUNG, state_file=state) for state in states})
        manager.load_from_config(timeout=0.0)
        assert wait_until(lambda: all(read_state(state).starts == 1 for state in states))
        manager.disconnect_all()
        assert not any(is_alive(pid) for state in states for pid in read_state(state).pids)
        assert manager.status() == []

    def test_at_any_moment_of_a_start_nothing_is_left(self, fault_server: Server, manage: Manage) -> None:
        configs = {"hung": fault_server(faults=HUNG), "good": fault_server(), "nowhere": NOWHERE}
        chance = random.Random(1)
        for _ in range(10):
            manager = manage(configs)
            manager.subscribe(Recorder())
            manager.load_from_config(timeout=0.0)
            threading.Event().wait(chance.uniform(0.0, 0.1))
            manager.disconnect_all()
            assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("mcp-hung")]
            assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("mcp-good")]
            assert not [thread.name for thread in threading.enumerate() if "callbacks" in thread.name]
            assert manager.status() == []

    def test_whoever_is_adding_a_server_meanwhile_is_told(
        self, fault_server: Server, manager: Manager, tmp_path: Path, config_file: Path
    ) -> None:
        config = fault_server(faults=HUNG, state_file=tmp_path / "state")
        with ThreadPoolExecutor(1) as threads:
            added = threads.submit(manager.add_server, "hung", config)
            assert wait_until(lambda: read_state(tmp_path / "state").starts == 1)
            manager.disconnect_all()
            with pytest.raises(RuntimeError, match="disconnected meanwhile"):
                added.result(PATIENCE)
        assert saved(config_file) == {}

    def test_a_server_that_is_starting_can_be_removed(
        self, fault_server: Server, manage: Manage, tmp_path: Path, config_file: Path
    ) -> None:
        manager = manage({"hung": fault_server(faults=HUNG, state_file=tmp_path / "state")})
        manager.load_from_config(timeout=0.0)
        assert wait_until(lambda: read_state(tmp_path / "state").starts == 1)
        manager.remove_server("hung")
        assert not any(map(is_alive, read_state(tmp_path / "state").pids))
        assert manager.status() == []
        assert saved(config_file) == {}

    def test_twice_and_from_many_threads_is_harmless(self, fault_server: Server, manager: Manager) -> None:
        manager.add_server("fault", fault_server())
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: manager.disconnect_all(), range(4)))


def test_two_managers_know_nothing_of_each_other(fault_server: Server, manage: Manage) -> None:
    one, two = manage(), manage()
    heard = Recorder()
    one.subscribe(heard)
    one.add_server("fault", fault_server())
    two.config.remove_server("fault")
    two.add_server("fault", fault_server())
    pids = {text(manager.call_tool("mcp_fault_pid")) for manager in (one, two)}
    assert len(pids) == 2
    two.disconnect_all()
    assert text(one.call_tool("mcp_fault_echo", {"text": "alive"})) == "alive"
    assert not heard.of(StateChanged, new=ServerState.CLOSED)


def test_32_threads_and_random_kills_every_call_ends_and_none_is_doubled(
    fault_server: Server, manager: Manager, tmp_path: Path
) -> None:
    servers = ("one", "two")
    for name in servers:
        manager.add_server(name, {**fault_server(state_file=tmp_path / name), "restart": QUICK})
    outcomes: dict[str, tuple[str, ToolResult]] = {}
    calling = threading.Event()
    calling.set()

    def call(thread: int) -> None:
        chance = random.Random(thread)
        for number in range(10):
            tag, server = f"{thread}-{number}", chance.choice(servers)
            outcomes[tag] = server, manager.call_tool(f"mcp_{server}_echo", {"text": tag}, timeout=30.0)

    def kill() -> int:
        chance, kills = random.Random(0), 0
        while calling.is_set():
            client = manager.get_client(chance.choice(servers))
            pid = None if client is None else client.status.pid
            if pid is not None and is_alive(pid):
                os.kill(pid, signal.SIGKILL)
                kills += 1
            threading.Event().wait(chance.uniform(0.0, 0.1))
        return kills

    with ThreadPoolExecutor(33) as threads:
        killing = threads.submit(kill)
        list(threads.map(call, range(32)))
        calling.clear()
        assert killing.result(PATIENCE) > 0
    assert len(outcomes) == 32 * 10
    executed = {name: Counter(one.arguments["text"] for one in read_state(tmp_path / name).calls) for name in servers}
    for tag, (server, outcome) in outcomes.items():
        assert executed[server][tag] <= 1
        if not outcome.is_error:
            assert text(outcome) == tag
            assert executed[server][tag] == 1
        else:
            assert outcome["error_type"] == "server_crashed"
            assert outcome["delivery"] == "unknown"
    assert not all(outcome.is_error for _, outcome in outcomes.values())
    assert all(status.in_flight == status.queued == 0 for status in manager.status())
