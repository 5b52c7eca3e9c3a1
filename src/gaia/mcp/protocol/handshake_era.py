"""The handshake era: every revision up to 2025-11-25 (specification, "Lifecycle")."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from gaia.mcp.errors import HandshakeFailed, InvalidResponse, JsonRpcError
from gaia.mcp.protocol.era import ClientIdentity, Era, ServerProfile, instructions_of, object_member
from gaia.mcp.protocol.exchange import Exchange, Notify, Send, SetProtocolVersion
from gaia.mcp.protocol.negotiated_protocol import NOT_NEGOTIATED, NegotiatedProtocol

HANDSHAKE_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first: the first is offered, any is accepted."""


class HandshakeEra(Era):
    """`initialize`, `notifications/initialized`, then calls; `ping` for liveness."""

    _ping = Send("ping")

    def open(self, identity: ClientIdentity, revision: str = HANDSHAKE_REVISIONS[0]) -> Exchange[ServerProfile]:
        """Everything from the first byte to the moment when calls may be sent. `revision` is what is offered."""
        yield SetProtocolVersion(NOT_NEGOTIATED)
        result = yield Send(
            "initialize",
            {
                "protocolVersion": revision,
                "capabilities": dict(identity.capabilities),
                "clientInfo": identity.info,
            },
        )
        profile = self._profile(result)
        yield SetProtocolVersion(NegotiatedProtocol(profile.protocol_version))
        yield Notify("notifications/initialized")
        return profile

    def listen(self, _profile: ServerProfile, _resources: Sequence[str]) -> None:
        """Servers of this era tell of their changes unasked."""

    def _profile(self, result: Mapping[str, Any]) -> ServerProfile:
        version = result.get("protocolVersion", HANDSHAKE_REVISIONS[0])
        if version not in HANDSHAKE_REVISIONS:
            # Lifecycle says SHOULD disconnect, schema.ts says MUST; raising makes the driver disconnect.
            raise HandshakeFailed(
                f"the server answered protocol version {version!r}; this client speaks "
                f"{', '.join(HANDSHAKE_REVISIONS)} after a handshake",
                delivery="unknown",
            )
        return ServerProfile(
            protocol_version=version,
            server_info=object_member(result, "serverInfo", "initialize"),
            capabilities=object_member(result, "capabilities", "initialize"),
            era=self,
            instructions=instructions_of(result),
        )


def resubscribe(resources: Sequence[str], log_level: str | None) -> Exchange[None]:
    """Repeat subscriptions and the log level on a new connection. What the server refuses is passed over."""
    sends = [Send("resources/subscribe", {"uri": uri}) for uri in resources]
    if log_level is not None:
        sends.insert(0, Send("logging/setLevel", {"level": log_level}))
    for send in sends:
        with contextlib.suppress(JsonRpcError, InvalidResponse):
            yield send
