"""`Rounds`: requests that need an answer of a client of the stateless era.

Such a client gets an ``InputRequiredResult``, and sends its request again with the answers and with a state
(2026-07-28, "Multi Round-Trip Requests"). A server of the same era has its own state, which is sealed into the client's
one. A server of the handshake era waits for the answer during the call, so the call is parked here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
import orjson

from gaia.mcp.errors import InvalidResponse, MCPError
from gaia.mcp.gateway.upstream.client_side import ClientSide, offers
from gaia.mcp.gateway.upstream.sealing import SealBroken, StateSeal
from gaia.mcp.protocol.rounds import InputRequired

PARK_SECONDS = 600.0
"""Seconds that a parked call waits for its client. Then it is cancelled."""

_MAX_PARKED = 1_000
_MAX_PARKED_OF_CLIENT = 100

_STATE, _PARKED = "state", "parked"
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()


class Relayed(msgspec.Struct, frozen=True):
    """The end of a request: the result as JSON, or an error with its delivery."""

    result: bytes = b""
    error: MCPError | None = None
    is_error: bool = False
    """Whether the result says that a tool has failed."""

    @property
    def outcome(self) -> str:
        """``ok``, ``tool_error``, or the error type."""
        if self.error is not None:
            return self.error.error_type
        return "tool_error" if self.is_error else "ok"


OnEnd = Callable[[Relayed], None]


class OngoingCall(Protocol):
    """A request that was sent to a server, as the rest of the gateway sees it."""

    client: ClientSide

    def cancel(self, reason: str) -> None:
        """Cancel the call; its `OnEnd` is not called. Does nothing if the call has ended."""

    def go_on(self, params: Mapping[str, Any], client: ClientSide, on_end: OnEnd) -> None:
        """Continue the call: the client has sent its request again, with answers."""


class Rounds:
    """The parked calls and sealed states of all servers of a gateway. Belongs to the gateway's event loop."""

    def __init__(self, seal: StateSeal | None = None) -> None:
        self._seal = seal or StateSeal()
        self._parked: dict[str, tuple[OngoingCall, asyncio.TimerHandle]] = {}
        """By a random name, which the client's sealed state contains."""

    def __len__(self) -> int:
        return len(self._parked)

    def close(self) -> None:
        """Cancel the parked calls."""
        for name in list(self._parked):
            self._expire(name)

    # Servers of the stateless era.

    def sealed(self, result: bytes, client: ClientSide, binding: bytes) -> bytes:
        """Seal the state in a result that requires input, for a stateless client. Raises `InvalidResponse`."""
        check_offered(InputRequired.from_result(orjson.loads(result)), client)
        members: dict[str, Any] = dict(_members.decode(result))
        if "requestState" in members:
            members["requestState"] = self._seal.seal({_STATE: orjson.loads(bytes(members["requestState"]))}, binding)
        return _encoder.encode(members)

    def opened(self, params: dict[str, Any], binding: bytes) -> OngoingCall | None:
        """Put the server's own state into the params of a further round, or return the parked call to continue.

        Raises `SealBroken`.
        """
        if "requestState" not in params:
            return None
        payload = self._seal.open(orjson.loads(orjson.dumps(params["requestState"])), binding)
        if _PARKED not in payload:
            params["requestState"] = payload[_STATE]
            return None
        call, timer = self._parked.pop(payload[_PARKED], (None, None))
        if call is None or timer is None:
            text = "no call waits for it any more, or not at this gateway; the server may have acted on it"
            raise SealBroken(f"requestState: {text}")
        timer.cancel()
        return call

    # Servers of the handshake era.

    def has_room(self, identity: str) -> bool:
        """Whether another call of this client may be parked."""
        of_client = sum(call.client.identity == identity for call, _ in self._parked.values())
        return len(self._parked) < _MAX_PARKED and (not identity or of_client < _MAX_PARKED_OF_CLIENT)

    def park(self, call: OngoingCall, requests: Mapping[str, Mapping[str, Any]], binding: bytes) -> bytes:
        """Keep a call until its client has answered. Returns the result that asks the client."""
        name = secrets.token_urlsafe(12)
        timer = asyncio.get_running_loop().call_later(PARK_SECONDS, self._expire, name)
        self._parked[name] = (call, timer)
        state = self._seal.seal({_PARKED: name}, binding)
        return _encoder.encode({"resultType": "input_required", "inputRequests": requests, "requestState": state})

    def _expire(self, name: str) -> None:
        call, timer = self._parked.pop(name, (None, None))
        if call is not None and timer is not None:
            timer.cancel()
            call.cancel("the client has not answered in time")


def check_offered(required: InputRequired, client: ClientSide) -> None:
    """Raise `InvalidResponse` if a server requires something that the client has not declared."""
    for key, request in (required.requests or {}).items():
        if not offers(client.capabilities, request.method, request.params):
            text = (
                f"inputRequests.{key[:40]}: the server asks for {request.method[:40]}, which the client does not offer"
            )
            raise InvalidResponse(text)
