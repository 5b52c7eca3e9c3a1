"""Servers of both eras as processes: finding out which, restarting, and what is written to them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.supervision.events import Restarted, ToolsChanged
from tests.recorder import Recorder
from tests.servers.answers import received, text
from tests.servers.state_file import read_state

Json = dict[str, Any]
Server = Callable[..., Json]
Connect = Callable[..., MCPClient]

QUICK = {"initialDelay": 0.01, "maxDelay": 0.01}
META = "io.modelcontextprotocol/"
DIES_OF_THE_PROBE = [{"on": "server/discover", "crash": "before_answer"}]


def methods(client: MCPClient) -> list[str]:
    return [message["method"] for message in received(client)]


class TestFindingOut:
    def test_a_stateless_server_is_never_greeted_and_told_everything_in_each_request(
        self, fault_server: Server, connect: Connect
    ) -> None:
        client = connect(fault_server(era="stateless", instructions="Be gentle."))
        assert client.protocol_version == "2026-07-28"
        assert client.server_info == {"name": "fault-server", "version": "1"}
        assert client.instructions == "Be gentle."
        assert text(client.call_tool("echo", {"text": "hi"})) == "hi"
        requests = [message for message in received(client) if "id" in message]
        assert [request["method"] for request in requests][:2] == ["server/discover", "tools/list"]
        for request in requests:
            meta = request["params"]["_meta"]
            assert meta[f"{META}protocolVersion"] == "2026-07-28"
            assert meta[f"{META}clientCapabilities"] == {}
            assert meta[f"{META}clientInfo"]["name"] == "GAIA MCP Client"

    def test_a_server_of_both_eras_is_spoken_to_in_the_newer_one(self, fault_server: Server, connect: Connect) -> None:
        assert connect(fault_server(era="both")).protocol_version == "2026-07-28"

    @pytest.mark.parametrize(
        ("protocol", "version"),
        [
            ("handshake", "2025-11-25"),
            ("legacy", "2025-11-25"),
            ("2025-06-18", "2025-06-18"),
            ("stateless", "2026-07-28"),
            ("modern", "2026-07-28"),
        ],
    )
    def test_unless_the_configuration_insists(
        self, fault_server: Server, connect: Connect, protocol: str, version: str
    ) -> None:
        assert connect({**fault_server(era="both"), "protocol": protocol}).protocol_version == version

    def test_a_server_that_exits_on_the_probe_is_started_again_and_greeted(
        self, fault_server: Server, connect: Connect, tmp_path: Path
    ) -> None:
        client = connect(fault_server(faults=DIES_OF_THE_PROBE, state_file=tmp_path / "state"))
        assert client.protocol_version == "2025-11-25"
        assert text(client.call_tool("echo", {"text": "hi"})) == "hi"
        assert methods(client)[0] == "initialize"
        assert read_state(tmp_path / "state").starts == 2
        assert client.status.restarts == 0

    def test_a_server_that_does_not_answer_the_probe_is_greeted(self, fault_server: Server, connect: Connect) -> None:
        config = fault_server(faults=[{"on": "server/discover", "hang": True}])
        client = connect({**config, "probeTimeout": 0.1})
        assert client.protocol_version == "2025-11-25"
        assert methods(client)[:2] == ["server/discover", "initialize"]

    def test_a_stateless_server_that_is_slow_to_answer_the_probe_is_not_mistaken(
        self, fault_server: Server, connect: Connect
    ) -> None:
        config = fault_server(era="stateless", faults=[{"on": "server/discover", "delay": 0.5, "nth": [1]}])
        client = connect({**config, "probeTimeout": 0.1})
        assert client.protocol_version == "2026-07-28"
        assert methods(client)[:3] == ["server/discover", "initialize", "server/discover"]

    def test_a_server_of_an_unknown_revision_is_refused_by_its_name(self, fault_server: Server) -> None:
        client = MCPClient.from_config("fault", fault_server(era="stateless", supported_versions=["2031-01-01"]))
        assert not client.connect()
        assert "the server speaks 2031-01-01" in str(client.last_error)


class TestRestarting:
    @pytest.mark.parametrize(
        ("scenario", "first_message"),
        [({"era": "handshake"}, "initialize"), ({"era": "stateless"}, "server/discover")],
    )
    def test_what_was_found_out_is_not_asked_again(
        self, fault_server: Server, connect: Connect, scenario: Json, first_message: str
    ) -> None:
        client = connect(
            {**fault_server(**scenario, faults=[{"tool": "sleep", "crash": "mid_line"}]), "restart": QUICK}
        )
        events = Recorder()
        client.subscribe(events)
        assert client.call_tool("sleep", {"seconds": 0})["error_type"] == "server_crashed"
        assert text(client.call_tool("echo", {"text": "again"})) == "again"
        events.wait_for(Restarted)
        assert methods(client)[0] == first_message

    def test_a_server_that_exits_on_the_probe_is_not_probed_at_its_restart(
        self, fault_server: Server, connect: Connect, tmp_path: Path
    ) -> None:
        faults = [*DIES_OF_THE_PROBE, {"tool": "sleep", "crash": "mid_line"}]
        client = connect({**fault_server(faults=faults, state_file=tmp_path / "state"), "restart": QUICK})
        client.call_tool("sleep", {"seconds": 0})
        assert text(client.call_tool("echo", {"text": "again"})) == "again"
        assert read_state(tmp_path / "state").starts == 3

    def test_changes_are_heard_of_after_a_restart_too(self, fault_server: Server, connect: Connect) -> None:
        faults = [
            {"tool": "sleep", "crash": "mid_line"},
            {"tool": "echo", "change_tools": [{"name": "grown"}]},
        ]
        client = connect({**fault_server(era="stateless", faults=faults), "restart": QUICK})
        events = Recorder()
        client.subscribe(events)
        client.call_tool("sleep", {"seconds": 0})
        assert text(client.call_tool("echo", {"text": "again"})) == "again"
        assert events.wait_for(ToolsChanged).added == ("grown",)


class TestStateless:
    def test_a_request_of_the_server_is_never_answered(self, fault_server: Server, connect: Connect) -> None:
        faults = [{"tool": "echo", "server_requests": [{"method": "ping"}, {"method": "roots/list"}]}]
        client = connect(fault_server(era="stateless", faults=faults))
        client.call_tool("echo", {"text": "hi"})
        assert all("method" in message for message in received(client))

    def test_a_call_that_is_given_up_is_cancelled_by_its_id(self, fault_server: Server, connect: Connect) -> None:
        client = connect(fault_server(era="stateless", faults=[{"tool": "echo", "hang": True}]))
        assert client.call_tool("echo", {"text": "hi"}, timeout=0.1)["error_type"] == "timeout"
        messages = received(client)
        hung = next(m for m in messages if m["method"] == "tools/call" and m["params"]["name"] == "echo")
        cancelled = next(m for m in messages if m["method"] == "notifications/cancelled")
        assert cancelled["params"]["requestId"] == hung["id"]
