"""`Era`: the messages of an open connection, in either family of protocol revisions.

The handshake era is every revision up to 2025-11-25 (specification, "Lifecycle"). In the stateless era (2026-07-28)
each request carries the facts on which a handshake used to agree.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gaia.mcp.errors import CallTimeout, HandshakeFailed, InvalidResponse, JsonRpcError
from gaia.mcp.protocol.exchange import (
    META,
    NOT_NEGOTIATED,
    Exchange,
    NegotiatedProtocol,
    Notify,
    Send,
    SetProtocolVersion,
    paginate,
)
from gaia.mcp.protocol.gateway_answers import is_gateway
from gaia.mcp.protocol.messages import value_size

_MAX_INSTRUCTIONS = 128 * 1024
"""Characters. Longer than any shown text, because secrets are masked before the text is cut."""

_MAX_MEMBER_BYTES = 1024 * 1024


class ClientIdentity(msgspec.Struct, frozen=True):
    name: str
    version: str
    capabilities: Mapping[str, Any] = {}

    @property
    def info(self) -> dict[str, str]:
        return {"name": self.name, "version": self.version}


class Era(ABC):
    """The messages for servers of one era. Stateless, and shared between threads."""

    is_stateless = False

    _ping: Send

    def list_tools(self, profile: ServerProfile) -> Exchange[list[Any]]:
        """All tool definitions; an empty list for a server without tools."""
        if "tools" not in profile.capabilities:
            return []
        return (yield from paginate("tools/list", "tools"))

    @abstractmethod
    def listen(self, profile: ServerProfile, resources: Sequence[str]) -> Exchange[None] | None:
        """Request notifications of changes, also of `resources` (URIs); None in an era where servers notify unasked."""

    def ping(self, timeout: float) -> Exchange[None]:
        """Raise `CallTimeout` if the server answers neither of two methods, of which some servers ignore one."""
        # An error is an answer: the server is alive but does not know the method.
        with contextlib.suppress(JsonRpcError, InvalidResponse):
            try:
                yield msgspec.structs.replace(self._ping, timeout=timeout)
            except CallTimeout:
                yield Send("tools/list", timeout=timeout)


class ServerProfile(msgspec.Struct, frozen=True):
    """Facts from the server's answer to the opening request, and the era that it speaks."""

    protocol_version: str
    server_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    era: Era
    instructions: str | None = None
    is_gateway: bool = False
    """Whether the server is a gateway of this package: it tells failures behind it like those of this process."""

    def masked(self, redact: Callable[[str], str]) -> ServerProfile:
        """A copy with secrets masked: people, logs and models see names, versions and instructions."""
        info = {key: redact(value) if isinstance(value, str) else value for key, value in self.server_info.items()}
        instructions = None if self.instructions is None else redact(self.instructions)
        return msgspec.structs.replace(self, server_info=info, instructions=instructions)


def instructions_of(result: Mapping[str, Any]) -> str | None:
    """The server's hints for a model, cut if they are very long; None if the answer has none."""
    instructions = result.get("instructions")
    return instructions[:_MAX_INSTRUCTIONS] if isinstance(instructions, str) else None


def object_member(result: Mapping[str, Any], key: str, method: str) -> Mapping[str, Any]:
    """An object in the answer to an opening request; empty if missing. Raises `HandshakeFailed` if it is unusable."""
    # Some languages write an empty object as null or as an empty list.
    value = result.get(key) or {}
    if not isinstance(value, dict):
        raise HandshakeFailed(f"the server's answer to {method} has a {key} that is not an object", delivery="unknown")
    if value_size(value) > _MAX_MEMBER_BYTES:
        raise HandshakeFailed(f"the server's answer to {method} has a {key} that is too large", delivery="unknown")
    return value


HANDSHAKE_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first. The client offers the first and accepts any."""


class HandshakeEra(Era):
    """`initialize`, `notifications/initialized`, then calls; `ping` for liveness."""

    _ping = Send("ping")

    def open(self, identity: ClientIdentity, revision: str = HANDSHAKE_REVISIONS[0]) -> Exchange[ServerProfile]:
        """Open the connection until calls may be sent. The client offers `revision`."""
        yield SetProtocolVersion(NOT_NEGOTIATED)
        capabilities = dict(identity.capabilities)
        params = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": identity.info}
        result = yield Send("initialize", params)
        profile = self._profile(result)
        yield SetProtocolVersion(NegotiatedProtocol(profile.protocol_version))
        yield Notify("notifications/initialized")
        return profile

    def listen(self, _profile: ServerProfile, _resources: Sequence[str]) -> None:
        """None: servers of this era notify unasked."""

    def _profile(self, result: Mapping[str, Any]) -> ServerProfile:
        version = result.get("protocolVersion", HANDSHAKE_REVISIONS[0])
        if version not in HANDSHAKE_REVISIONS:
            # Lifecycle says SHOULD disconnect, schema.ts says MUST; raising makes the driver disconnect.
            raise HandshakeFailed(
                f"the server answered protocol version {version!r}; this client speaks "
                f"{', '.join(HANDSHAKE_REVISIONS)} after a handshake",
                delivery="unknown",
            )
        info = object_member(result, "serverInfo", "initialize")
        capabilities = object_member(result, "capabilities", "initialize")
        behind = is_gateway(info, object_member(result, "_meta", "initialize"))
        return ServerProfile(version, info, capabilities, self, instructions_of(result), behind)


def resubscribe(resources: Sequence[str], log_level: str | None) -> Exchange[None]:
    """Repeat subscriptions and the log level on a new connection. Refusals are ignored."""
    sends = [Send("resources/subscribe", {"uri": uri}) for uri in resources]
    if log_level is not None:
        sends.insert(0, Send("logging/setLevel", {"level": log_level}))
    for send in sends:
        with contextlib.suppress(JsonRpcError, InvalidResponse):
            yield send


STATELESS_REVISIONS = ("2026-07-28",)

UNSUPPORTED_VERSION = -32022
"""The error of a server that does not speak the revision of a request (2026-07-28, "Versioning")."""

MISSING_CAPABILITY = -32021
"""The error of a server that needs a capability that the client has not declared."""

STATELESS_ERRORS = frozenset({-32020, MISSING_CAPABILITY})
"""Errors of this era only: headers and body differ; the client lacks a capability."""

_CHANGES = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}

SUBSCRIPTION_ID = f"{META}subscriptionId"
"""In ``params._meta`` of a notification: the id of the `subscriptions/listen` that requested it."""


class OtherRevisions(HandshakeFailed):
    """The server speaks this era but not the requested revision; `supported` lists its revisions."""

    def __init__(self, supported: list[str]) -> None:
        super().__init__(f"the server speaks {', '.join(supported) or 'no version that it names'}", delivery="unknown")
        self.supported = supported

    @classmethod
    def of(cls, error: JsonRpcError) -> OtherRevisions | None:
        """The content of the error "unsupported protocol version"; None for every other error."""
        if error.code != UNSUPPORTED_VERSION:
            return None
        return cls(_strings(error.data.get("supported") if isinstance(error.data, dict) else None))


class StatelessEra(Era):
    """`server/discover`, then calls that each carry the revision and the client's capabilities. There is no `ping`."""

    is_stateless = True
    _ping = Send("server/discover", {})

    def open(
        self, identity: ClientIdentity, revision: str = STATELESS_REVISIONS[0], timeout: float | None = None
    ) -> Exchange[ServerProfile]:
        """Ask for the server's capabilities. Raises `OtherRevisions`, or `InvalidResponse` for other answers."""
        # Every request carries these members (2026-07-28, "Base protocol").
        meta = {
            f"{META}protocolVersion": revision,
            f"{META}clientInfo": identity.info,
            f"{META}clientCapabilities": stateless_capabilities(identity.capabilities),
        }
        yield SetProtocolVersion(NegotiatedProtocol(revision, meta, server_may_ask=False))
        try:
            result = yield Send("server/discover", {}, timeout=timeout)
        except JsonRpcError as error:
            raise OtherRevisions.of(error) or error from None
        return self._profile(result, revision)

    def listen(self, profile: ServerProfile, resources: Sequence[str]) -> Exchange[None] | None:
        """One `subscriptions/listen` for every change that the server can report ("Subscriptions")."""
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
        info = object_member(meta, f"{META}serverInfo", "server/discover")
        capabilities = object_member(result, "capabilities", "server/discover")
        return ServerProfile(revision, info, capabilities, self, instructions_of(result), is_gateway(info, meta))


def _listen(wanted: dict[str, Any]) -> Exchange[None]:
    # The server answers when it stops listening, which may be never.
    yield Send("subscriptions/listen", {"notifications": wanted}, timeout=math.inf)


def stateless_capabilities(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """A client's capabilities without ``roots.listChanged``: this era has no such notification."""
    return {name: {} if name == "roots" else details for name, details in capabilities.items()}


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
