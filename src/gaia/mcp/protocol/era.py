"""`Era`: what differs between protocol eras once a connection is open. `ServerProfile`: what is known of a server."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gaia.mcp.errors import CallTimeout, HandshakeFailed, InvalidResponse, JsonRpcError
from gaia.mcp.protocol.exchange import Exchange, Send, paginate
from gaia.mcp.protocol.value_size import value_size

_MAX_INSTRUCTIONS = 128 * 1024
"""Characters; more than is shown of them, because secrets are masked first."""

_MAX_MEMBER_BYTES = 1024 * 1024


class ClientIdentity(msgspec.Struct, frozen=True):
    """What we tell a server about ourselves."""

    name: str
    version: str
    capabilities: Mapping[str, Any] = {}

    @property
    def info(self) -> dict[str, str]:
        """What the specification calls `clientInfo`."""
        return {"name": self.name, "version": self.version}


class Era(ABC):
    """How to talk to servers of one era. Stateless, and shared between threads."""

    is_stateless = False

    _ping: Send
    """The request that costs a server least."""

    def list_tools(self, profile: ServerProfile) -> Exchange[list[Any]]:
        """All tool definitions; an empty list from a server without tools."""
        if "tools" not in profile.capabilities:
            return []
        return (yield from paginate("tools/list", "tools"))

    @abstractmethod
    def listen(self, profile: ServerProfile, resources: Sequence[str]) -> Exchange[None] | None:
        """Ask to be told of changes, and end when the server ends that; None in an era in which servers tell unasked.

        `resources` are the URIs of the resources whose changes are of interest.
        """

    def ping(self, timeout: float) -> Exchange[None]:
        """Ends normally if the server answers anything at all, and raises `CallTimeout` if it does not.

        Silence is confirmed by a second method before it counts: there are servers that ignore one of them.
        """
        # An error is an answer: the server is alive, it just does not know the method.
        with contextlib.suppress(JsonRpcError, InvalidResponse):
            try:
                yield msgspec.structs.replace(self._ping, timeout=timeout)
            except CallTimeout:
                yield Send("tools/list", timeout=timeout)


class ServerProfile(msgspec.Struct, frozen=True):
    """What a server told us about itself, and how to talk to it."""

    protocol_version: str
    server_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    era: Era
    instructions: str | None = None

    def masked(self, redact: Callable[[str], str]) -> ServerProfile:
        """Without what must not be shown: names, versions and instructions go to people, logs and models."""
        info = {key: redact(value) if isinstance(value, str) else value for key, value in self.server_info.items()}
        instructions = None if self.instructions is None else redact(self.instructions)
        return msgspec.structs.replace(self, server_info=info, instructions=instructions)


def instructions_of(result: Mapping[str, Any]) -> str | None:
    """The server's hints for a model in the answer to an opening request, or the beginning of very long ones."""
    instructions = result.get("instructions")
    return instructions[:_MAX_INSTRUCTIONS] if isinstance(instructions, str) else None


def object_member(result: Mapping[str, Any], key: str, method: str) -> Mapping[str, Any]:
    """An object of the answer to an opening request; missing is empty.

    Raises `HandshakeFailed` for anything else, and for an object that is too large to be kept as long as the server.
    """
    # Null and an empty list are what some languages make of an empty object.
    value = result.get(key) or {}
    if not isinstance(value, dict):
        raise HandshakeFailed(f"the server's answer to {method} has a {key} that is not an object", delivery="unknown")
    if value_size(value) > _MAX_MEMBER_BYTES:
        raise HandshakeFailed(f"the server's answer to {method} has a {key} that is too large", delivery="unknown")
    return value
