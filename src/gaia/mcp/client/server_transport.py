"""Makes the transport of a configured server. Variables are expanded whenever the server is started."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from gaia.mcp.authorization.config import AuthConfig, NoLogin, OnAuthorization
from gaia.mcp.authorization.configured import ConfiguredAuthorization
from gaia.mcp.authorization.endpoint_policy import is_loopback
from gaia.mcp.client.client_options import START_SECONDS
from gaia.mcp.config.config_variables import expand, secrets, variables_in
from gaia.mcp.config.placement import Placement
from gaia.mcp.config.server_config import ServerConfig
from gaia.mcp.errors import ConfigError
from gaia.mcp.transports.base import ChannelTransport
from gaia.mcp.transports.command import INHERITED, argument_vector
from gaia.mcp.transports.stdio import StdioTransport
from gaia.runtime.extras import missing
from gaia.runtime.log import get_logger
from gaia.runtime.redaction import secret_values, sounds_secret

if TYPE_CHECKING:
    from gaia.mcp.placement.engine import Launch

logger = get_logger(__name__)

_warned: set[tuple[str, str]] = set()


def transport_for(
    server: ServerConfig, timeout: float, debug: bool, on_authorization: OnAuthorization | None = None
) -> ChannelTransport:
    """A transport that is not open yet; `timeout` in seconds. Raises ValueError for a command that cannot be used."""
    if server.in_process is not None:
        return server.in_process.transport(timeout)
    if server.placement is not None:
        argument_vector(server.command or "", server.args)
        return _placed_transport(server, server.placement, timeout)
    if server.transport == "stdio":
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
            sandbox=lambda: expand(server, os.environ).sandbox_settings,
            expand=lambda: _launch(server),
        )
    # Imported here: programs that start all servers as processes do not need it.
    from gaia.mcp.transports.http import HttpTransport

    def endpoint() -> tuple[str, Mapping[str, str] | None, list[str]]:
        values = expand(server, os.environ)
        _warn_of_plain_http(values)
        return values.url or "", values.headers, _secrets(server, values)

    return HttpTransport(
        server.url or "",
        server.headers,
        timeout=timeout,
        debug=debug,
        old=server.transport == "sse",
        auth=_login_for(server, on_authorization),
        max_message_bytes=server.max_message_bytes,
        max_pending=server.max_pending,
        expand=endpoint,
    )


def _login_for(server: ServerConfig, on_authorization: OnAuthorization | None) -> ConfiguredAuthorization | None:
    """The login for a server over HTTP; None if its entry has credentials, or states that there is no login."""
    brings_credentials = any(name.lower() == "authorization" for name in server.headers or ())
    if brings_credentials or isinstance(server.auth, NoLogin):
        return None
    if server.auth is None and "@" in urlsplit(server.url or "").netloc:
        return None

    def expanded() -> tuple[str, AuthConfig | None]:
        values = expand(server, os.environ)
        return values.url or "", values.auth

    return ConfiguredAuthorization(server.name, expanded, on_authorization)


def _warn_of_plain_http(values: ServerConfig) -> None:
    try:
        parts = urlsplit(values.url or "")
    except ValueError:
        return  # Opening the server reports it.
    sent = [name for name in values.headers or () if sounds_secret(name)]
    sent += ["the password in url"] if parts.password else []
    if parts.scheme != "http" or not sent or is_loopback(parts.hostname or ""):
        return
    hint = "every machine on the way can read them; give the server's https address"
    for what in sent:
        if _is_new(values.name, what):
            logger.warning("credentials_over_http", server=values.name, sent=what, hint=hint)


def _is_new(server: str, subject: str) -> bool:
    is_new = (server, subject) not in _warned
    _warned.add((server, subject))
    return is_new


def _launch(server: ServerConfig) -> tuple[list[str] | None, dict[str, str] | None, list[str]]:
    """The arguments, the environment and the secrets of a start. Raises ConfigError."""
    values = expand(server, os.environ)
    hint = "every user of this machine can read the arguments of a process; pass it in env"
    for variable in secret_in_arguments(server):
        if _is_new(server.name, variable):
            logger.warning("secret_in_arguments", server=server.name, variable=variable, hint=hint)
    return values.args, values.env, _secrets(server, values)


def _secrets(server: ServerConfig, values: ServerConfig) -> list[str]:
    """The secrets in the expanded `values`, and the values of variables used in the arguments or the URL."""
    named = {name for text in (*(server.args or ()), server.url or "") for name in variables_in(text)}
    used = {name: os.environ[name] for name in sorted(named) if name in os.environ and name not in INHERITED}
    return [*secrets(values), *secret_values(used)]


def _placed_transport(server: ServerConfig, placement: Placement, timeout: float) -> ChannelTransport:
    if (absent := missing("http", "httptools")) is not None:
        raise ConfigError(f"a server with a placement needs {absent}")
    # Imported here: programs that place no server do not need it.
    from gaia.mcp.placement.engines import engine_for
    from gaia.mcp.placement.transport import PlacedTransport

    start_timeout = server.start_timeout or max(timeout, START_SECONDS)
    return PlacedTransport(lambda: engine_for(placement), lambda: _launch_of(server, placement), timeout, start_timeout)


def _launch_of(server: ServerConfig, placement: Placement) -> Launch:
    """What the host of a placed server is told. Raises ConfigError."""
    from gaia.mcp.placement.engine import Launch

    args, env, secrets_ = _launch(server)
    values = msgspec.structs.replace(expand(server, os.environ), args=args, env=env, output_validation="off")
    entry = {key: value for key, value in msgspec.to_builtins(values).items() if key in _OF_HOST and value is not None}
    return Launch(
        name=placement.name or server.name,
        entry=entry,
        secrets=secrets_,
        token=token_urlsafe(32),
        lease=placement.lease,
        is_shared=placement.is_shared,
        started_by=_this_program(),
    )


_OF_HOST = frozenset(
    {
        "command", "args", "env", "cwd", "inheritEnv", "sandbox", "timeout", "startTimeout", "restart", "maxPending",
        "maxMessageBytes", "healthInterval", "healthTimeout", "protocol", "probeTimeout", "maxTimeout",
        "outputValidation",
    }
)  # fmt: skip
"""Keys of an entry that the host needs. All others are settings of the client."""


def _this_program() -> str:
    # Arguments may be secrets, so only the program's name is shown.
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    return f"{program} on {socket.gethostname()}, pid {os.getpid()}"


def secret_in_arguments(server: ServerConfig) -> list[str]:
    """Variables in `args` whose names sound secret. Every user of the machine can see a process's arguments."""
    return sorted({name for text in server.args or () for name in variables_in(text) if sounds_secret(name)})
