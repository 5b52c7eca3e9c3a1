"""The endpoint of a gateway is such a handler."""

import json
from typing import Any, cast

from gaia.mcp.gateway import Gateway
from gaia.serving.responses import RequestHandler
from gaia.testing import FakeServer
from tests.gateway.lines import STATELESS
from tests.unit.serving.test_http_protocol import Handler, served


def test_an_endpoint_takes_every_path() -> None:
    handler: RequestHandler = Gateway({}).endpoint
    paths = ("/mcp", "/mcp/files", "/", "/health", "*", "http://localhost/mcp")
    assert [path for path in paths if handler.takes(path)] == ["/mcp", "/mcp/files", "/", "/health"]


async def test_a_probe_behind_a_call_is_answered_after_it() -> None:
    def echo(text: str) -> str:
        """Say it again."""
        return text

    body = {"name": "a_echo", "arguments": {"text": "x"}, "_meta": STATELESS}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body}).encode()
    named = ("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: a_echo")
    nothing = ("Content-Type: ", "Content-Length: ")
    gateway = Gateway({"a": FakeServer("a", tools=[echo])})
    async with gateway, served(cast("Handler", gateway.endpoint)) as connect:
        client: Any = await connect()
        client.post("/mcp", call, *named)
        client.post("/health", b"", *nothing, method="GET")
        client.post("/nowhere", b"", *nothing, method="GET")
        client.post("/mcp", call, *named)
        answers = [await client.answer() for _ in range(4)]
    assert [status for status, _, _ in answers] == [200, 200, 404, 200]
    assert json.loads(answers[1][2]) == {"status": "ok"}
