"""One trace through three processes: the calling agent, the served agent, and the served agent's own MCP server."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from gaia.mcp import MCPClient
from tests.serving.served import command, environment
from tests.tracing import Tracing
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

RELAY = "tests.serving.agents:RelayAgent"


def spans_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


@pytest.mark.process
def test_a_trace_goes_through_the_served_agent_to_its_own_servers(tracing: Tracing, tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    line = command("mcp", "serve", RELAY)
    config = {"command": line[0], "args": line[1:], "env": environment({"TEST_SPANS": str(file)})}
    with MCPClient.from_config("relay", config) as client:
        assert client.connect()
        result = client.call_tool("relay", {"text": "hello"})
        assert not result.get("isError"), result
        version = client.protocol_version
        client.call_tool("relay", {})
        client.call_tool("no-such-tool", {})

    context = tracing.named("tools/call relay")[0].context
    assert context is not None
    recorded = spans_in(file)
    serving, failed = [span for span in recorded if span["name"] == "tools/call relay"]
    (onwards,) = [span for span in recorded if span["name"] == "tools/call echo"]

    trace_id = f"0x{trace.format_trace_id(context.trace_id)}"
    assert serving["context"]["trace_id"] == onwards["context"]["trace_id"] == trace_id
    assert serving["parent_id"] == f"0x{trace.format_span_id(context.span_id)}"
    assert onwards["parent_id"] == serving["context"]["span_id"]

    assert (serving["kind"], onwards["kind"]) == ("SpanKind.SERVER", "SpanKind.CLIENT")
    attributes = serving["attributes"]
    assert attributes["mcp.method.name"] == "tools/call"
    assert attributes["gen_ai.tool.name"] == "relay"
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["network.transport"] == "pipe"
    assert attributes["mcp.protocol.version"] == version
    assert "error.type" not in attributes
    assert serving["status"]["status_code"] == "UNSET"

    assert failed["attributes"]["error.type"] == "tool_error"
    assert failed["status"]["status_code"] == "ERROR"
    # The caller's mistake is not the server's error.
    (mistaken,) = [span for span in recorded if span["name"] == "tools/call no-such-tool"]
    assert mistaken["attributes"]["rpc.response.status_code"] == "-32602"
    assert "error.type" not in mistaken["attributes"]
    assert mistaken["status"]["status_code"] == "UNSET"


def test_two_processes_can_write_one_trace_into_one_file(demo_server: dict[str, Any], tmp_path: Path) -> None:
    """`gaia mcp call --trace FILE` to an agent served by `gaia mcp serve --trace FILE`."""
    file = tmp_path / "spans.jsonl"
    line = command("mcp", "serve", RELAY, "--trace", str(file))
    config = tmp_path / "servers.json"
    config.write_text(
        json.dumps({"mcpServers": {"relay": {"command": line[0], "args": line[1:], "env": environment({})}}})
    )
    calling = command("mcp", "call", "relay", "relay", "text=hello", "--config", str(config), "--trace", str(file))
    done = subprocess.run(calling, capture_output=True, text=True, timeout=PATIENCE, env=os.environ | environment({}))
    assert done.returncode == 0, done.stderr

    spans = [span for span in spans_in(file) if span["name"].startswith("tools/call")]
    by_id = {span["context"]["span_id"]: span for span in spans}
    (inner,) = [span for span in spans if span["name"] == "tools/call echo"]
    serving = by_id[inner["parent_id"]]
    calls = by_id[serving["parent_id"]]
    assert [(one["name"], one["kind"]) for one in (calls, serving, inner)] == [
        ("tools/call relay", "SpanKind.CLIENT"),
        ("tools/call relay", "SpanKind.SERVER"),
        ("tools/call echo", "SpanKind.CLIENT"),
    ]
    assert len({one["context"]["trace_id"] for one in spans}) == 1
