"""A gateway on standard input and output, for a client that starts its servers itself."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

from tests.serving.served import command, environment
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow


@pytest.fixture
def config(demo_server: dict[str, Any], tmp_path: Path) -> Path:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"demo": demo_server}}))
    return file


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_sdks_client_uses_servers_through_it(config: Path, mode: str) -> None:
    audit = config.with_name("audit.jsonl")
    line = command("mcp", "gateway", "--stdio", "--config", str(config), "--audit", str(audit))

    async def use() -> None:
        parameters = StdioServerParameters(command=line[0], args=line[1:], env=environment())
        async with Client(parameters, mode=mode) as client:
            assert "demo_echo" in [tool.name for tool in (await client.list_tools()).tools]
            assert (await client.call_tool("demo_echo", {"text": "hi"})).content[0].text == "hi"
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("demo_nothing", {})

    asyncio.run(use())
    assert [json.loads(line)["outcome"] for line in audit.read_text().splitlines()] == ["ok", "unknown_tool"]


def started(config: Path) -> subprocess.Popen[bytes]:
    line = command("mcp", "gateway", "--stdio", "--config", str(config))
    return subprocess.Popen(line, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ask(process: subprocess.Popen[bytes], identifier: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request, after whatever else the gateway writes."""
    assert process.stdin is not None
    assert process.stdout is not None
    send(process, {"id": identifier, "method": method, "params": params})
    while True:
        message: dict[str, Any] = json.loads(process.stdout.readline())
        if message.get("id") == identifier:
            return message


def send(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def test_the_end_of_input_ends_it_with_its_servers(config: Path) -> None:
    process = started(config)
    assert ask(process, 1, "initialize", OPENING)["result"]["protocolVersion"] == "2025-11-25"
    send(process, {"method": "notifications/initialized"})
    send(process, {"id": 2, "method": "tools/call", "params": {"name": "demo_sleep", "arguments": {"seconds": 600}}})
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_signal_lets_calls_under_way_end(config: Path) -> None:
    process = started(config)
    ask(process, 1, "initialize", OPENING)
    # So that the server is ready.
    ask(process, 2, "tools/list", {})
    send(process, {"id": 3, "method": "tools/call", "params": {"name": "demo_sleep", "arguments": {"seconds": 0.5}}})
    # The answer to another request says that the call was read; on a slow machine that of the call comes before it.
    send(process, {"id": 4, "method": "ping"})
    assert process.stdin is not None
    assert process.stdout is not None
    answered = [json.loads(process.stdout.readline())["id"]]
    process.send_signal(signal.SIGTERM)
    answered += [json.loads(line).get("id") for line in process.stdout]
    assert sorted(answered) == [3, 4]
    assert process.wait(PATIENCE) == 0
    process.stdin.close()
    process.stdout.close()


def test_nothing_is_answered_before_the_client_has_opened(config: Path) -> None:
    process = started(config)
    assert ask(process, 1, "tools/list", {})["error"]["code"] == -32600
    process.communicate(timeout=PATIENCE)
