"""Which log messages a client wants: per session up to revision 2025-11-25, per request since 2026-07-28."""

from __future__ import annotations

from typing import Any, get_args

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

__all__ = ["set_level", "wants"]

LEVELS: tuple[str, ...] = get_args(types.LoggingLevel)
"""From debug to emergency, as the protocol orders them."""

STATE_KEY = "gaia.logging_level"


def set_level(ctx: ServerRequestContext[Any, Any], level: str) -> None:
    """Remember ``logging/setLevel`` for the session."""
    _session_state(ctx)[STATE_KEY] = level


def wants(ctx: ServerRequestContext[Any, Any], level: str) -> bool:
    """Whether the client of this request wants a message of `level`; ValueError if there is no such level."""
    if level not in LEVELS:
        raise ValueError(f"There is no log level {level!r}; levels are {', '.join(LEVELS)}")
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        wanted = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
        return wanted in LEVELS and LEVELS.index(level) >= LEVELS.index(str(wanted))
    # A client that never said what it wants gets everything.
    return LEVELS.index(level) >= LEVELS.index(_session_state(ctx).get(STATE_KEY, LEVELS[0]))


def _session_state(ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
    # The SDK keeps a dictionary for each connection, and hands out the connection by no public name.
    state: dict[str, Any] = ctx.session._connection.state
    return state
