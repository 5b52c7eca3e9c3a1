"""The endpoint of a gateway is such a handler."""

from __future__ import annotations

from gaia.mcp.gateway import Gateway
from gaia.serving.direct_handler import DirectHandler


def test_an_endpoint_takes_the_paths_of_a_gateway() -> None:
    handler: DirectHandler = Gateway({}).endpoint
    paths = ("/mcp", "/mcp/files", "/mcp/@ops", "/mcpx", "/", "/health")
    assert [path for path in paths if handler.takes(path)] == ["/mcp", "/mcp/files", "/mcp/@ops"]
