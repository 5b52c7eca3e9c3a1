"""One inspection: what is timed, what is seen, and that the server has been stopped afterwards."""

from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from gaia.mcp.doctor.inspection import Inspection, inspect_server
from gaia.mcp.tools.tool_filter import ToolFilter
from gaia.mcp.transports.base import MCPTransport

FaultServer = Callable[..., dict[str, Any]]


class OwnTransport(MCPTransport):
    """A user's own, whose server answers what `answers` has."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.is_open = False
        self.methods: list[str] = []

    def connect(self) -> bool:
        self.is_open = True
        return True

    def disconnect(self) -> None:
        self.is_open = False

    def is_connected(self) -> bool:
        return self.is_open

    def send_request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self.methods.append(method)
        if method == "initialize":
            capabilities: dict[str, Any] = {"tools": {}}
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {}}}
        answer = self.answers.get(method, {})
        if isinstance(answer, BaseException):
            raise answer
        return {"result": answer}


class TestInspection:
    @pytest.mark.parametrize(
        ("info", "server"),
        [
            ({}, "a server without a name"),
            ({"version": 2}, "2"),
            ({"version": "2", "name": "it", "title": "It"}, "it 2"),
        ],
    )
    def test_a_server_is_called_what_it_calls_itself(self, info: dict[str, Any], server: str) -> None:
        assert Inspection(server_info=info).server == server

    def test_one_slow_ping_of_several_says_nothing(self) -> None:
        assert Inspection(pings=[9.0, 1.0, 2.0]).ping == 2.0
        assert Inspection().ping is None


class TestWithoutAProcess:
    def test_the_whole_list_is_seen_and_the_server_stopped(self) -> None:
        tools = [{"name": "one"}, {"name": 5}, "two"]
        transport = OwnTransport(**{"tools/list": {"tools": tools}})
        seen = inspect_server(MCPClient("it", transport), pings=2)

        assert seen.error is None
        assert seen.definitions == tools
        assert len(seen.pings) == 2
        assert (seen.start_seconds, seen.pid) == (None, None)
        assert seen.handshake_seconds is not None
        assert not transport.is_open

    def test_patterns_that_match_nothing_are_seen(self) -> None:
        transport = OwnTransport(**{"tools/list": {"tools": [{"name": "one", "inputSchema": {}}]}})
        seen = inspect_server(MCPClient("it", transport, tool_filter=ToolFilter(deny=["one", "three"])))

        assert seen.unmatched == ["three"]

    def test_an_interruption_stops_the_server_too(self) -> None:
        transport = OwnTransport(ping=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            inspect_server(MCPClient("it", transport))

        assert not transport.is_open


class TestOfAProcess:
    def test_start_and_handshake_are_timed_apart(self, fault_server: FaultServer) -> None:
        seen = inspect_server(MCPClient.from_config("it", fault_server()), pings=1)

        assert seen.pid is not None
        assert seen.start_seconds is not None
        assert seen.start_seconds > 0
        assert seen.handshake_seconds is not None
        assert seen.handshake_seconds > 0
        assert seen.status is not None
        assert seen.status.protocol_version == "2025-11-25"

    def test_a_server_that_never_gets_ready_is_not_asked_for_more(self, fault_server: FaultServer) -> None:
        seen = inspect_server(MCPClient.from_config("it", fault_server(exit_at_start={"code": 3})))

        assert "exited with code 3" in (seen.error or "")
        assert (seen.definitions, seen.list_seconds, seen.pings) == (None, None, [])
        assert seen.start_seconds is not None

    def test_after_one_ping_that_failed_no_other_is_sent(self, fault_server: FaultServer) -> None:
        entry = fault_server(faults=[{"on": "ping", "hang": True}]) | {"timeout": 1}
        seen = inspect_server(MCPClient.from_config("it", entry), pings=3)

        assert "not answered within" in (seen.ping_error or "")
        assert len(seen.pings) == 1
