"""What differs between protocol eras, as strategy objects: how a conversation opens, and how life is proved.

The handshake era is every revision up to 2025-11-25 (specification, "Lifecycle").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from gaia.mcp.client.protocol.exchange import Exchange, Notify, Send, paginate
from gaia.mcp.errors import CallTimeout, HandshakeFailed, InvalidResponse, JsonRpcError

__all__ = ["HANDSHAKE_REVISIONS", "ClientIdentity", "Era", "HandshakeEra", "ServerProfile"]

HANDSHAKE_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first: the first is offered, any is accepted."""


class ClientIdentity(msgspec.Struct, frozen=True):
    """What we tell a server about ourselves."""

    name: str
    version: str
    capabilities: Mapping[str, Any] = {}


class ServerProfile(msgspec.Struct, frozen=True):
    """What a server told us about itself."""

    protocol_version: str
    server_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    instructions: str | None = None


class Era(Protocol):
    """How to talk to servers of one era. Implementations are stateless and shared between threads."""

    def open(self, identity: ClientIdentity) -> Exchange[ServerProfile]:
        """Everything from the first byte to the moment when calls may be sent."""

    def list_tools(self, profile: ServerProfile) -> Exchange[list[Any]]:
        """All tool definitions; an empty list from a server without tools."""

    def prove_life(self, timeout: float) -> Exchange[None]:
        """Ends normally if the server answers anything at all, and raises `CallTimeout` if it does not.

        Silence is confirmed by a second method before it counts: there are servers that ignore one of them.
        """


class HandshakeEra:
    """`initialize`, `notifications/initialized`, then calls; `ping` for liveness."""

    def open(self, identity: ClientIdentity) -> Exchange[ServerProfile]:
        result = yield Send(
            "initialize",
            {
                "protocolVersion": HANDSHAKE_REVISIONS[0],
                "capabilities": dict(identity.capabilities),
                "clientInfo": {"name": identity.name, "version": identity.version},
            },
        )
        profile = _profile(result)
        yield Notify("notifications/initialized")
        return profile

    def list_tools(self, profile: ServerProfile) -> Exchange[list[Any]]:
        if "tools" not in profile.capabilities:
            return []
        return (yield from paginate("tools/list", "tools"))

    def prove_life(self, timeout: float) -> Exchange[None]:
        try:
            yield Send("ping", timeout=timeout)
        except CallTimeout:
            try:
                yield Send("tools/list", timeout=timeout)
            except (JsonRpcError, InvalidResponse):
                return
        except (JsonRpcError, InvalidResponse):
            # An error is an answer: the server is alive, it just does not know ping.
            return


def _profile(result: Mapping[str, Any]) -> ServerProfile:
    version = result.get("protocolVersion", HANDSHAKE_REVISIONS[0])
    if version not in HANDSHAKE_REVISIONS:
        # Lifecycle says SHOULD disconnect, schema.ts says MUST; raising makes the driver disconnect.
        raise HandshakeFailed(
            f"the server answered protocol version {version!r}; this client speaks {', '.join(HANDSHAKE_REVISIONS)}",
            delivery="unknown",
        )
    instructions = result.get("instructions")
    return ServerProfile(
        protocol_version=version,
        server_info=_object(result, "serverInfo"),
        capabilities=_object(result, "capabilities"),
        instructions=instructions if isinstance(instructions, str) else None,
    )


def _object(result: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    # Null and an empty list are what some languages make of an empty object.
    value = result.get(key) or {}
    if not isinstance(value, dict):
        raise HandshakeFailed(
            f"the server's answer to initialize has a {key} that is not an object", delivery="unknown"
        )
    return value
