"""Which transport reaches a server, by its configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from gaia.mcp.client.authorization.config import AuthConfig, NoLogin, OnAuthorization
from gaia.mcp.client.authorization.configured import ConfiguredAuthorization
from gaia.mcp.client.launch import in_arguments, launch
from gaia.mcp.client.server_config import ServerConfig, expand, secrets
from gaia.mcp.client.transports.base import ChannelTransport
from gaia.mcp.client.transports.stdio import StdioTransport
from gaia.mcp.redaction import secret_values

__all__ = ["login_for", "transport_for"]


def transport_for(
    server: ServerConfig, timeout: float, debug: bool, authorization: ConfiguredAuthorization | None = None
) -> ChannelTransport:
    """A transport that is not open yet; `timeout` in seconds. Variables are expanded whenever it is opened.

    `authorization` is what `login_for` gave.

    Raises ValueError for a command that cannot be used.
    """
    if server.transport == "stdio":
        return _stdio(server, timeout, debug)
    return _http(server, timeout, debug, authorization)


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


def login_for(server: ServerConfig, on_authorization: OnAuthorization | None = None) -> ConfiguredAuthorization | None:
    """The login at the server; None if it is reached otherwise, or brings credentials along."""
    brings_credentials = any(name.lower() == "authorization" for name in server.headers or ())
    if server.transport == "stdio" or brings_credentials or isinstance(server.auth, NoLogin):
        return None
    if server.auth is None and "@" in urlsplit(server.url or "").netloc:
        return None

    def expanded() -> tuple[str, AuthConfig | None]:
        values = expand(server, os.environ)
        return values.url or "", values.auth

    return ConfiguredAuthorization(server.name, expanded, on_authorization)


def _http(
    server: ServerConfig, timeout: float, debug: bool, authorization: ConfiguredAuthorization | None
) -> ChannelTransport:
    # Programs whose servers are all processes of their own do not load it.
    from gaia.mcp.client.transports.http import HttpTransport

    def expanded() -> tuple[str, Mapping[str, str] | None, list[str]]:
        values = expand(server, os.environ)
        return values.url or "", values.headers, [*secret_values(in_arguments(server, os.environ)), *secrets(values)]

    return HttpTransport(
        server.url or "",
        server.headers,
        timeout=timeout,
        debug=debug,
        old=server.transport == "sse",
        auth=authorization,
        max_message_bytes=server.max_message_bytes,
        max_pending=server.max_pending,
        expand=expanded,
    )
