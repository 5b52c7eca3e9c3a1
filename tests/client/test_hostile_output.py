"""Nothing that a server writes breaks another call: junk, halves, floods, late and doubled answers."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from gaia.mcp.client import MCPClient
from tests.servers.answers import text
from tests.waiting import wait_until

Json = dict[str, Any]
FaultServer = Callable[..., Json]
Connect = Callable[..., MCPClient]


class TestHostileOutput:
    """Nothing that a server writes breaks another call."""

    @pytest.mark.parametrize(
        "junk",
        [
            {"text": "Listening on port 3000"},
            {"text": ""},
            {"hex": "ff fe 00 80"},
            {"hex": "efbbbf"},
            {"json": [1, 2, 3]},
            {"json": "text"},
            {"json": {"jsonrpc": "2.0", "id": 4711, "result": {}}},
            {"json": {"jsonrpc": "1.0", "id": 1, "result": {}}},
            {"json": {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "?"}}},
            {"json": {"jsonrpc": "2.0", "method": "notifications/unheard/of", "params": {}}},
            {"text": "{" * 5000},
            {"text": "[" * 100_000},
            {"size": 3_000_000},
        ],
        ids=lambda junk: str(junk)[:40],
    )
    def test_junk_between_answers(self, fault_server: FaultServer, connect: Connect, junk: Json) -> None:
        client = connect(fault_server(faults=[{"on": "*", "junk": [junk]}]), maxMessageBytes=1_000_000)
        for number in range(3):
            assert text(client.call_tool("echo", {"text": str(number)})) == str(number)

    def test_junk_is_counted_and_shown(self, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "junk": [{"text": "hello"}, {"text": "world"}]}]))
        client.call_tool("echo", {"text": "hi"})
        status = client.status
        assert (status.noise_lines, status.noise_bytes) == (2, 10)
        assert client.is_connected()

    def test_an_answer_that_is_too_long_fails_alone(self, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server(), maxMessageBytes=100_000)
        outcome = client.call_tool("echo", {"text": "x" * 200_000})
        assert outcome["error_type"] == "invalid_response"
        assert "200" in outcome["error"]
        assert text(client.call_tool("echo", {"text": "short"})) == "short"

    @pytest.mark.parametrize("place", ["result", "error"])
    def test_an_answer_that_is_nested_too_deep_fails_alone(
        self, fault_server: FaultServer, connect: Connect, place: str
    ) -> None:
        deep: Any = "x"
        for _ in range(300):
            deep = [deep]
        answer = {"result": {"structuredContent": deep}} if place == "result" else {"error": {"code": 1, "data": deep}}
        client = connect(fault_server(faults=[{"tool": "echo", "nth": [1], **answer}]))
        outcome = client.call_tool("echo", {"text": "deep"})
        assert outcome["error_type"] == "invalid_response"
        assert "nested deeper than 254 levels" in outcome["error"]
        assert text(client.call_tool("echo", {"text": "flat"})) == "flat"

    def test_answers_that_come_late(self, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server(faults=[{"tool": "echo", "nth": [1], "await_cancel": True}]))
        assert client.call_tool("echo", {"text": "late"}, timeout=0.05)["error_type"] == "timeout"
        assert text(client.call_tool("echo", {"text": "in time"})) == "in time"

    def test_a_megabyte_there_and_back(self, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server())
        large = "ü" * 1_000_000
        assert text(client.call_tool("echo", {"text": large})) == large

    def test_a_flood_on_stderr_blocks_nothing(self, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server(stderr_flood=500_000, faults=[{"tool": "echo", "stderr_flood": 500_000}]))
        assert text(client.call_tool("echo", {"text": "hi"})) == "hi"

    def test_requests_of_the_server_are_answered(self, fault_server: FaultServer, connect: Connect) -> None:
        requests = [{"method": "ping"}, {"method": "roots/list"}]
        client = connect(fault_server(faults=[{"tool": "echo", "server_requests": requests}]))
        client.call_tool("echo", {"text": "hi"})
        ping, roots = json.loads(text(client.call_tool("client_answers")))
        assert ping["result"] == {}
        assert roots["error"]["code"] == -32601

    def test_pages_of_tools(self, fault_server: FaultServer, connect: Connect) -> None:
        whole = [tool.name for tool in connect(fault_server()).list_tools()]
        for cursors in ("opaque", "empty_string"):
            assert [tool.name for tool in connect(fault_server(page_size=2, cursors=cursors)).list_tools()] == whole

    def test_pages_of_tools_that_never_end(self, fault_server: FaultServer, connect: Connect) -> None:
        client = connect(fault_server(page_size=2, cursors="repeating"))
        assert "cursor" in str(client.last_error)
        assert client.list_tools() == []
        assert text(client.call_tool("echo", {"text": "hi"})) == "hi"


ASKS_AND_DOES_NOT_READ = """
import json, sys, time
answers = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}},
    "tools/list": {"tools": []},
}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") in answers:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answers[message["method"]]}), flush=True)
    elif "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": ""}}), flush=True)
    if message.get("method") == "tools/list":
        for number in range(3000):
            print(json.dumps({"jsonrpc": "2.0", "id": f"{number}-{'x' * 1000}", "method": "ping"}))
        sys.stdout.flush()
        time.sleep(60)
"""


@pytest.mark.process
def test_a_server_that_asks_and_does_not_read_fills_no_memory(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect({"command": sys.executable, "args": ["-c", ASKS_AND_DOES_NOT_READ], "protocol": "handshake"})
    assert wait_until(lambda: "answers_dropped" in caplog.text)
    client.disconnect()
    assert caplog.text.count("answers_dropped") == 1
