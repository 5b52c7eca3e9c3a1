"""Servers that are down when a program starts: they come back by themselves, and until then calls are told why.

And the order in which servers and tools are listed, which does not depend on which server is ready first.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gaia.mcp.aio import AsyncMCPClientManager
from gaia.mcp.client import MCPClient, MCPClientManager
from gaia.mcp.client.config import MCPConfig
from gaia.mcp.client.tool_calls import ToolCalls
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import ServerUnavailable, StartFailed
from gaia.mcp.mixin import MCPClientMixin
from gaia.mcp.supervision.context import Listing
from gaia.mcp.supervision.events import ServerState, ToolsChanged
from gaia.runtime import log
from gaia.testing import FakeClock, FakeServer
from tests.fake_transport import FakeTransport, handshake_answers
from tests.recorder import Recorder
from tests.servers.answers import text
from tests.servers.http_server import ScriptedServer
from tests.servers.processes import is_alive
from tests.servers.state_file import read_state
from tests.silent_agent import SilentAgent
from tests.waiting import PATIENCE, wait_until

Json = dict[str, Any]

STEADY = {"jitter": 0.0}


class Fakes:
    """Managers whose servers are lists of messages, with a clock of the test."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.transports: dict[str, FakeTransport] = {}
        """Of the last client of each server."""
        self.down: dict[str, int] = {}
        """How often the next starts of a server fail."""
        self.prepare: Callable[[str, FakeTransport], object] = lambda _name, _transport: None
        self.managers: list[MCPClientManager] = []

    def transport(self, server: ServerConfig, *_: Any) -> FakeTransport:
        made = self.transports[server.name] = FakeTransport()
        made.answers["server/discover"] = lambda _: {}
        made.answers["tools/call"] = lambda request: {"content": [{"type": "text", "text": request["params"]["name"]}]}
        made.tools = [{"name": f"{letter}_of_{server.name}"} for letter in "zam"]
        made.start_errors.extend(StartFailed(f"{server.name} is down") for _ in range(self.down.get(server.name, 0)))
        self.prepare(server.name, made)
        return made

    def manage(self, *names: str, start_timeout: float | None = None, **extra: Json) -> MCPClientManager:
        """A manager over servers of these names, in this order."""
        entries = {name: {"command": name, "restart": STEADY, **extra.get(name, {})} for name in names}
        manager = MCPClientManager(MCPConfig.in_memory(entries), start_timeout=start_timeout)
        manager._engine.factory.services = msgspec.structs.replace(manager._engine.factory.services, clock=self.clock)
        self.managers.append(manager)
        return manager

    def loaded(self, *names: str, down: dict[str, int] | None = None, **extra: Json) -> MCPClientManager:
        """The same, with its configuration loaded; so many of the next starts of servers fail that are `down`."""
        self.down |= down or {}
        manager = self.manage(*names, **extra)
        manager.load_from_config()
        return manager

    def pass_time(self, seconds: float) -> None:
        self.clock.wait_for_waiter(self.clock.monotonic() + seconds)
        self.clock.advance(seconds)


@pytest.fixture
def fakes(fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fakes]:
    fakes = Fakes(fake_clock)
    monkeypatch.setattr("gaia.mcp.client.mcp_client.transport_for", fakes.transport)
    yield fakes
    for manager in fakes.managers:
        manager.disconnect_all()


def state_of(manager: MCPClientManager, name: str) -> ServerState:
    return next(status.state for status in manager.status() if status.name == name)


def tool_names(manager: MCPClientManager) -> list[str]:
    return [str(tool.namespaced_name) for tool in manager.list_tools()]


def supervised(*names: str) -> bool:
    """Whether these servers, and no others, have a supervisor, at the latest in a moment."""

    def supervisors() -> list[str]:
        return sorted(thread.name for thread in threading.enumerate() if thread.name.endswith("-supervisor"))

    return wait_until(lambda: supervisors() == [f"mcp-{name}-supervisor" for name in names])


class TestComingBack:
    def test_a_server_that_is_down_joins_when_it_is_up(self, fakes: Fakes) -> None:
        fakes.down["late"] = 2
        manager = fakes.manage("late", "early")
        recorder = Recorder()
        manager.subscribe(recorder)
        manager.load_from_config()
        assert manager.list_servers() == ["early"]
        assert manager.get_client("late") is None
        fakes.pass_time(0.5)
        fakes.pass_time(1.0)
        assert manager.wait_ready(PATIENCE)
        assert manager.list_servers() == ["late", "early"]
        assert recorder.wait_for(ToolsChanged, server="late").added == ("a_of_late", "m_of_late", "z_of_late")
        assert manager.call_tool("mcp_late_a_of_late")["content"] == [{"type": "text", "text": "a_of_late"}]

    def test_until_then_calls_are_told_why_and_when_it_is_tried_next(self, fakes: Fakes) -> None:
        manager = fakes.loaded("late", down={"late": 9})
        answer = manager.call_tool("mcp_late_anything")
        assert answer["error"] == "server 'late' is unavailable: late is down; the next attempt is in 1 s"
        assert (answer["error_type"], answer["delivery"]) == ("server_unavailable", "not_sent")
        (status,) = manager.status()
        assert (status.state, status.last_error, status.retry_in) == (ServerState.FAILED, "late is down", 0.5)

    def test_a_call_waits_for_a_start_under_way(self, fakes: Fakes) -> None:
        held: list[tuple[Any, Json]] = []

        def hold(_: str, transport: FakeTransport) -> None:
            def remember(request: Json) -> None:
                held.append((transport, request))

            transport.answers["tools/list"] = remember

        fakes.prepare = hold
        manager = fakes.manage("slow")
        manager.load_from_config(timeout=0)
        assert wait_until(lambda: bool(held))
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(manager.call_tool, "mcp_slow_a_of_slow")
            assert wait_until(lambda: manager.status()[0].queued == 1)
            transport, request = held[0]
            transport.channel().answer(request, {"tools": transport.tools})
            assert call.result(PATIENCE)["content"][0]["text"] == "a_of_slow"

    def test_filters_hold_for_calls_to_a_server_that_is_down(self, fakes: Fakes) -> None:
        manager = fakes.loaded("late", down={"late": 9}, late={"disabledTools": ["rm*"]})
        assert manager.call_tool("mcp_late_rm_all")["error_type"] == "denied"
        assert manager.call_tool("mcp_other_tool")["error_type"] == "unknown_tool"

    def test_a_server_whose_circuit_opens_keeps_its_tools(self, fakes: Fakes) -> None:
        manager = fakes.loaded("weak", weak={"restart": {"maxRestarts": 0}})
        before = tool_names(manager)
        fakes.transports["weak"].channel().end(exit_code=1)
        assert wait_until(lambda: state_of(manager, "weak") is ServerState.FAILED)
        assert tool_names(manager) == before
        answer = manager.call_tool(before[0])
        assert (answer["error_type"], "next attempt is in 60 s" in answer["error"]) == ("server_unavailable", True)

    def test_a_server_that_the_application_disconnected_is_unavailable_not_unknown(self, fakes: Fakes) -> None:
        manager = fakes.loaded("one")
        client = manager.get_client("one")
        assert client is not None
        client.disconnect()
        assert manager.call_tool("mcp_one_a_of_one")["error_type"] == "server_unavailable"

    def test_loading_again_tries_it_at_once_and_leaves_one_supervisor(self, fakes: Fakes) -> None:
        manager = fakes.loaded("late", down={"late": 1})
        assert manager.list_servers() == []
        fakes.down["late"] = 0
        manager.load_from_config()
        assert manager.list_servers() == ["late"]
        assert supervised("late")

    def test_adding_a_server_takes_the_place_of_one_that_is_down(self, fakes: Fakes) -> None:
        manager = fakes.loaded("late", "other", down={"late": 1})
        fakes.down["late"] = 0
        manager.add_server("late", {"command": "better"})
        assert manager.list_servers() == ["late", "other"]
        assert supervised("late", "other")

    def test_a_configuration_that_cannot_be_used_is_not_tried_again(self, fakes: Fakes) -> None:
        manager = fakes.loaded("broken", broken={"args": "no list"})
        (status,) = manager.status()
        assert (status.state, status.retry_in) == (ServerState.FAILED, None)
        assert supervised()
        assert "args" in manager.call_tool("mcp_broken_x")["error"]

    def test_a_program_that_wants_one_attempt_says_so(self, fakes: Fakes) -> None:
        fakes.down["late"] = 1
        manager = fakes.manage("late")
        manager.load_from_config(keep_trying=False)
        assert supervised()
        assert manager.status()[0].retry_in is None


class TestWhatIsLeft:
    def test_adding_a_server_that_is_down_raises_and_leaves_only_its_status(self, fakes: Fakes) -> None:
        fakes.down["late"] = 1
        manager = fakes.manage()
        with pytest.raises(RuntimeError, match="Failed to connect to server 'late': late is down"):
            manager.add_server("late", {"command": "late"})
        assert supervised()
        assert manager.config.get_servers() == {}
        assert [(status.name, status.state, status.retry_in) for status in manager.status()] == [
            ("late", ServerState.FAILED, None)
        ]
        manager.remove_server("late")
        assert manager.status() == []
        assert manager.call_tool("mcp_late_x")["error_type"] == "unknown_tool"

    @pytest.mark.parametrize(
        "end", [lambda manager: manager.disconnect_all(), lambda manager: manager.remove_server("late")]
    )
    def test_what_ends_a_server_ends_its_attempts(
        self, fakes: Fakes, end: Callable[[MCPClientManager], object]
    ) -> None:
        manager = fakes.loaded("late", down={"late": 1})
        end(manager)
        assert supervised()
        fakes.clock.advance(1000.0)
        assert fakes.transports["late"].starts == 0
        assert manager.status() == []

    def test_an_attempt_under_way_is_ended_too(self, fakes: Fakes) -> None:
        fakes.down["late"] = 1
        fakes.prepare = lambda _, transport: transport.answers.pop("initialize")
        manager = fakes.loaded("late", late={"protocol": "handshake"})
        fakes.pass_time(0.5)
        fakes.transports["late"].channel().wait_for("initialize")
        manager.disconnect_all()
        assert supervised()


class TestTheLog:
    def test_one_failure_is_one_event(self, fakes: Fakes, caplog: pytest.LogCaptureFixture) -> None:
        fakes.loaded("late", down={"late": 3})
        fakes.pass_time(0.5)
        fakes.pass_time(1.0)
        fakes.clock.wait_for_waiter(fakes.clock.monotonic() + 2.0)
        log.flush()
        assert [record.getMessage().split()[0] for record in caplog.records] == ["server_failed"]

    def test_so_it_is_when_a_server_is_added(self, fakes: Fakes, caplog: pytest.LogCaptureFixture) -> None:
        fakes.down["late"] = 1
        with pytest.raises(RuntimeError):
            fakes.manage().add_server("late", {"command": "late"})
        log.flush()
        assert [record.getMessage().split()[0] for record in caplog.records] == ["server_failed"]


class TestWaiting:
    def test_it_is_true_when_all_are_ready(self, fakes: Fakes) -> None:
        manager = fakes.manage("one", "two")
        manager.load_from_config(timeout=0)
        assert manager.wait_ready()
        assert manager.list_servers() == ["one", "two"]
        manager.require("two", "one")
        manager.require()

    def test_servers_that_were_not_started_are_not_ready(self) -> None:
        manager = MCPClientManager({"time": {"command": "uvx"}, "off": {"command": "uvx", "disabled": True}})
        assert not manager.wait_ready()
        result = manager.call_tool("mcp_time_now")
        assert result["error_type"] == "server_unavailable"
        assert result.error == "server 'time' is unavailable: it was not started; call load_from_config()"
        assert manager.call_tool("mcp_other_now")["error_type"] == "unknown_tool"

    def test_without_servers_there_is_nothing_to_wait_for(self) -> None:
        assert MCPClientManager({}).wait_ready()
        assert MCPClientManager({"off": {"command": "uvx", "disabled": True}}).wait_ready()

    def test_it_waits_for_a_server_that_is_tried_again(self, fakes: Fakes) -> None:
        manager = fakes.loaded("late", down={"late": 1})
        assert not manager.wait_ready(0)
        with ThreadPoolExecutor(2) as pool:
            waiting = pool.submit(manager.wait_ready, PATIENCE)
            required = pool.submit(manager.require, "late", timeout=PATIENCE)
            fakes.pass_time(0.5)
            assert waiting.result(PATIENCE)
            assert required.result(PATIENCE) is None

    def test_it_does_not_wait_for_what_cannot_come(self, fakes: Fakes) -> None:
        manager = fakes.loaded("never", "fine", down={"never": 1}, never={"restart": {"restart": "never"}})
        assert not manager.wait_ready()
        with pytest.raises(ServerUnavailable, match="server 'never' is unavailable: never is down"):
            manager.require("never", "fine", timeout=None)

    def test_one_exception_names_each_missing_server_and_its_cause(self, fakes: Fakes) -> None:
        manager = fakes.loaded(
            "late", "off", "broken", "fine", down={"late": 9}, off={"disabled": True}, broken={"args": 1}
        )
        with pytest.raises(RuntimeError) as missing:
            manager.require("late", "off", "broken", "fine", "unheard-of", timeout=0)
        lines = str(missing.value).splitlines()
        assert lines[0] == "server 'late' is unavailable: late is down; the next attempt is in 1 s"
        assert lines[1] == "server 'off' is unavailable: it is disabled in the configuration"
        assert lines[2].startswith("server 'broken' is unavailable: ")
        assert "args" in lines[2]
        assert lines[3].startswith("server 'unheard-of' is unavailable: there is no server of this name")
        assert len(lines) == 4

    def test_servers_that_were_not_loaded_are_named_as_such(self, fakes: Fakes) -> None:
        with pytest.raises(RuntimeError, match=r"'one' is unavailable: it was not started; call load_from_config\(\)"):
            fakes.manage("one").require()

    def test_disconnecting_ends_the_wait(self, fakes: Fakes) -> None:
        manager = fakes.loaded("late", down={"late": 9})
        with ThreadPoolExecutor(1) as pool:
            required = pool.submit(manager.require, "late", timeout=PATIENCE)
            manager.disconnect_all()
            assert isinstance(required.exception(PATIENCE), ServerUnavailable)

    @pytest.mark.parametrize("timeout", [-1, float("nan"), "soon"])
    def test_what_is_no_duration_is_refused(self, fakes: Fakes, timeout: Any) -> None:
        manager = fakes.manage()
        for wait in (manager.wait_ready, manager.require):
            with pytest.raises(ValueError, match="timeout"):
                wait(timeout=timeout)


ORDER = ["mcp_b_z_of_b", "mcp_b_a_of_b", "mcp_b_m_of_b", "mcp_a_z_of_a", "mcp_a_a_of_a", "mcp_a_m_of_a"]
"""The configuration's order of servers, and each server's own order of tools."""


class TestOrder:
    def test_it_is_that_of_the_configuration_whichever_server_is_ready_first(self, fakes: Fakes) -> None:
        manager = fakes.loaded("b", "a", down={"b": 1})
        assert tool_names(manager) == ORDER[3:]
        assert [status.name for status in manager.status()] == ["b", "a"]
        fakes.pass_time(0.5)
        assert manager.wait_ready(PATIENCE)
        assert tool_names(manager) == ORDER
        assert manager.list_servers() == ["b", "a"]
        assert [status.name for status in manager.status()] == ["b", "a"]

    def test_an_entry_that_is_replaced_keeps_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "servers.json").write_text("{}")
        config = MCPConfig(tmp_path / "servers.json")
        for name in ("b", "a", "b"):
            config.add_server(name, {"command": name})
        assert list(config.get_servers()) == ["b", "a"]
        assert list(MCPConfig(tmp_path / "servers.json").get_servers()) == ["b", "a"]


class AgentWithServers(MCPClientMixin, SilentAgent):
    """An agent with the servers of a manager that a test gives it."""

    def __init__(self, manager: MCPClientManager) -> None:
        super().__init__(auto_load_config=False)
        self._mcp_manager = manager


@pytest.fixture
def make_agent(empty_registry: None) -> Iterator[Callable[[MCPClientManager], AgentWithServers]]:
    agents: list[AgentWithServers] = []

    def make(manager: MCPClientManager) -> AgentWithServers:
        agents.append(AgentWithServers(manager))
        return agents[-1]

    yield make
    for agent in agents:
        agent.close_mcp()


MakeAgent = Callable[[MCPClientManager], AgentWithServers]


class TestSlowStarts:
    """A server that takes long to start holds up the others for `start_timeout` at most."""

    @pytest.fixture(autouse=True)
    def hung(self, fakes: Fakes) -> None:
        def hang(name: str, transport: FakeTransport) -> None:
            if name == "hung":
                del transport.answers["initialize"]

        fakes.prepare = hang

    def answer(self, fakes: Fakes) -> None:
        """The hung server begins to answer."""
        channel = fakes.transports["hung"].channel()
        request = channel.wait_for("initialize")
        channel.answer(request, handshake_answers()["initialize"](request))

    def test_a_context_is_entered_without_it(self, fakes: Fakes, caplog: pytest.LogCaptureFixture) -> None:
        with fakes.manage("ok", "hung", start_timeout=0.05) as manager:
            assert wait_until(lambda: manager.list_servers() == ["ok"])
            assert wait_until(lambda: state_of(manager, "hung") is ServerState.STARTING)
            assert any("servers_still_starting" in line and "hung" in line for line in caplog.messages)
            assert manager.call_tool("mcp_ok_a_of_ok").text == "a_of_ok"
            self.answer(fakes)
            assert manager.wait_ready(PATIENCE)
            assert manager.call_tool("mcp_hung_a_of_hung").text == "a_of_hung"

    def test_so_is_that_of_a_task(self, fakes: Fakes) -> None:
        async def use() -> None:
            async with AsyncMCPClientManager.over(fakes.manage("ok", "hung", start_timeout=0.05)) as manager:
                await manager.require("ok", timeout=PATIENCE)
                assert wait_until(lambda: state_of(manager.sync, "hung") is ServerState.STARTING)
                self.answer(fakes)
                assert await manager.wait_ready(PATIENCE)

        asyncio.run(use())

    def test_an_agent_gets_its_tools_later(self, fakes: Fakes, make_agent: MakeAgent) -> None:
        agent = make_agent(fakes.manage("ok", "hung", start_timeout=0.05))
        agent.load_mcp_servers_from_config()
        assert state_of(agent._mcp_manager, "hung") is ServerState.STARTING
        agent.require_mcp_servers("ok", timeout=PATIENCE)
        assert "mcp_ok_a_of_ok" in agent._tools_registry
        assert "mcp_hung_a_of_hung" not in agent._tools_registry
        self.answer(fakes)
        assert wait_until(lambda: "mcp_hung_a_of_hung" in agent._tools_registry)

    def test_the_agent_says_how_long_it_waits(self, fakes: Fakes) -> None:
        class Waiting(MCPClientMixin): ...

        entries = {"ok": {"command": "ok"}, "hung": {"command": "hung"}}
        agent = Waiting(mcp_servers=entries, start_timeout=0.05)
        assert agent._mcp_manager.start_timeout == 0.05
        assert state_of(agent._mcp_manager, "hung") is ServerState.STARTING
        agent.close_mcp()
        assert Waiting()._mcp_manager.start_timeout == 10.0
        with pytest.raises(ValueError, match="start_timeout: must be a number of seconds"):
            Waiting(start_timeout=-1.0)

    @pytest.mark.parametrize("seconds", [-1.0, "5", float("nan")])
    def test_what_is_no_duration_is_refused(self, seconds: Any) -> None:
        with pytest.raises(ValueError, match="start_timeout: must be a number of seconds"):
            MCPClientManager({}, start_timeout=seconds)
        with pytest.raises(ValueError, match="start_timeout: must be a number of seconds"):
            AsyncMCPClientManager({}, start_timeout=seconds)

    def test_its_pins_are_compared_however_long_it_took(self, fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
        deadlines: list[float] = []
        manager = fakes.manage("ok", ok={"timeout": 1, "startTimeout": 40})
        begun = fakes.clock.monotonic()
        listed = ToolCalls.listed

        def noted(calls: ToolCalls, definitions: list[Any], listing: Listing) -> None:
            deadlines.append(listing.deadline)
            listed(calls, definitions, listing)

        monkeypatch.setattr(ToolCalls, "listed", noted)
        manager.load_from_config()
        assert deadlines == [begun + 40.0]


class TestAgents:
    def test_the_model_is_told_that_a_server_is_down_and_not_that_its_tool_is_unknown(
        self, fakes: Fakes, make_agent: MakeAgent
    ) -> None:
        fakes.down["b"] = 9
        agent = make_agent(fakes.manage("b", "a"))
        assert agent.load_mcp_servers_from_config() == 1
        answer = agent._execute_tool("mcp_b_z_of_b", {})
        unavailable = "server 'b' is unavailable: b is down; the next attempt is in 1 s"
        assert answer == {"status": "error", "error": unavailable}
        assert "Unknown tool" in agent._execute_tool("mcp_a_no_such_tool", {})["error"]

    def test_its_tools_come_with_it_in_the_place_of_the_configuration(
        self, fakes: Fakes, make_agent: MakeAgent
    ) -> None:
        fakes.down["b"] = 1
        agent = make_agent(fakes.manage("b", "a"))
        agent.load_mcp_servers_from_config()
        assert list(agent._tools_registry) == ORDER[3:]
        with ThreadPoolExecutor(1) as pool:
            required = pool.submit(agent.require_mcp_servers, "b", timeout=PATIENCE)
            fakes.pass_time(0.5)
            required.result(PATIENCE)
        assert list(agent._tools_registry) == ORDER
        prompt = agent.system_prompt
        assert sorted(ORDER, key=prompt.index) == ORDER
        assert agent._execute_tool("mcp_b_z_of_b", {})["status"] == "success"

    def test_the_order_stays_when_tools_change(self, fakes: Fakes, make_agent: MakeAgent) -> None:
        agent = make_agent(fakes.manage("b", "a"))
        agent.load_mcp_servers_from_config()
        transport = fakes.transports["b"]
        transport.tools.insert(1, {"name": "new"})
        transport.channel().notify("notifications/tools/list_changed", {})
        assert wait_until(lambda: "mcp_b_new" in agent._tools_registry)
        assert list(agent._tools_registry) == [ORDER[0], "mcp_b_new", *ORDER[1:]]

    def test_an_agent_that_cannot_work_without_a_server_says_so(self, fakes: Fakes, make_agent: MakeAgent) -> None:
        fakes.down["b"] = 9
        agent = make_agent(fakes.manage("b", "a"))
        agent.load_mcp_servers_from_config()
        with pytest.raises(RuntimeError, match="server 'b' is unavailable"):
            agent.require_mcp_servers("b", timeout=0)


QUICK = {"initialDelay": 0.05, "maxDelay": 0.05, "jitter": 0.0, "maxRestarts": 10_000}


@pytest.mark.process
class TestRealServers:
    def test_a_program_that_is_installed_later(self, tmp_path: Path, demo_server: Json) -> None:
        program = tmp_path / "server"
        entry = {"command": str(program), "args": demo_server["args"], "restart": QUICK}
        with MCPClientManager({"late": entry}) as manager:
            refused = manager.call_tool("mcp_late_echo", {"text": "hello"})
            assert refused["error_type"] == "server_unavailable"
            assert "does not exist" in refused["error"]
            program.symlink_to(demo_server["command"])
            manager.require("late", timeout=PATIENCE)
            assert text(manager.call_tool("mcp_late_echo", {"text": "hello"})) == "hello"

    def test_a_server_over_http_that_is_started_later(self) -> None:
        server = ScriptedServer()
        with server.serving():
            url = server.url
        with MCPClientManager({"late": {"url": url, "restart": QUICK}}) as manager:
            assert manager.call_tool("mcp_late_echo", {"text": "hello"})["error_type"] == "server_unavailable"
            with server.serving(int(url.split(":")[2].split("/")[0])):
                manager.require("late", timeout=PATIENCE)
                assert text(manager.call_tool("mcp_late_echo", {"text": "hello"})) == "hello"
                manager.disconnect_all()

    def test_without_logging_configured_a_program_gets_one_line_on_standard_error(self) -> None:
        program = """
from gaia.mcp.client import MCPClientManager

with MCPClientManager({"late": {"command": "no-such-program-anywhere"}}) as manager:
    # Until after the second attempt.
    while manager.status()[0].generation < 2:
        manager.wait_ready(0.05)
"""
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        (line,) = done.stderr.splitlines()
        assert line.startswith("server_failed server='late' reason=")
        assert "no-such-program-anywhere" in line
        assert done.stdout == ""


pytestmark = pytest.mark.process


FaultServer = Callable[..., Json]


def written(tmp_path: Path, entry: Json) -> MCPConfig:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"it": entry}}))
    return MCPConfig(file)


def test_a_server_that_is_known_is_listed_and_not_started(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    server = {**fault_server(state_file=state), "lazy": True}
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
        listed = manager.list_tools()
        assert read_state(state).starts == 1, "it had to be asked"
    with MCPClientManager(written(tmp_path, server)) as manager, ThreadPoolExecutor(8) as threads:
        manager.load_from_config()
        assert manager.list_tools() == listed
        assert manager.wait_ready(PATIENCE)
        (status,) = manager.status()
        assert (status.state, status.pid, status.protocol_version) == (ServerState.EXITED, None, "2025-11-25")
        assert read_state(state).starts == 1
        results = threads.map(lambda number: manager.call_tool("mcp_it_echo", {"text": str(number)}), range(8))
        assert [text(result) for result in results] == [str(number) for number in range(8)]
        assert read_state(state).starts == 2, "concurrent first uses start it once"
        assert (manager.status()[0].state, manager.status()[0].restarts) == (ServerState.READY, 0)


def test_what_is_known_follows_the_server(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    later = {"tools": [{"name": "later"}]}
    server = {**fault_server(state_file=state, by_start={"2": later, "3": later}), "lazy": True}
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
        assert "later" not in [tool.name for tool in manager.list_tools()]
        assert not manager.call_tool("mcp_it_pid").is_error
        assert "later" in [tool.name for tool in manager.list_tools()]
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
        assert "later" in [tool.name for tool in manager.list_tools()]
        assert read_state(state).starts == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 2}', '{"tools": 3}'])
def test_a_memory_that_cannot_be_used_is_as_good_as_none(
    fault_server: FaultServer, tmp_path: Path, content: str
) -> None:
    state = tmp_path / "state"
    server = {**fault_server(state_file=state), "lazy": True}
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
    (file,) = (Path.home() / ".gaia" / "known_servers").glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(content)
    with MCPClientManager(written(tmp_path, server)) as manager:
        manager.load_from_config()
        assert read_state(state).starts == 2
        assert manager.list_tools()
    assert json.loads(file.read_text())["version"] == 1


def test_a_start_at_which_the_tools_could_not_be_listed_is_not_remembered(
    fault_server: FaultServer, tmp_path: Path
) -> None:
    broken = {"faults": [{"on": "tools/list", "error": {"code": -32603, "message": "not now"}}]}
    server = {**fault_server(by_start={"1": broken}, state_file=tmp_path / "state"), "lazy": True}
    for _ in range(2):
        with MCPClientManager(written(tmp_path, server)) as manager:
            manager.load_from_config()
            listed = manager.list_tools()
    assert listed, "nothing would start it, if it had no tools for ever"


def test_at_rest_its_tools_follow_what_is_applied() -> None:
    server = FakeServer("it", [{"name": "look"}, {"name": "push"}])
    other = FakeServer("it", [{"name": "pull"}])
    with MCPClientManager({"it": {**server, "lazy": True}}) as manager:
        manager.stop_server("it")
        assert manager.restart("it")
        assert server.starts == 1
        manager.apply({"it": {**server, "lazy": True, "disabledTools": ["push"]}})
        assert [tool.name for tool in manager.list_tools()] == ["look"]
        assert server.starts == 1
        manager.apply({"it": {**other, "lazy": True}})
        assert [tool.name for tool in manager.list_tools()] == ["pull"], "another server has to be asked"


def test_in_memory_nothing_is_written(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with MCPClientManager({"it": {**fault_server(state_file=state), "lazy": True}}) as manager:
        assert read_state(state).starts == 1
        manager.stop_server("it")
        assert manager.restart("it")
        assert read_state(state).starts == 1, "it is remembered, though"
        assert not manager.call_tool("mcp_it_pid").is_error
    assert not (Path.home() / ".gaia").exists()


def test_an_idle_server_is_stopped_until_the_next_call(
    fault_server: FaultServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = {**fault_server(state_file=tmp_path / "state"), "idleStop": 0.1}
    with MCPClientManager({"it": server}) as manager:
        first = text(manager.call_tool("mcp_it_pid"))
        assert wait_until(lambda: manager.status()[0].state is ServerState.EXITED)
        assert wait_until(lambda: "server_idle" in caplog.text)
        assert wait_until(lambda: not is_alive(int(first)))
        assert manager.wait_ready(PATIENCE)
        assert text(manager.call_tool("mcp_it_pid")) != first


def test_no_call_fails_while_a_server_is_stopped_again_and_again(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    server = {**fault_server(state_file=state), "idleStop": 0.02, "protocol": "handshake"}
    with MCPClientManager({"it": server}) as manager, ThreadPoolExecutor(2) as threads:

        def call(thread: int) -> list[str]:
            made: list[str] = []
            # Each waits at times until the server is stopped, so that calls come at that very moment, too.
            while read_state(state).starts < 8:
                made.append(f"{thread}-{len(made)}")
                assert text(manager.call_tool("mcp_it_echo", {"text": made[-1]}, timeout=PATIENCE)) == made[-1]
                if len(made) % 3 == thread:
                    wait_until(lambda: manager.status()[0].state is not ServerState.READY)
            return made

        made = [one for tags in threads.map(call, range(2)) for one in tags]
    assert Counter(call.arguments["text"] for call in read_state(state).calls) == Counter(made)


def test_a_call_waits_for_the_start_no_longer_than_it_may(fault_server: FaultServer, tmp_path: Path) -> None:
    state = tmp_path / "state"
    slow = {"2": {"start_delay": 300.0}}
    server = {**fault_server(state_file=state, by_start=slow), "lazy": True, "timeout": 300.0}
    with MCPClientManager({"it": server}) as manager:
        manager.stop_server("it")
        assert manager.restart("it")
        result = manager.call_tool("mcp_it_pid", timeout=0.3)
        assert (result["error_type"], result["delivery"]) == ("timeout", "not_sent")


def test_one_that_cannot_be_started_any_more_is_tried_again_when_it_is_needed(
    fault_server: FaultServer, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    server = {
        **fault_server(state_file=state, by_start={"2": {"exit_at_start": {"code": 3}}}),
        "lazy": True,
        "protocol": "handshake",
        "restart": {"initialDelay": 0.05},
    }
    with MCPClientManager({"it": server}) as manager:
        manager.stop_server("it")
        assert manager.restart("it")
        failed = manager.call_tool("mcp_it_pid")
        assert failed["error_type"] == "server_unavailable"
        assert "code 3" in failed["error"]
        assert wait_until(lambda: manager.status()[0].state is ServerState.EXITED)
        assert read_state(state).starts == 2
        assert not manager.call_tool("mcp_it_pid").is_error


def test_a_client_by_itself_rests_too(fault_server: FaultServer) -> None:
    with MCPClient.from_config("it", {**fault_server(), "lazy": True, "idleStop": 0.1}) as client:
        assert wait_until(lambda: client.state is ServerState.EXITED)
        assert not client.call_tool("echo", {"text": "x"}).is_error
