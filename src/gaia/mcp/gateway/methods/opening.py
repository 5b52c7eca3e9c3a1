"""``initialize``, ``server/discover``, ``ping`` and ``logging/setLevel``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gaia import __version__
from gaia.mcp.client.features import LOG_LEVELS
from gaia.mcp.gateway.clients.pending_request import PendingRequest, later
from gaia.mcp.gateway.clients.sessions import Handshake, Session
from gaia.mcp.gateway.messages import EMPTY_RESULT, META, Params, RequestRefused, member
from gaia.mcp.gateway.views.view import View
from gaia.mcp.protocol.eras import HANDSHAKE_REVISIONS, STATELESS_REVISIONS
from gaia.mcp.protocol.gateway_answers import GATEWAY_KEY, GATEWAY_NAME
from gaia.mcp.protocol.messages import INVALID_PARAMS

_INFO = {"name": GATEWAY_NAME, "version": __version__}
_SELF = {GATEWAY_KEY: _INFO}

_MAX_SAID = 64 * 1024
"""Bytes of the client's capabilities and of its `clientInfo`, which the session keeps."""

_MAX_NAME = 100
"""Characters of the name of the client's program, and of its version."""


def handshake_of(params: Params) -> Handshake:
    """The handshake that the params of `initialize` lead to. Raises `RequestRefused`."""
    wanted = member(params, "protocolVersion", str)
    if wanted is None:
        raise RequestRefused(INVALID_PARAMS, "protocolVersion: missing")
    for key in ("capabilities", "clientInfo"):
        if len(bytes(params.get(key, b""))) > _MAX_SAID:
            raise RequestRefused(INVALID_PARAMS, f"{key}: longer than {_MAX_SAID} bytes")
    told: dict[str, Any] = member(params, "clientInfo", dict) or {}
    names = (told.get("name"), told.get("version"))
    return Handshake(
        wanted if wanted in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[0],
        member(params, "capabilities", dict) or {},
        " ".join(name[:_MAX_NAME] for name in names if isinstance(name, str)),
    )


def initialize(request: PendingRequest) -> None:
    session = request.session
    assert session is not None, "the endpoint opens one"

    def answer() -> None:
        session.is_open = True
        said = {"protocolVersion": session.revision, "serverInfo": _server_info(request.view), "_meta": _SELF}
        _introduce(request, said)

    request.view.when_opening(later(request, answer), request.deadline)


def discover(request: PendingRequest) -> None:
    def answer() -> None:
        said = {
            "supportedVersions": [*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS],
            "_meta": {f"{META}serverInfo": _server_info(request.view), **_SELF},
            "ttlMs": 0,
            "cacheScope": "private",
        }
        _introduce(request, said)

    request.view.when_opening(later(request, answer), request.deadline)


def _server_info(view: View) -> dict[str, Any]:
    """At the path of one server, what the server itself says of itself, once it was ready."""
    known = None if view.server is None else view.servers()[0].client.server_info
    if not known:
        return _INFO
    # Clients insist on both members, and servers of the stateless era need not have them.
    return {**known, "name": str(known.get("name") or view.server), "version": str(known.get("version") or "")}


def _introduce(request: PendingRequest, facts: dict[str, Any]) -> None:
    result = {**facts, "capabilities": _capabilities(request.view)}
    if (instructions := _instructions(request.view)) is not None:
        result["instructions"] = instructions
    request.succeed(orjson.dumps(result))


def ping(request: PendingRequest) -> None:
    request.succeed(EMPTY_RESULT)


_PERHAPS: Mapping[str, Any] = {"prompts": {}, "resources": {}}


def _capabilities(view: View) -> dict[str, Any]:
    """The union of the servers' declared capabilities. All lists can change, because servers come and go.

    A server that was never ready may turn out to have prompts and resources, and a session may outlive the start.
    """
    declared = [server.capabilities or _PERHAPS for server in view.servers()]
    capabilities: dict[str, Any] = {}
    if view.server is None or any("tools" in one or one is _PERHAPS for one in declared):
        capabilities["tools"] = {"listChanged": True}
    if any("prompts" in one for one in declared):
        capabilities["prompts"] = {"listChanged": True}
    resources = [one["resources"] for one in declared if isinstance(one.get("resources"), Mapping)]
    if resources:
        capabilities["resources"] = {"listChanged": True}
        if any(one.get("subscribe") for one in resources):
            capabilities["resources"]["subscribe"] = True
    for name in ("completions", "logging"):
        if any(name in one for one in declared):
            capabilities[name] = {}
    return capabilities


def _instructions(view: View) -> str | None:
    found = [(server.name, server.client.instructions) for server in view.servers()]
    if view.server is not None:
        return found[0][1] if found else None
    parts = [f"## {name}\n\n{text}" for name, text in found if text]
    return "\n\n".join(parts) or None


def set_level(request: PendingRequest) -> None:
    level, session = request.text("level"), request.session
    assert session is not None, "it is a request of the handshake era"
    if level not in LOG_LEVELS:
        raise RequestRefused(INVALID_PARAMS, f"level: has to be one of {', '.join(LOG_LEVELS)}")
    want_level(session, level)
    session.wished()
    request.succeed(EMPTY_RESULT)


def want_level(session: Session, level: str) -> None:
    session.log_level = level
    # Servers get the most detailed level that any client wants. Each client receives only messages of its own level.
    for server in session.view.servers():
        server.want_log_level(level)
