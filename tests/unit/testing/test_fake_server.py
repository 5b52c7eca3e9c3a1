"""Servers in memory, as a test uses them: through a manager or a client, under the ordinary supervisor."""

import copy
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gaia.agents.base import Agent
from gaia.agents.base.mcp_context import MCPContext
from gaia.mcp import (
    CallTimeout,
    ConfigError,
    Event,
    MCPClient,
    MCPClientManager,
    MCPClientMixin,
    MCPConfig,
    MCPTransport,
    ServerCrashed,
    ServerLog,
    ServerState,
    ToolsChanged,
)
from gaia.mcp.doctor import diagnose
from gaia.testing import FakeClock, FakeServer, FakeTool
from tests.waiting import PATIENCE, wait_until

REVISIONS = ["2025-11-25", "2025-03-26", "2026-07-28"]
READ_ONLY = {"readOnlyHint": True}


def now(zone: str = "UTC") -> str:
    """Tell the time."""
    return f"12:00 {zone}"


@pytest.fixture(params=REVISIONS[::2])
def protocol(request: pytest.FixtureRequest) -> str:
    """A revision of each era."""
    revision: str = request.param
    return revision


@pytest.fixture
def server(protocol: str) -> FakeServer:
    return FakeServer("clock", [now, FakeTool(now, name="look", annotations=READ_ONLY)], protocol=protocol)


@contextmanager
def managed(server: FakeServer, **options: Any) -> Iterator[MCPClientManager]:
    """A manager that knows the server as ``time``."""
    with MCPClientManager({"time": server}, **options) as manager:
        yield manager


def client_of(manager: MCPClientManager) -> MCPClient:
    client = manager.get_client("time")
    assert client is not None
    return client


def text(result: dict[str, Any]) -> str:
    content: str = result["content"][0]["text"]
    return content


class Events:
    """The events of a manager, which a test can wait for."""

    def __init__(self, manager: MCPClientManager) -> None:
        self._events: list[Event] = []
        manager.subscribe(self._events.append)

    def wait_for(self, matches: Callable[[Event], bool], meanwhile: Callable[[], object] = lambda: None) -> Event:
        def has_come() -> bool:
            meanwhile()
            return any(matches(event) for event in list(self._events))

        assert wait_until(has_come), self._events
        return next(event for event in self._events if matches(event))


class TestAsAnEntry:
    @pytest.mark.parametrize("revision", REVISIONS)
    def test_a_manager_takes_it_as_it_takes_other_entries(self, revision: str) -> None:
        server = FakeServer("clock", [now], instructions="Ask for the time.", protocol=revision)
        with managed(server) as manager:
            assert [tool.namespaced_name for tool in manager.list_tools()] == ["mcp_time_now"]
            assert text(manager.call_tool("mcp_time_now", {"zone": "CET"})) == "12:00 CET"
            client = client_of(manager)
            assert (client.protocol_version, client.instructions) == (revision, "Ask for the time.")
            assert client.server_info["name"] == "clock"

    def test_a_client_takes_it(self, server: FakeServer) -> None:
        with MCPClient.from_config("time", server) as client:
            assert text(client.call_tool("now")) == "12:00 UTC"

    def test_further_keys_stand_beside_it(self, server: FakeServer) -> None:
        with MCPClientManager({"time": {**server, "disabledTools": ["look"], "timeout": 7}}) as manager:
            assert [tool.name for tool in manager.list_tools()] == ["now"]
            assert client_of(manager).transport.timeout == 7  # type: ignore[attr-defined]

    def test_it_can_be_added_and_removed(self, server: FakeServer) -> None:
        with MCPClientManager({}) as manager:
            manager.add_server("time", server)
            assert text(manager.call_tool("mcp_time_now")) == "12:00 UTC"
            manager.remove_server("time")
            assert manager.list_tools() == []

    def test_an_agent_takes_it(self, server: FakeServer) -> None:
        class Clerk(MCPClientMixin, Agent):
            def _get_system_prompt(self) -> str:
                return "You tell the time."

        agent = Clerk(mcp_servers={"time": server}, silent_mode=True)
        try:
            result = agent._execute_tool("mcp_time_now", {"zone": "CET"})
            assert text(result["data"]) == "12:00 CET"
        finally:
            agent.close_mcp()

    def test_several_clients_may_use_one(self, server: FakeServer) -> None:
        with managed(server) as one, managed(server) as other:
            server.crash(tool="now")
            assert one.call_tool("mcp_time_now")["error_type"] == "server_crashed"
            assert text(other.call_tool("mcp_time_now")) == "12:00 UTC"
            assert server.starts >= 2

    def test_the_doctor_examines_it(self, server: FakeServer) -> None:
        diagnosis = diagnose("time", server)
        assert diagnosis.tools == ("now", "look")
        assert [check.name for check in diagnosis.checks if check.verdict.value == "fail"] == []

    def test_no_file_can_hold_it(self, server: FakeServer, tmp_path: Path) -> None:
        file = tmp_path / "servers.json"
        with MCPClientManager(MCPConfig(file, create=True)) as manager:
            with pytest.raises(ConfigError, match="server 'time' lives in this program, so it cannot be saved to"):
                manager.add_server("time", server)
            assert not file.exists()
            manager.add_server("time", server, save=False)
            assert text(manager.call_tool("mcp_time_now")) == "12:00 UTC"
        assert not file.exists()

    def test_it_can_be_disabled_and_enabled(self, server: FakeServer) -> None:
        config = MCPConfig.in_memory({"time": server})
        assert config.set_disabled("time", True)
        assert config.get_server("time") == {**server, "disabled": True}
        assert config.set_disabled("time", False)
        assert config.get_servers() == {"time": server}

    def test_it_equals_itself_alone(self, server: FakeServer) -> None:
        entry = {"inProcess": server}
        assert server == entry
        assert entry == server
        assert server != FakeServer("clock")
        assert dict(server) != dict(FakeServer("clock"))
        assert copy.deepcopy(entry)["inProcess"] is server
        assert len({server, FakeServer("clock")}) == 2
        assert ("command" in server, len(server), list(server)) == (False, 1, ["inProcess"])

    def test_its_transport_can_be_used_alone(self, server: FakeServer) -> None:
        transport: MCPTransport = server.transport(5)
        assert transport.connect()
        assert transport.is_connected()
        transport.disconnect()
        assert not transport.is_connected()

    @pytest.mark.parametrize("protocol", ["2024-01-01"])
    def test_a_revision_that_does_not_exist_is_refused(self, protocol: str) -> None:
        with pytest.raises(ValueError, match=r"^protocol: must be one of 2026-07-28, .*, got '2024-01-01'"):
            FakeServer("clock", protocol=protocol)

    def test_its_repr_names_its_tools(self, server: FakeServer) -> None:
        assert repr(server) == "FakeServer('clock', tools=['now', 'look'])"


class TestOffers:
    def test_calls_are_recorded(self, server: FakeServer) -> None:
        with managed(server) as manager:
            manager.call_tool("mcp_time_now", {"zone": "CET"})
            manager.call_tool("mcp_time_look")
        first, second = server.calls
        assert (first.tool, first.arguments, first.generation, first.cancelled) == ("now", {"zone": "CET"}, 1, False)
        assert second.tool == "look"

    def test_resources_and_prompts(self, protocol: str) -> None:
        def greet(name: str) -> str:
            return f"Greet {name}."

        server = FakeServer("notes", resources={"file:///a": "A"}, prompts=[greet], protocol=protocol)
        with managed(server) as manager:
            client = client_of(manager)
            assert [resource["uri"] for resource in client.list_resources()] == ["file:///a"]
            assert client.read_resource("file:///a")["contents"][0]["text"] == "A"
            assert client.list_resource_templates() == []
            assert [prompt["name"] for prompt in client.list_prompts()] == ["greet"]
            assert client.get_prompt("greet", {"name": "Bo"})["messages"][0]["content"]["text"] == "Greet Bo."

    def test_a_tool_reports_progress(self, protocol: str) -> None:
        def work(context: MCPContext) -> str:
            context.report_progress(1, 2, "half")
            context.report_progress(2, 2)
            return "done"

        reports: list[tuple[Any, ...]] = []
        with managed(FakeServer("work", [work], protocol=protocol)) as manager:
            manager.call_tool("mcp_time_work", on_progress=lambda *report: reports.append(report))
            assert text(manager.call_tool("mcp_time_work")) == "done"
        assert reports == [(1, 2, "half"), (2, 2, None)]

    def test_a_tool_sends_log_messages_of_the_level_that_is_wanted(self, protocol: str) -> None:
        def work(context: MCPContext) -> None:
            context.log("debug", "too much")
            context.log("info", {"done": True}, "worker")

        with managed(FakeServer("work", [work], protocol=protocol)) as manager:
            events = Events(manager)
            client_of(manager).set_logging_level("info")
            # In the stateless era requests carry the level, those of a moment later.
            log = events.wait_for(
                lambda event: isinstance(event, ServerLog), meanwhile=lambda: manager.call_tool("mcp_time_work")
            )
        assert isinstance(log, ServerLog)
        assert (log.level, log.logger, log.data) == ("info", "worker", {"done": True})

    def test_tools_come_and_go(self, server: FakeServer) -> None:
        def ping() -> str:
            return "pong"

        with managed(server) as manager:
            events = Events(manager)
            server.tools.add(ping)
            events.wait_for(lambda event: isinstance(event, ToolsChanged) and event.added == ("ping",))
            assert text(manager.call_tool("mcp_time_ping")) == "pong"
            server.tools.remove("ping")
            events.wait_for(lambda event: isinstance(event, ToolsChanged) and event.removed == ("ping",))
            assert manager.call_tool("mcp_time_ping")["error_type"] == "unknown_tool"

    def test_a_tool_may_ask_the_application(self, protocol: str) -> None:
        def ask(context: MCPContext) -> dict[str, Any]:
            """Ask everything that can be asked."""
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            message = {"role": "user", "content": {"type": "text", "text": "Hello"}}
            return {
                "form": context.elicit("Your name?", schema),
                "roots": context.list_roots(),
                "sample": context.sample([message], 10)["content"],
            }

        answers = {
            "on_elicitation": lambda _: {"action": "accept", "content": {"name": "Bo"}},
            "on_sampling": lambda _: {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"},
            "roots": [{"uri": "file:///project"}],
        }
        with managed(FakeServer("clock", [ask], protocol=protocol), **answers) as manager:
            result = manager.call_tool("mcp_time_ask")
        assert result["structuredContent"] == {
            "form": {"action": "accept", "content": {"name": "Bo"}},
            "roots": [{"uri": "file:///project"}],
            "sample": {"type": "text", "text": "Hi"},
        }

    def test_a_client_that_cannot_be_asked_gets_the_protocols_error(self, protocol: str) -> None:
        def ask(context: MCPContext) -> Any:
            return context.list_roots()

        with managed(FakeServer("clock", [ask], protocol=protocol)) as manager:
            result = manager.call_tool("mcp_time_ask")
        assert (result["error_type"], result["code"]) == ("jsonrpc", -32021)


class TestFaults:
    def test_a_crash_between_calls_costs_no_call(self, server: FakeServer) -> None:
        with managed(server) as manager:
            server.crash()
            assert text(manager.call_tool("mcp_time_now")) == "12:00 UTC"
            assert server.starts == 2

    def test_a_crash_during_a_call_is_told_with_its_cause(self, server: FakeServer) -> None:
        with managed(server) as manager:
            server.crash(tool="now", signal="SIGKILL", stderr="out of memory")
            result = manager.call_tool("mcp_time_now")
            assert (result["error_type"], result["delivery"]) == ("server_crashed", "unknown")
            assert "was killed by SIGKILL; it last wrote on stderr:\nout of memory" in result["error"]

    def test_a_call_that_is_safe_is_repeated_after_a_crash(self, server: FakeServer) -> None:
        with managed(server) as manager:
            server.crash(tool="look")
            assert text(manager.call_tool("mcp_time_look")) == "12:00 UTC"
        assert [call.generation for call in server.calls] == [1, 2]

    @pytest.mark.parametrize("after", [False, True])
    def test_a_crash_comes_before_the_tool_or_after_it(self, after: bool) -> None:
        sold: list[str] = []

        def sell(item: str) -> None:
            sold.append(item)

        server = FakeServer("shop", [sell])
        with managed(server) as manager:
            server.crash(tool="sell", after=after)
            assert manager.call_tool("mcp_time_sell", {"item": "hat"})["delivery"] == "unknown"
        assert sold == (["hat"] if after else [])

    def test_a_crash_may_come_at_the_nth_call_and_again(self, server: FakeServer) -> None:
        with MCPClientManager({"time": {**server, "restart": {"initialDelay": 0.01}}}) as manager:
            server.crash(tool="now", nth=2, times=2)
            results = [manager.call_tool("mcp_time_now") for _ in range(4)]
        assert [result.get("error_type") for result in results] == [None, "server_crashed", "server_crashed", None]

    def test_a_lost_connection_has_no_exit_code(self, server: FakeServer) -> None:
        with MCPClientManager({"time": {**server, "restart": {"initialDelay": 0.01}}}) as manager:
            server.disconnect(nth=1)
            result = manager.call_tool("mcp_time_now")
            assert result["error"].endswith("the server closed the connection")
            manager.require("time", timeout=PATIENCE)
            server.disconnect()
            assert text(manager.call_tool("mcp_time_now")) == "12:00 UTC"

    def test_a_call_may_never_be_answered(self, server: FakeServer) -> None:
        with managed(server) as manager:
            server.hang(tool="now")
            result = manager.call_tool("mcp_time_now", timeout=0.05)
            assert (result["error_type"], result["delivery"]) == ("timeout", "unknown")
            assert wait_until(lambda: server.calls[0].cancelled)
            assert text(manager.call_tool("mcp_time_now")) == "12:00 UTC"
            assert server.starts == 1

    def test_calls_that_hang_are_answered_when_faults_are_cleared(self, server: FakeServer) -> None:
        with managed(server) as manager:
            server.hang()
            future = manager.submit_tool("mcp_time_now")
            assert server.calls == []
            server.clear_faults()
            assert text(future.result(PATIENCE)) == "12:00 UTC"
            server.hang(tool="now")
            future = manager.submit_tool("mcp_time_now")
            server.wait_for_call("now", 2)
            server.clear_faults()
            assert text(future.result(PATIENCE)) == "12:00 UTC"

    def test_junk_breaks_nothing_and_is_counted(self, server: FakeServer) -> None:
        with managed(server) as manager:
            server.junk()
            server.junk(b'{"jsonrpc": "2.0", "id": 99', tool="now")
            assert text(manager.call_tool("mcp_time_now")) == "12:00 UTC"
            assert manager.status()[0].noise_lines == 2

    def test_several_faults_at_one_call_come_one_after_the_other(self, server: FakeServer) -> None:
        with managed(server) as manager:
            server.delay(0.01, tool="now")
            server.junk(tool="now")
            server.crash(tool="now")
            assert manager.call_tool("mcp_time_now")["error_type"] == "server_crashed"
            assert manager.status()[0].noise_lines == 1

    def test_starts_may_fail(self, server: FakeServer) -> None:
        server.fail_starts(reason="no such file")
        with MCPClientManager({"time": {**server, "restart": {"initialDelay": 0.01}}}) as manager:
            assert "no such file" in str(manager.status()[0].last_error)
            manager.require("time", timeout=PATIENCE)
            assert text(manager.call_tool("mcp_time_now")) == "12:00 UTC"

    def test_cleared_faults_do_not_happen(self, server: FakeServer) -> None:
        server.fail_starts(5)
        server.crash(tool="now")
        server.clear_faults()
        with managed(server) as manager:
            assert text(manager.call_tool("mcp_time_now")) == "12:00 UTC"
        assert server.starts == 1

    def test_at_once_needs_a_server_that_runs(self, server: FakeServer) -> None:
        for fault in (server.crash, server.hang, server.junk, server.disconnect):
            with pytest.raises(RuntimeError, match="the fake server 'clock' is not running"):
                fault()

    @pytest.mark.parametrize("seconds", [-1, 0, float("nan")])
    def test_a_delay_is_a_duration(self, server: FakeServer, seconds: float) -> None:
        with pytest.raises(ValueError, match=r"^seconds: "):
            server.delay(seconds)

    def test_a_standby_takes_over(self, server: FakeServer) -> None:
        with MCPClientManager({"time": {**server, "standby": True}}) as manager:
            assert wait_until(lambda: server.starts == 2)
            status = manager.status

            def stands_by() -> bool:
                standby = status()[0].standby
                return standby is not None and standby.state == "ready"

            assert wait_until(stands_by), status()
            server.crash()
            assert text(manager.call_tool("mcp_time_now")) == "12:00 UTC"
            assert server.calls[0].generation == 2


class TestTime:
    """Deadlines, backoff and health checks, without waiting for them."""

    @pytest.fixture
    def server(self, protocol: str, fake_clock: FakeClock) -> FakeServer:
        return FakeServer("clock", [now], protocol=protocol, clock=fake_clock)

    def test_a_deadline_passes(self, server: FakeServer, fake_clock: FakeClock) -> None:
        with managed(server) as manager:
            server.hang(tool="now")
            future = manager.submit_tool("mcp_time_now", timeout=3000)
            server.wait_for_call("now")
            fake_clock.advance(3000)
            with pytest.raises(CallTimeout):
                future.result(PATIENCE)

    def test_a_delay_passes(self, server: FakeServer, fake_clock: FakeClock) -> None:
        with managed(server) as manager:
            server.delay(20)
            future = manager.submit_tool("mcp_time_now", timeout=30)
            fake_clock.wait_for_waiter(fake_clock.monotonic() + 20)
            fake_clock.advance(20)
            assert text(future.result(PATIENCE)) == "12:00 UTC"

    def test_a_backoff_passes(self, server: FakeServer, fake_clock: FakeClock) -> None:
        before = fake_clock.monotonic()
        with managed(server) as manager:
            server.fail_starts(3)
            server.crash()
            fake_clock.advance_until(lambda: server.starts == 5)
            assert text(manager.call_tool("mcp_time_now")) == "12:00 UTC"
        assert fake_clock.monotonic() - before > 2

    def test_a_server_that_hangs_is_found_and_replaced(self, server: FakeServer, fake_clock: FakeClock) -> None:
        with managed(server) as manager:
            server.hang()
            fake_clock.advance_until(lambda: server.starts == 2)
            assert wait_until(lambda: manager.status()[0].state is ServerState.READY)
            assert text(manager.call_tool("mcp_time_now")) == "12:00 UTC"

    def test_a_program_that_waits_runs_beside_the_test(self, server: FakeServer, fake_clock: FakeClock) -> None:
        server.hang(tool="now")
        with managed(server) as manager:
            result: Future[dict[str, Any]] = Future()
            thread = threading.Thread(target=lambda: result.set_result(manager.call_tool("mcp_time_now")))
            thread.start()
            fake_clock.advance_until(result.done)
            thread.join()
            assert result.result()["error_type"] == "timeout"

    def test_no_time_passes_while_a_tool_runs(self, fake_clock: FakeClock) -> None:
        may_go_on = threading.Event()

        def think() -> str:
            may_go_on.wait(PATIENCE)
            return "thought"

        looks = 0
        with managed(FakeServer("mind", [think], clock=fake_clock)) as manager:
            future = manager.submit_tool("mcp_time_think", timeout=1)

            def is_done() -> bool:
                nonlocal looks
                looks += 1
                if looks > 3:
                    may_go_on.set()
                return future.done()

            fake_clock.advance_until(is_done)
            assert text(future.result()) == "thought"

    def test_a_crash_ends_a_delay(self, server: FakeServer) -> None:
        with managed(server) as manager:
            server.delay(20, tool="now")
            future = manager.submit_tool("mcp_time_now")
            server.wait_for_call()
            server.crash()
            with pytest.raises(ServerCrashed):
                future.result(PATIENCE)
