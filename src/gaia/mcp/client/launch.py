"""What a configured server is started with: variables filled in, and what of it must not be shown."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gaia.log import get_logger
from gaia.mcp.client.server_config import ServerConfig, expand, secrets, variables_in
from gaia.mcp.client.transports.environment import INHERITED
from gaia.mcp.redaction import secret_values, sounds_secret

__all__ = ["in_arguments", "launch", "secret_in_arguments"]

logger = get_logger(__name__)

_told: set[tuple[str, str]] = set()
"""The servers and variables that were warned of, so that each is warned of once per process."""


def launch(server: ServerConfig) -> tuple[list[str] | None, dict[str, str] | None, list[str]]:
    """The arguments, the environment and the secrets of a start that happens now. Raises ConfigError.

    The secrets are those of `server_config.secrets`, and the values of variables that went into arguments.
    """
    values = expand(server, os.environ)
    for variable in secret_in_arguments(server):
        if (server.name, variable) not in _told:
            _told.add((server.name, variable))
            logger.warning(
                "secret_in_arguments",
                server=server.name,
                variable=variable,
                hint="every user of this machine can read the arguments of a process; pass it in env",
            )
    return values.args, values.env, [*secrets(values), *secret_values(in_arguments(server, os.environ))]


def in_arguments(server: ServerConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables in the arguments and the URL, with their values; without those that every server inherits."""
    named = {name for text in (*(server.args or ()), server.url or "") for name in variables_in(text)}
    return {name: environ[name] for name in sorted(named) if name in environ and name not in INHERITED}


def secret_in_arguments(server: ServerConfig) -> list[str]:
    """The variables in `args` whose names sound secret: their values are visible to every user of the machine."""
    return sorted({name for text in server.args or () for name in variables_in(text) if sounds_secret(name)})
