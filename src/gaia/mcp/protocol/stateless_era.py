"""The stateless era: 2026-07-28, in which every request says for itself what a handshake used to agree on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gaia.mcp.errors import HandshakeFailed, InvalidResponse, JsonRpcError
from gaia.mcp.protocol.era import ClientIdentity, Era, ServerProfile, instructions_of, object_member
from gaia.mcp.protocol.exchange import Exchange, Send, SetProtocolVersion
from gaia.mcp.protocol.negotiated_protocol import NegotiatedProtocol

STATELESS_REVISIONS = ("2026-07-28",)
"""Newest first."""

UNSUPPORTED_VERSION = -32022
"""The error of a server that does not speak the revision of a request (2026-07-28, "Versioning")."""

MISSING_CAPABILITY = -32021
"""The error of a server that needs something of the client which the client has not declared."""

STATELESS_ERRORS = frozenset({-32020, MISSING_CAPABILITY})
"""Errors that only a server of this era has: headers and body differ; it needs a capability that we do not have."""

_CHANGES = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
"""Which capability says that a change can be told."""

META = "io.modelcontextprotocol/"
"""How the keys of the protocol in ``_meta`` begin."""

SUBSCRIPTION_ID = f"{META}subscriptionId"
"""In ``params._meta`` of a notification: the id of the `subscriptions/listen` that it belongs to."""


class OtherRevisions(HandshakeFailed):
    """The server speaks this era, and says which revisions it supports; the one that it was asked in is not there."""

    def __init__(self, supported: list[str]) -> None:
        super().__init__(f"the server speaks {', '.join(supported) or 'no version that it names'}", delivery="unknown")
        self.supported = supported

    @classmethod
    def of(cls, error: JsonRpcError) -> OtherRevisions | None:
        """What the error "unsupported protocol version" says; None for every other error."""
        if error.code != UNSUPPORTED_VERSION:
            return None
        return cls(_strings(error.data.get("supported") if isinstance(error.data, dict) else None))


class StatelessEra(Era):
    """`server/discover`, then calls that each carry the revision and our capabilities. There is no `ping`."""

    is_stateless = True
    _ping = Send("server/discover", {})

    def open(
        self,
        identity: ClientIdentity,
        revision: str = STATELESS_REVISIONS[0],
        timeout: float | None = None,
    ) -> Exchange[ServerProfile]:
        """Ask the server what it offers.

        Raises `OtherRevisions`, and `InvalidResponse` if the answer is not that of a stateless server.
        """
        # What every request carries (2026-07-28, "Base protocol").
        meta = {
            f"{META}protocolVersion": revision,
            f"{META}clientInfo": identity.info,
            f"{META}clientCapabilities": _capabilities(identity),
        }
        yield SetProtocolVersion(NegotiatedProtocol(revision, meta, server_may_ask=False))
        try:
            result = yield Send("server/discover", {}, timeout=timeout)
        except JsonRpcError as error:
            raise OtherRevisions.of(error) or error from None
        return self._profile(result, revision)

    def listen(self, profile: ServerProfile, resources: Sequence[str]) -> Exchange[None] | None:
        """One `subscriptions/listen` for everything that the server says it can tell ("Subscriptions")."""
        wanted: dict[str, Any] = {
            key: True
            for key, feature in _CHANGES.items()
            if isinstance(offered := profile.capabilities.get(feature), dict) and offered.get("listChanged")
        }
        if resources:
            wanted["resourceSubscriptions"] = list(resources)
        return _listen(wanted) if wanted else None

    def _profile(self, result: Mapping[str, Any], revision: str) -> ServerProfile:
        supported = _strings(result.get("supportedVersions"))
        if not supported:
            raise InvalidResponse("the answer to server/discover names no supported versions")
        if revision not in supported:
            raise OtherRevisions(supported)
        meta = object_member(result, "_meta", "server/discover")
        return ServerProfile(
            protocol_version=revision,
            server_info=object_member(meta, f"{META}serverInfo", "server/discover"),
            capabilities=object_member(result, "capabilities", "server/discover"),
            era=self,
            instructions=instructions_of(result),
        )


def _listen(wanted: dict[str, Any]) -> Exchange[None]:
    # The server answers it when it stops listening, which may be never.
    yield Send("subscriptions/listen", {"notifications": wanted}, timeout=math.inf)


def _capabilities(identity: ClientIdentity) -> dict[str, Any]:
    """The client's, without what only the handshake era knows: a server is not told that the roots changed."""
    return {name: {} if name == "roots" else details for name, details in identity.capabilities.items()}


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
