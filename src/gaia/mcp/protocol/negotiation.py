"""Finds out which era a server speaks (2026-07-28, "stdio": "Backward Compatibility"), and remembers it.

The client probes with `server/discover`. A result, or the error "unsupported protocol version", means the stateless
era. Any other answer, silence, or the end of the server means the handshake era. The next start of the same
configuration uses the remembered era, and forgets it if that fails.
"""

from __future__ import annotations

from typing import Literal

from gaia.mcp.errors import (
    AnswerLost,
    CallTimeout,
    HandshakeFailed,
    HttpError,
    InvalidResponse,
    JsonRpcError,
    MCPError,
    NeedsAuthorization,
)
from gaia.mcp.protocol.eras import (
    HANDSHAKE_REVISIONS,
    STATELESS_ERRORS,
    STATELESS_REVISIONS,
    ClientIdentity,
    HandshakeEra,
    OtherRevisions,
    ServerProfile,
    StatelessEra,
)
from gaia.mcp.protocol.exchange import Exchange
from gaia.mcp.protocol.messages import METHOD_NOT_FOUND

PROTOCOLS = ("auto", "handshake", "stateless", *STATELESS_REVISIONS, *HANDSHAKE_REVISIONS)

PROTOCOL_ALIASES = {"legacy": "handshake", "modern": "stateless"}
"""The specification's own words for the eras (2026-07-28, "Versioning"), accepted as well."""

HANDSHAKE = HandshakeEra()
STATELESS = StatelessEra()


class Negotiation:
    """The negotiation with one server. Used by one thread at a time, the one that opens connections."""

    def __init__(self, protocol: str = "auto", probe_timeout: float = 5.0) -> None:
        """`protocol` is one of `PROTOCOLS` or an alias; `probe_timeout`, in seconds, is how long the probe may take."""
        protocol = PROTOCOL_ALIASES.get(protocol, protocol)
        if protocol not in PROTOCOLS:
            raise ValueError(f"protocol: must be one of {', '.join(PROTOCOLS)}, not {protocol!r}")
        self._revision = protocol if protocol in (*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS) else None
        self._probe_timeout = probe_timeout
        self._known: Literal["handshake", "stateless"] | None = None
        if protocol == "handshake" or self._revision in HANDSHAKE_REVISIONS:
            self._known = "handshake"
        elif protocol == "stateless" or self._revision in STATELESS_REVISIONS:
            self._known = "stateless"
        self._fixed = self._known is not None
        self._probing = False

    def open(self, identity: ClientIdentity) -> Exchange[ServerProfile]:
        self._probing = False
        if self._fixed:
            return (yield from self._open_configured(identity))
        try:
            if self._known == "handshake":
                return (yield from self._handshake(identity))
            if self._known == "stateless":
                return (yield from self._stateless(identity, STATELESS_REVISIONS[0], None))
            return (yield from self._probe(identity))
        except MCPError:
            self._known = None
            raise

    def retry_with_initialize(self) -> bool:
        """Handle a server that ended before it was open. Returns whether to open it again at once, with the handshake.

        True if it was being probed: some servers exit when the first message is not `initialize`.
        """
        if not self._probing:
            if not self._fixed:
                self._known = None
            return False
        self._probing = False
        self._known = "handshake"
        return True

    def _open_configured(self, identity: ClientIdentity) -> Exchange[ServerProfile]:
        if self._known == "handshake":
            profile = yield from HANDSHAKE.open(identity, self._revision or HANDSHAKE_REVISIONS[0])
            if self._revision not in (None, profile.protocol_version):
                raise HandshakeFailed(
                    f"the server answered protocol version {profile.protocol_version!r}, and the configuration "
                    f"insists on {self._revision!r}",
                    delivery="unknown",
                )
            return profile
        revision = self._revision or STATELESS_REVISIONS[0]
        try:
            return (yield from self._stateless(identity, revision, None))
        except JsonRpcError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            raise HandshakeFailed(
                f"the server does not know server/discover, and the configuration insists on {revision!r}; "
                "set protocol to 'auto' if the server is of an older revision",
                delivery="unknown",
            ) from error

    def _probe(self, identity: ClientIdentity) -> Exchange[ServerProfile]:
        silent = False
        self._probing = True
        try:
            return (yield from self._stateless(identity, STATELESS_REVISIONS[0], self._probe_timeout))
        except CallTimeout:
            silent = True
        except NeedsAuthorization:
            # The answer came from a guard in front of the server.
            raise
        except JsonRpcError as error:
            # Only an error that no other era has means a stateless server.
            if error.code in STATELESS_ERRORS:
                raise
        except (InvalidResponse, HttpError, AnswerLost):
            # Any answer that is not stateless means the handshake era. Over HTTP it may be any refusal, or a broken
            # connection ("Streamable HTTP": "Backward Compatibility").
            pass
        self._probing = False
        try:
            return (yield from self._handshake(identity))
        except JsonRpcError:
            if not silent:
                raise
            # The server may only be slow. A server that answers `initialize` with an error may speak only the stateless
            # era.
            return (yield from self._stateless(identity, STATELESS_REVISIONS[0], None))

    def _stateless(self, identity: ClientIdentity, revision: str, timeout: float | None) -> Exchange[ServerProfile]:
        try:
            profile = yield from STATELESS.open(identity, revision, timeout)
        except OtherRevisions as error:
            if revision in error.supported:
                # The server refuses a version that it supports. Ask once more, as for any version that both sides know
                # ("Versioning").
                profile = yield from STATELESS.open(identity, revision, timeout)
                self._known = "stateless"
                return profile
            if not self._fixed and any(other in error.supported for other in HANDSHAKE_REVISIONS):
                return (yield from self._handshake(identity))
            spoken = revision if self._fixed else ", ".join((*STATELESS_REVISIONS, *HANDSHAKE_REVISIONS))
            raise HandshakeFailed(f"{error.message}; this client speaks {spoken}", delivery="unknown") from error
        self._known = "stateless"
        return profile

    def _handshake(self, identity: ClientIdentity) -> Exchange[ServerProfile]:
        self._probing = False
        try:
            profile = yield from HANDSHAKE.open(identity)
        except JsonRpcError as error:
            other = OtherRevisions.of(error)
            if other is None or STATELESS_REVISIONS[0] not in other.supported:
                raise
            # A stateless server that did not understand the probe, or not in time.
            profile = yield from STATELESS.open(identity)
            self._known = "stateless"
            return profile
        self._known = "handshake"
        return profile
