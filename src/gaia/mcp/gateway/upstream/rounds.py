"""`Rounds`: requests that need further input from a client of the stateless era.

Such a client receives an ``InputRequiredResult``, and sends its request again with the answers and a state (2026-07-28,
"Multi Round-Trip Requests"). A server of the same era has a state of its own, which the gateway seals into the client's
state. A server of the handshake era waits for the answer during the call, so the call is parked here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol

import msgspec
import orjson

from gaia.mcp.errors import InvalidResponse, MCPError
from gaia.mcp.gateway.upstream.sealing import SealBroken, StateSeal
from gaia.mcp.protocol.messages import Refusal
from gaia.mcp.protocol.rounds import InputRequired

PARK_SECONDS = 600.0

_MAX_PARKED = 1_000
_MAX_PARKED_OF_CLIENT = 100

_STATE, _PARKED = "state", "parked"
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()

Answer = Callable[[dict[str, Any] | None, Refusal | None], None]
"""Receives the client's result, or the reason why there is none."""


class Relayed(msgspec.Struct, frozen=True):
    """The end of a request: the result as JSON, or an error with its delivery."""

    result: bytes = b""
    error: MCPError | None = None
    is_error: bool = False
    has_type: bool | None = None
    """Whether the result has a ``resultType``; None if that is unknown."""

    @property
    def outcome(self) -> str:
        """``ok``, ``tool_error``, or the error type."""
        if self.error is not None:
            return self.error.error_type
        return "tool_error" if self.is_error else "ok"


OnEnd = Callable[[Relayed], None]


class ClientSide(Protocol):
    """The part of a client's request that a server may use while it answers that request. For the gateway's loop."""

    identity: str
    """The client's name; "" if clients have no names."""
    key: Hashable | None
    """Equal for requests of the same client; None if the client has neither a session nor a name."""
    is_stateless: bool
    """Whether the client speaks the stateless era. It is not asked then, but repeats its request with answers."""
    capabilities: Mapping[str, Any]
    log_level: str | None
    """The least severe level of log messages that the client wants; None if it wants none."""
    wants_progress: bool
    deadline: float | None
    """A reading of the monotonic clock after which the client does not need the answer; None if it is unknown."""
    generation: int | None
    """The number of the only process of the server that may get the request; None: any may."""

    def may_call(self, server: str, tool: str, annotations: Mapping[str, Any] | None) -> bool:
        """Whether the client may call a tool with these annotations (None: not listed). For any thread."""

    def progress(self, params: dict[str, Any]) -> None:
        """Report progress with the `params` of the server's notification, in which the token is replaced."""

    def log(self, params: dict[str, Any]) -> None: ...

    def ask(self, method: str, params: dict[str, Any], answer: Answer) -> Callable[[], None]:
        """Ask the client; `answer` is called once. Returns a function that withdraws the question. Raises `Refusal`."""


class OngoingCall(Protocol):
    client: ClientSide

    def cancel(self, reason: str) -> None:
        """Cancel the call; its `OnEnd` is not called. Does nothing if the call has ended."""

    def go_on(self, params: Mapping[str, Any], client: ClientSide, on_end: OnEnd) -> None:
        """Continue the call, whose client has sent its request again with answers."""


class Rounds:
    """The parked calls and sealed states of all servers of a gateway. Belongs to the gateway's event loop."""

    def __init__(self, seal: StateSeal | None = None) -> None:
        self._seal = seal or StateSeal()
        self._parked: dict[str, tuple[OngoingCall, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def close(self) -> None:
        for name in list(self._parked):
            self._expire(name)

    def opened(self, params: dict[str, Any], binding: bytes) -> OngoingCall | None:
        """The parked call of a further round; None if the server's own state was put into `params`.

        Raises `SealBroken`.
        """
        try:
            payload = self._seal.open(orjson.loads(orjson.dumps(params["requestState"])), binding)
        except SealBroken as broken:
            raise SealBroken(f"requestState: {broken}; send the request anew, without it") from None
        if _PARKED not in payload:
            params["requestState"] = payload[_STATE]
            return None
        call, timer = self._parked.pop(payload[_PARKED], (None, None))
        if call is None or timer is None:
            text = "no call waits for it any more, or not at this gateway; the server may have acted on it"
            raise SealBroken(f"requestState: {text}")
        timer.cancel()
        return call

    # Servers of the stateless era.

    def sealed(self, result: bytes, client: ClientSide, binding: bytes) -> bytes:
        """Seal the state in a result that requires input, for a stateless client. Raises `InvalidResponse`."""
        check_offered(InputRequired.from_result(orjson.loads(result)), client)
        members: dict[str, Any] = dict(_members.decode(result))
        if "requestState" in members:
            members["requestState"] = self._seal.seal({_STATE: orjson.loads(bytes(members["requestState"]))}, binding)
        return _encoder.encode(members)

    # Servers of the handshake era.

    def has_room(self, identity: str) -> bool:
        of_client = sum(call.client.identity == identity for call, _ in self._parked.values())
        return len(self._parked) < _MAX_PARKED and (not identity or of_client < _MAX_PARKED_OF_CLIENT)

    def park(self, call: OngoingCall, requests: Mapping[str, Any], binding: bytes) -> bytes:
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


def offers(capabilities: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> bool:
    """Whether a client with these capabilities accepts such a request."""
    if method == "roots/list":
        return "roots" in capabilities
    if method == "sampling/createMessage":
        sampling = capabilities.get("sampling")
        wants_tools = bool(params.get("tools") or params.get("toolChoice"))
        return sampling is not None and (not wants_tools or (isinstance(sampling, dict) and "tools" in sampling))
    elicitation = capabilities.get("elicitation")
    if method != "elicitation/create" or not isinstance(elicitation, dict):
        return False
    # Without modes the client supports forms, as before modes existed. The server's mode may be any JSON value.
    return params.get("mode", "form") in tuple(elicitation or ("form",))


def check_offered(required: InputRequired, client: ClientSide) -> None:
    """Raise `InvalidResponse` if a server requires input that the client has not declared."""
    for key, request in (required.requests or {}).items():
        if not offers(client.capabilities, request.method, request.params):
            asked = f"inputRequests.{key[:40]}: the server asks for {request.method[:40]}"
            raise InvalidResponse(f"{asked}, which the client does not offer")
