"""Which transport reaches a server, by its configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gaia.mcp.client.launch import in_arguments, launch
from gaia.mcp.client.server_config import ServerConfig, expand
from gaia.mcp.client.transports.base import ChannelTransport
from gaia.mcp.client.transports.stdio import StdioTransport
from gaia.mcp.redaction import secret_values

__all__ = ["transport_for"]


def transport_for(server: ServerConfig, timeout: float, debug: bool) -> ChannelTransport:
    """A transport that is not open yet; `timeout` in seconds. Variables are expanded whenever it is opened.

    Raises ValueError for a command that cannot be used.
    """
    if server.transport == "stdio":
        return _stdio(server, timeout, debug)
    return _http(server, timeout, debug)


def _stdio(server: ServerConfig, timeout: float, debug: bool) -> ChannelTransport:
    return StdioTransport(
        server.command or "",
        server.args,
        server.env,
        timeout=timeout,
        debug=debug,
        cwd=server.cwd,
        inherit_env=server.inherit_env,
        max_message_bytes=server.max_message_bytes,
        max_pending=server.max_pending,
        expand=lambda: launch(server),
    )


def _http(server: ServerConfig, timeout: float, debug: bool) -> ChannelTransport:
    # Programs whose servers are all processes of their own do not load it.
    from gaia.mcp.client.transports.http import HttpTransport

    def expanded() -> tuple[str, Mapping[str, str] | None, list[str]]:
        values = expand(server, os.environ)
        return values.url or "", values.headers, secret_values(in_arguments(server, os.environ))

    return HttpTransport(
        server.url or "",
        server.headers,
        timeout=timeout,
        debug=debug,
        old=server.transport == "sse",
        max_message_bytes=server.max_message_bytes,
        max_pending=server.max_pending,
        expand=expanded,
    )
