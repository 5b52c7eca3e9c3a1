"""The application at ``/mcp``, in this process; whole servers are in `tests/serving`."""

import asyncio
from typing import Any

import httpx2

from gaia.mcp.server.factory import create_server
from gaia.mcp.server.http import PATH, create_app
from gaia.serving.options import HttpOptions
from tests.serving.agents import QuietAgent

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "upper",
}


def posted(path: str, text: str, options: HttpOptions) -> httpx2.Response:
    """The response to a call of `upper`."""

    async def post() -> httpx2.Response:
        app = create_app(create_server(QuietAgent(silent_mode=True), transport="tcp"), options)
        transport = httpx2.ASGITransport(app=app)
        params: dict[str, Any] = {"name": "upper", "arguments": {"text": text}, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            return await client.post(path, json=message, headers=HEADERS)

    return asyncio.run(post())


def test_the_agent_answers_at_one_path_only() -> None:
    response = posted(PATH, "a", HttpOptions())
    assert response.status_code == 200
    assert '"structuredContent":{"text":"A"}' in response.text
    assert posted("/", "a", HttpOptions()).status_code == 404


def test_a_body_over_the_limit_is_refused_without_the_guard_too() -> None:
    options = HttpOptions(max_body=1000)
    assert posted(PATH, "a" * 100, options).status_code == 200
    assert posted(PATH, "a" * 1000, options).status_code == 413
